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

from ditron.ir import task
from ditron.plan.dtypes import DTYPES, Kind
from ditron.plan.placement import Mesh, cutting_axes, shard_size
from ditron.plan.spec import TensorSpec
from ditron.runtime.inputs import Tensors, check_inputs
from ditron.runtime.inputs import check_tensors as check_tensors
from ditron.runtime.inputs import torch_dtype as torch_dtype
from ditron.runtime.kernel_reference import run_kernel


def reference(
    program: task.ProgramOp,
    inputs: Mapping[str, torch.Tensor | float],
    compute: torch.dtype = torch.float32,
) -> Tensors:
    """Run a program on whole tensors.

    Args:
        program: what to run.
        inputs: every input, weight and scalar by name: global shape, the program's dtype; scalars
            may be plain numbers. States may be given too; they are zeros otherwise.
        compute: float32 computes each op in float32 and rounds its result once to the op's dtype;
            float64 never rounds, and returns float64.

    Returns:
        Every output by name, and what every state holds afterwards.

    Raises:
        InputError: tensors that do not fit the program.
    """
    tensors = check_inputs(program, inputs)
    with torch.no_grad():
        return _run(program, tensors, compute)


def _run(
    program: task.ProgramOp, inputs: Mapping[str, torch.Tensor], compute: torch.dtype
) -> Tensors:
    values: dict[SSAValue, torch.Tensor] = {}
    outputs: Tensors = {}
    held: Tensors = {}
    for op in program.body.block.ops:
        match op:
            case task.SourceOp() | task.ScalarOp():
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
        if isinstance(op, task.StateOp):
            held[op.tensor_name.data] = values[op.result]
        elif isinstance(op, task.UpdateOp):
            held[task.find_state(op.state).tensor_name.data] = values[op.result]
    return outputs | {name: state.clone() for name, state in held.items()}


def _widen(value: torch.Tensor, compute: torch.dtype) -> torch.Tensor:
    return value.to(compute) if value.is_floating_point() else value


def _round(value: torch.Tensor, spec: TensorSpec, compute: torch.dtype) -> torch.Tensor:
    exact = compute == torch.float64 and DTYPES[spec.dtype].kind is Kind.FLOAT
    return value.to(compute if exact else torch_dtype(spec.dtype))


def _compute(op: task.ComputeOp, operands: list[torch.Tensor]) -> torch.Tensor:
    return _FUNCTIONS[op.name](*operands, **_properties(op))


def _properties(op: task.ComputeOp) -> dict[str, Any]:
    """What an op's function takes besides its operands."""
    found: dict[str, Any] = {}
    match op:
        case task.MatmulOp():
            found = {"transpose_b": op.transpose_b is not None}
        case task.RmsNormOp():
            found = {"eps": op.eps}
        case task.SoftmaxOp() | task.ConcatOp() | task.ReductionOp():
            found = {"dim": op.dim_index}
        case task.SliceOp():
            size = task.spec_of(op.result).shape[op.dim_index]
            found = {"dim": op.dim_index, "offset": op.at, "size": size}
        case task.UpdateOp():
            found = {"dim": op.dim_index, "offset": op.at}
        case task.HeadsOp():
            found = {"offset": op.at, "scale": op.scale, **_of_heads(op)}
        case task.ReshapeOp():
            found = {"shape": task.spec_of(op.result).shape}
        case task.TransposeOp():
            found = {"dims": op.dims}
        case task.CollectiveOp():
            found = _moved(op)
        case _:
            pass
    return found


def _of_heads(op: task.HeadsOp) -> dict[str, Any]:
    if isinstance(op, task.AttentionPartsOp):
        return {"places": op.places}
    assert isinstance(op, task.AttentionOp)
    return {"causal": op.causal}


