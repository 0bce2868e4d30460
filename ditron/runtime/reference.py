"""The reference: a task program on global torch tensors, in one process, op by op.

One function an op, by the op's name. Most collectives do not change a global tensor, so they are
identities here: a partial sum stands for its sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from xdsl.ir import SSAValue

from ditron.errors import InputError
from ditron.ir import task
from ditron.plan.dtypes import DTYPES, Kind
from ditron.plan.placement import Mesh, cutting_axes, shard_size
from ditron.plan.spec import TensorSpec
from ditron.runtime.kernel_reference import run_kernel

Tensors = dict[str, torch.Tensor]


def reference(
    program: task.ProgramOp,
    inputs: Mapping[str, torch.Tensor],
    compute: torch.dtype = torch.float32,
) -> Tensors:
    """Run a program on whole tensors.

    Args:
        program: what to run.
        inputs: every input and weight by name: global shape, the program's dtype.
        compute: float32 computes each op in float32 and rounds its result once to the op's dtype;
            float64 never rounds, and returns float64.

    Returns:
        Every output by name.

    Raises:
        InputError: tensors that do not fit the program.
    """
    check_inputs(program, inputs)
    with torch.no_grad():
        return _run(program, inputs, compute)


def check_inputs(program: task.ProgramOp, inputs: Mapping[str, torch.Tensor]) -> None:
    """Names, shapes and dtypes must be exactly the program's.

    Raises:
        InputError: they are not.
    """
    specs = {op.tensor_name.data: task.spec_of(op.result) for op in program.inputs}
    check_tensors(program.program_name, "input", specs, inputs)


def check_tensors(
    program: str, what: str, specs: Mapping[str, TensorSpec], given: Mapping[str, torch.Tensor]
) -> None:
    """Tensors must be exactly those that the specs describe.

    Raises:
        InputError: a name is missing or unknown, or a shape or dtype is another.
    """
    if given.keys() != specs.keys():
        missing = ", ".join(sorted(specs.keys() - given.keys())) or "none"
        unknown = ", ".join(sorted(given.keys() - specs.keys())) or "none"
        message = (
            f'program "{program}" takes {what}s {", ".join(specs) or "none"};'
            f" missing: {missing}, unknown: {unknown}"
        )
        raise InputError(message)
    for name, spec in specs.items():
        tensor = given[name]
        if not isinstance(tensor, torch.Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(
                f'{what} "{name}" should be a torch tensor, got {type(tensor).__name__}'
            )
        if tuple(tensor.shape) != spec.shape or tensor.dtype != torch_dtype(spec.dtype):
            message = (
                f'{what} "{name}" should have shape {spec.shape} and dtype'
                f" {torch_dtype(spec.dtype)}, got {tuple(tensor.shape)} and {tensor.dtype}"
            )
            raise InputError(message)


def torch_dtype(dtype: str) -> torch.dtype:
    """Torch's dtype of a ditron dtype's name."""
    return getattr(torch, DTYPES[dtype].torch_name)


def _run(
    program: task.ProgramOp, inputs: Mapping[str, torch.Tensor], compute: torch.dtype
) -> Tensors:
    values: dict[SSAValue, torch.Tensor] = {}
    outputs: Tensors = {}
    for op in program.body.block.ops:
        match op:
            case task.InputOp() | task.WeightOp():
                values[op.result] = inputs[op.tensor_name.data]
            case task.OutputOp():
                outputs[op.tensor_name.data] = values[op.operand].clone()
            case task.CallOp():
                result = call(op, [values[o] for o in op.args], compute)
                values[op.result] = _round(result, task.spec_of(op.result), compute)
            case task.ComputeOp():
                operands = [_widen(values[o], compute) for o in op.operands]
                result = _compute(op, operands)
                values[op.result] = _round(result, task.spec_of(op.result), compute)
            case _:
                pass  # the verifier lets nothing else into a program
    return outputs


def _widen(value: torch.Tensor, compute: torch.dtype) -> torch.Tensor:
    return value.to(compute) if value.is_floating_point() else value


def _round(value: torch.Tensor, spec: TensorSpec, compute: torch.dtype) -> torch.Tensor:
    exact = compute == torch.float64 and DTYPES[spec.dtype].kind is Kind.FLOAT
    return value.to(compute if exact else torch_dtype(spec.dtype))


def _compute(op: task.ComputeOp, operands: list[torch.Tensor]) -> torch.Tensor:
    return _FUNCTIONS[op.name](*operands, **_properties(op))


def _properties(op: task.ComputeOp) -> dict[str, Any]:
    """What an op's function takes besides its operands."""
    match op:
        case task.MatmulOp():
            return {"transpose_b": op.transpose_b is not None}
        case task.RmsNormOp():
            return {"eps": op.eps}
        case task.SoftmaxOp():
            return {"dim": op.dim_index}
        case task.BroadcastOp():
            size = task.spec_of(op.operand).shape[op.dim_index]
            full = shard_size(size, mesh_of(op).size(op.axis.data))
            kept = task.spec_of(op.result).shape[op.dim_index]
            return {"dim": op.dim_index, "start": min(op.root_index * full, size), "size": kept}
        case task.ShiftOp():
            mesh = mesh_of(op)
            axes = cutting_axes(task.spec_of(op.operand).placements, op.dim_index)
            index = axes.index(mesh.index(op.axis.data))
            cuts = tuple(mesh.sizes[axis] for axis in axes)
            return {"dim": op.dim_index, "by": op.steps, "cuts": cuts, "index": index}
        case _:
            return {}