def _moved(op: task.CollectiveOp) -> dict[str, Any]:
    """For the collectives that change the global tensor."""
    spec, mesh, axis = task.spec_of(op.operand), mesh_of(op), op.axis.data
    match op:
        case task.BroadcastOp():
            size = spec.shape[op.dim_index]
            start = min(op.root_index * shard_size(size, mesh.size(axis)), size)
            kept = task.spec_of(op.result).shape[op.dim_index]
            return {"dim": op.dim_index, "start": start, "size": kept}
        case task.ShiftOp():
            axes = cutting_axes(spec.placements, op.dim_index)
            cuts = tuple(mesh.sizes[cut] for cut in axes)
            index = axes.index(mesh.index(axis))
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


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    position: torch.Tensor | None = None,
    *,
    offset: int,
    causal: bool,
    scale: float,
) -> torch.Tensor:
    """`softmax(scale q k^T) v` by heads, of the places that each token sees."""
    batch, tokens, heads, width = q.shape
    start = _start(position, offset)
    k, v = k[:, : start + tokens], v[:, : start + tokens]
    groups = k.shape[2]
    grouped = q.reshape(batch, tokens, groups, heads // max(groups, 1), width)
    scores = torch.einsum("btghd,bcgd->btghc", grouped, k) * scale
    if causal:
        places, own = torch.arange(k.shape[1]), start + torch.arange(tokens)
        scores.masked_fill_(places > own[:, None, None, None], -math.inf)
    return torch.einsum("btghc,bcgd->btghd", torch.softmax(scores, -1), v).reshape(q.shape)


def attention_parts(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    position: torch.Tensor | None = None,
    *,
    offset: int,
    scale: float,
    places: int,
) -> torch.Tensor:
    """Weighted sums, largest scores and sums of weights of each range of places."""
    (batch, _, heads, width), (capacity, groups) = q.shape, k.shape[1:3]
    seen = torch.arange(capacity) <= _start(position, offset)
    grouped = q.reshape(batch, groups, heads // max(groups, 1), width)
    scores = torch.einsum("bghd,bcgd->bghc", grouped, k) * scale
    values = torch.where(seen[:, None, None], v, 0)
    parts: list[torch.Tensor] = []
    for first in range(0, capacity, places):
        size = min(places, capacity - first)
        score, value, sees = (
            x.narrow(dim, first, size) for x, dim in ((scores, 3), (values, 1), (seen, 0))
        )
        largest = torch.where(sees, score, -math.inf).amax(3, keepdim=True)
        powers = torch.where(sees, torch.exp(score - largest), 0)
        weighted = torch.einsum("bghc,bcgd->bghd", powers, value)
        parts.append(torch.cat([weighted, largest, powers.sum(3, keepdim=True)], 3))
    return torch.stack(parts, 1).reshape(batch, len(parts), heads, width + 2)


def attention_join(
    sums: torch.Tensor, largest: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """The attention that ranges of places are parts of."""
    share = torch.exp(largest - largest.amax(1, keepdim=True))
    return (sums * share).sum(1, keepdim=True) / (weights * share).sum(1, keepdim=True)


def amax(x: torch.Tensor, dim: int) -> torch.Tensor:
    """The largest along `dim`, which is kept at size 1."""
    return x.amax(dim, keepdim=True)


def argmax(x: torch.Tensor, labels: torch.Tensor | None = None, *, dim: int) -> torch.Tensor:
    """Where the first of the largest along `dim` stands, or its label."""
    place = x.argmax(dim, keepdim=True)
    return place if labels is None else labels.expand(x.shape).gather(dim, place)


def slice(  # noqa: A001 - the op's name
    x: torch.Tensor, position: torch.Tensor | None = None, *, dim: int, offset: int, size: int
) -> torch.Tensor:
    """`size` elements of `dim` from `offset`, plus the position, on."""
    return x.narrow(dim, _start(position, offset), size)


def update(
    state: torch.Tensor,
    value: torch.Tensor,
    position: torch.Tensor | None = None,
    *,
    dim: int,
    offset: int,
) -> torch.Tensor:
    """The state with the value written over `dim` from `offset`, plus the position, on."""
    result = state.clone()
    result.narrow(dim, _start(position, offset), value.shape[dim]).copy_(value)
    return result


def _start(position: torch.Tensor | None, offset: int) -> int:
    return offset if position is None else offset + int(position)


def reshape(x: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """The same elements in row-major order."""
    return x.reshape(shape)


def transpose(x: torch.Tensor, dims: tuple[int, int]) -> torch.Tensor:
    """Two dimensions change places."""
    return x.transpose(*dims)


def swap_halves(x: torch.Tensor, dim: int) -> torch.Tensor:
    """The halves of a dimension change places."""
    return x.roll(x.shape[dim] // 2, dim)


def concat(*values: torch.Tensor, dim: int) -> torch.Tensor:
    """The values one after the other along `dim`."""
    return torch.cat(values, dim)


def constant(number: float, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """One number in every place."""
    return torch.full(shape, number, dtype=dtype)


def expand_dims(x: torch.Tensor, added: int) -> torch.Tensor:
    """The same elements, with dimensions of size 1 put before the others."""
    return x.reshape((1,) * added + tuple(x.shape))


def iota(x: torch.Tensor, dim: int) -> torch.Tensor:
    """0, 1, 2, ... along a dimension of x, of size 1 in the others."""
    return torch.arange(x.shape[dim]).reshape([-1 if d == dim else 1 for d in range(x.ndim)])


def total(x: torch.Tensor, dim: int) -> torch.Tensor:
    """The sum along a dimension, which stays."""
    return x.sum(dim, keepdim=True)


def div(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`a / b`."""
    return a / b


def le(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`a <= b`."""
    return a <= b


def where(condition: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`a` where the condition holds, else `b`."""
    return torch.where(condition, a, b)


def rsqrt(x: torch.Tensor) -> torch.Tensor:
    """`1 / sqrt(x)`."""
    return torch.rsqrt(x)


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
    "task.attention": attention,
    "task.attention_parts": attention_parts,
    "task.attention_join": attention_join,
    "task.amax": amax,
    "task.argmax": argmax,
    "task.slice": slice,
    "task.update": update,
    "task.reshape": reshape,
    "task.transpose": transpose,
    "task.concat": concat,
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
    "iota": iota,
    "sum": total,
    "swap_halves": swap_halves,
    "max": amax,
    "div": div,
    "le": le,
    "where": where,
    "rsqrt": rsqrt,
    **{name.partition(".")[2]: function for name, function in _FUNCTIONS.items()},
}