def mesh_of(op: task.ComputeOp) -> Mesh:
    """The mesh of the program that an op is in."""
    program = op.parent_op()
    assert isinstance(program, task.ProgramOp)
    return program.mesh


def call(
    op: task.CallOp, operands: list[torch.Tensor], compute: torch.dtype = torch.float32
) -> torch.Tensor:
    """The kernel on whole tensors at once, rounding where it does."""
    function = op.function()
    stored = run_kernel(function, operands, _TILE_FUNCTIONS, exact=compute == torch.float64)
    return stored[len(operands)]


def matmul(a: torch.Tensor, b: torch.Tensor, *, transpose_b: bool = False) -> torch.Tensor:
    """`a [..., M, K] @ b [..., K, N]`, or `b [..., N, K]` transposed."""
    return a @ (b.mT if transpose_b else b)


def cast(x: torch.Tensor) -> torch.Tensor:
    """The same elements: every op's result is converted to its dtype anyway."""
    return x


def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`a + b`."""
    return a + b


def sub(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`a - b`."""
    return a - b


def mul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`a * b`."""
    return a * b


def silu(x: torch.Tensor) -> torch.Tensor:
    """`x * sigmoid(x)`."""
    return torch.nn.functional.silu(x)


def gelu(x: torch.Tensor) -> torch.Tensor:
    """`x * Phi(x)`, by the error function."""
    return torch.nn.functional.gelu(x)


def relu(x: torch.Tensor) -> torch.Tensor:
    """`max(x, 0)`."""
    return torch.relu(x)


def exp(x: torch.Tensor) -> torch.Tensor:
    """`e ** x`."""
    return torch.exp(x)


def rms_norm(x: torch.Tensor, gain: torch.Tensor | None = None, *, eps: float) -> torch.Tensor:
    """`x / sqrt(mean(x * x) + eps)` along the last dimension, times the gain."""
    normed = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return normed if gain is None else normed * gain


def softmax(x: torch.Tensor, dim: int) -> torch.Tensor:
    """`exp(x) / sum(exp(x))` along `dim`."""
    return torch.softmax(x, dim)


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """`x * cos + cat(-x2, x1) * sin`, x1 and x2 the halves of the last dimension."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def embedding(ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Rows of the table; zeros for an id that it has not."""
    known = (ids >= 0) & (ids < table.shape[0])
    if not table.numel():
        return table.new_zeros((*ids.shape, table.shape[1]))
    return torch.where(known[..., None], table[torch.where(known, ids, 0)], 0)


def constant(number: float, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """One number in every place."""
    return torch.full(shape, number, dtype=dtype)


def expand_dims(x: torch.Tensor, added: int) -> torch.Tensor:
    """The same elements, with dimensions of size 1 put before the others."""
    return x.reshape((1,) * added + tuple(x.shape))


def all_gather(x: torch.Tensor) -> torch.Tensor:
    """The global tensor stays the same."""
    return x


def reduce_scatter(x: torch.Tensor) -> torch.Tensor:
    """The global tensor stays the same."""
    return x


def all_reduce(x: torch.Tensor) -> torch.Tensor:
    """The global tensor stays the same."""
    return x


def all_to_all(x: torch.Tensor) -> torch.Tensor:
    """The global tensor stays the same."""
    return x


def shard(x: torch.Tensor) -> torch.Tensor:
    """The global tensor stays the same."""
    return x


def broadcast(x: torch.Tensor, dim: int, start: int, size: int) -> torch.Tensor:
    """The root's shard, which begins at `start`."""
    return x.narrow(dim, start, size)


def shift(x: torch.Tensor, dim: int, by: int, cuts: tuple[int, ...], index: int) -> torch.Tensor:
    """torch.roll by shards.

    Args:
        x: the global tensor.
        dim: the dimension that is cut.
        by: how many shards.
        cuts: into how many parts each of the axes that cut it does, outermost first.
        index: which of these axes is rolled.
    """
    part = x.shape[dim] // math.prod(cuts)
    parts = x.reshape(*x.shape[:dim], *cuts, part, *x.shape[dim + 1 :])
    return torch.roll(parts, by, dim + index).reshape(x.shape)


_FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "task.matmul": matmul,
    "task.add": add,
    "task.sub": sub,
    "task.mul": mul,
    "task.silu": silu,
    "task.gelu": gelu,
    "task.relu": relu,
    "task.exp": exp,
    "task.cast": cast,
    "task.rms_norm": rms_norm,
    "task.softmax": softmax,
    "task.rope": rope,
    "task.embedding": embedding,
    "task.all_gather": all_gather,
    "task.reduce_scatter": reduce_scatter,
    "task.all_reduce": all_reduce,
    "task.all_to_all": all_to_all,
    "task.shard": shard,
    "task.broadcast": broadcast,
    "task.shift": shift,
}

_TILE_FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "matmul": matmul,
    "constant": constant,
    "expand_dims": expand_dims,
    **{name.partition(".")[2]: function for name, function in _FUNCTIONS.items()},
}
