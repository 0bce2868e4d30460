"""The task level: programs on distributed tensors, as a user writes them.

A value knows its program, so there is no current program, and threads that write one each do not
meet.
Every mistake is raised at the user's own line, by the rules of `ditron.plan.spec`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from ditron.builder.arguments import (
    as_axis,
    as_dim,
    as_mesh,
    as_name,
    as_placements,
    as_shape,
    at_user_line,
)
from ditron.builder.core import Kernel, distinct_kernel
from ditron.errors import PlacementError, ProgramError
from ditron.ir import core, task
from ditron.ir.attrs import TensorType
from ditron.ir.locations import caller_loc
from ditron.plan import calls
from ditron.plan import spec as rules
from ditron.plan.callsite import user_line
from ditron.plan.dtypes import DTYPES, DType, as_dtype
from ditron.plan.placement import Mesh, Partial, Placement, Placements, show
from ditron.plan.spec import TensorSpec, check_spec

if TYPE_CHECKING:
    import torch


_NO_HINT = re.compile(r"[^A-Za-z0-9_]")  # what an SSA value's printed name cannot have


class _State(Enum):
    NEW = "has not been opened: use `with`"
    OPEN = "is open"
    CLOSED = "is closed: its `with` block has ended"
    FAILED = "is unusable: its `with` block raised an error"


class Program:
    """A program on a mesh, written inside its `with` block.

    ```python
    with dt.Program("ag_gemm", dt.Mesh(tp=4)) as p:
        x = p.input("x", (m, k), dt.bf16, dt.Shard(0))
        w = p.weight("w", (k, n), dt.bf16, dt.Shard(1))
        p.output("y", dt.matmul(dt.all_gather(x, dim=0), w))
    ```
    """

    def __init__(self, name: str, mesh: Mesh) -> None:
        with at_user_line():
            self.name = as_name(name, "a program")
            self.mesh = as_mesh(mesh)
        self._state = _State.NEW
        self._taken: dict[str, str] = {}
        self._outputs: dict[SSAValue, str] = {}
        self.kernels: dict[str, core.FuncOp] = {}
        self._op = task.ProgramOp(name, mesh)
        self._op.location = caller_loc()
        self._where = user_line()

    def __enter__(self) -> Self:
        if self._state is not _State.NEW:
            self._refuse("a program is opened once")
        self._state = _State.OPEN
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._state = _State.FAILED
        if kind is not None:
            return
        if not self._outputs:
            message = f'program "{self.name}" has no output: end it with p.output("y", value)'
            raise ProgramError(message, self._where)
        self._op.verify()
        self._state = _State.CLOSED

    def input(
        self,
        name: str,
        shape: Sequence[int],
        dtype: DType | torch.dtype,
        placements: Placement | Sequence[Placement],
    ) -> Value:
        """A tensor that every run is given: global shape, one placement per mesh axis."""
        with at_user_line():
            spec = self._source(name, "input", shape, dtype, placements)
            op = task.InputOp(name, TensorType.of(spec))
            self.append(op, name)
            return Value(self, op.result, name)

    def weight(
        self,
        name: str,
        shape: Sequence[int],
        dtype: DType | torch.dtype,
        placements: Placement | Sequence[Placement],
    ) -> Value:
        """A tensor that is bound once and kept between runs."""
        with at_user_line():
            spec = self._source(name, "weight", shape, dtype, placements)
            op = task.WeightOp(name, TensorType.of(spec))
            self.append(op, name)
            return Value(self, op.result, name)

    def output(self, name: str, value: Value) -> None:
        """A tensor that every run returns; partial sums come back summed."""
        with at_user_line():
            if _program_of("output", value) is not self:
                message = (
                    f'output "{name}" of program "{self.name}" is a value of program'
                    f' "{value.program.name}"; a program uses its own values only'
                )
                raise ProgramError(message)
            if (before := self._outputs.get(value.ssa)) is not None:
                message = f'output "{name}" is already returned as "{before}"'
                raise ProgramError(message)
            self._take(name, "output")
            self.append(task.OutputOp(name, value.ssa), name)
            self._outputs[value.ssa] = name

    @property
    def ir(self) -> ModuleOp:
        """The program as a verified module of the task dialect, a fresh copy each time.

        The kernels that it calls stand before it.
        """
        if self._state is not _State.CLOSED:
            self._refuse("its IR is complete when its `with` block has ended", user_line())
        return ModuleOp([*(func.clone() for func in self.kernels.values()), self._op.clone()])

    def add_kernel(self, func: core.FuncOp) -> str:
        """Put a traced kernel beside the program; equal ones become one. Returns its name."""
        return distinct_kernel(self.kernels, func, {self.name})

    def reference(
        self, inputs: Mapping[str, torch.Tensor], *, compute: torch.dtype | None = None
    ) -> dict[str, torch.Tensor]:
        """The program on global tensors by torch alone, on this process.

        Args:
            inputs: every input and weight by name, whole.
            compute: float32 (the default) rounds once an op; float64 does not round at all.

        Raises:
            InputError: tensors that do not fit the program.
        """
        from ditron.runtime.reference import reference  # noqa: PLC0415 - torch, only when needed

        program = next(op for op in self.ir.ops if isinstance(op, task.ProgramOp))
        return (
            reference(program, inputs) if compute is None else reference(program, inputs, compute)
        )

    def __str__(self) -> str:
        return str(self._op)

    def __repr__(self) -> str:
        return f'<Program "{self.name}" on {self.mesh}>'

    def _source(
        self,
        name: str,
        role: str,
        shape: Sequence[int],
        dtype: DType | torch.dtype,
        placements: Placement | Sequence[Placement],
    ) -> TensorSpec:
        what = f'{role} "{as_name(name, role)}"'
        dims = as_shape(shape, what)
        layout = as_placements(placements, self.mesh, len(dims), what)
        spec = TensorSpec(dims, as_dtype(dtype).name, layout)
        check_spec(spec, len(self.mesh.axes), what)
        if Partial() in layout:
            message = f"{what} cannot be {show(layout)}: pass the sum, as Shard or Replicate"
            raise PlacementError(message)
        self._take(name, role)
        return spec

    def _take(self, name: str, role: str) -> None:
        self.require_open()
        if as_name(name, role) in self._taken:
            message = f'{role} "{name}": the name belongs to {self._taken[name]} already'
            raise ProgramError(message)
        self._taken[name] = f'{role} "{name}" of {user_line()}'

    def require_open(self) -> None:
        """Operations may be added only while the block is open."""
        if self._state is not _State.OPEN:
            self._refuse("operations belong inside the block")

    def _refuse(self, why: str, where: str | None = None) -> None:
        message = f'program "{self.name}" {self._state.value}; {why}'
        raise ProgramError(message, where or user_line())

    def append(self, op: Operation, hint: str) -> None:
        """Append an op, with the user's line as its location."""
        op.location = caller_loc()
        for result in op.results:
            result.name_hint = _NO_HINT.sub("_", hint)
        self._op.body.block.add_op(op)


class Value:
    """A distributed tensor of a program: what it will be, not yet its elements."""

    __slots__ = ("_name", "program", "spec", "ssa")
    __array_ufunc__ = None  # numpy leaves operators to this class

    def __init__(self, program: Program, ssa: SSAValue, name: str | None) -> None:
        self.program = program
        self.ssa = ssa
        self.spec = task.spec_of(ssa)
        self._name = name

    @property
    def shape(self) -> tuple[int, ...]:
        """The global shape."""
        return self.spec.shape

    @property
    def dtype(self) -> DType:
        return DTYPES[self.spec.dtype]

    @property
    def placements(self) -> Placements:
        """One placement per mesh axis."""
        return self.spec.placements

    @property
    def name(self) -> str | None:
        """The name given to the input or operation, if any."""
        return self._name

    def __repr__(self) -> str:
        return f"<Value {self._name or self.ssa.name_hint}: {self.spec}>"

    def __bool__(self) -> bool:
        message = "a value has no elements until the program runs, so it is neither true nor false"
        raise ProgramError(message, user_line())

    def __add__(self, other: Value) -> Value:
        return add(self, other)

    def __sub__(self, other: Value) -> Value:
        return sub(self, other)

    def __mul__(self, other: Value) -> Value:
        return mul(self, other)

    def __matmul__(self, other: Value) -> Value:
        return matmul(self, other)

    # Only reached with an operand that is no value: the same message as the other way round.
    def __radd__(self, other: Value) -> Value:
        return add(other, self)

    def __rsub__(self, other: Value) -> Value:
        return sub(other, self)

    def __rmul__(self, other: Value) -> Value:
        return mul(other, self)

    def __rmatmul__(self, other: Value) -> Value:
        return matmul(other, self)


def matmul(a: Value, b: Value, *, transpose_b: bool = False, name: str | None = None) -> Value:
    """`a @ b` accumulated in float32: a [M, K], b [K, N], or [N, K] if `transpose_b`.

    Placements: (R, R) -> R; (S(0), R) -> S(0); (R, S(1)) -> S(1); (S(1), S(0)) -> P; one P beside
    R -> P. Dims are those of `[M, K] @ [K, N]`.
    """
    with at_user_line():
        program = _program_of("matmul", a, b)
        rules.matmul(a.spec, b.spec, transpose_b=transpose_b, names=_names(a, b))
        return _emit(
            program, task.MatmulOp(a.ssa, b.ssa, transpose_b=transpose_b, op_name=name), name
        )


def add(a: Value, b: Value, *, name: str | None = None) -> Value:
    """`a + b`; size-1 dimensions broadcast."""
    return _binary(task.AddOp, a, b, name)


def sub(a: Value, b: Value, *, name: str | None = None) -> Value:
    """`a - b`; size-1 dimensions broadcast."""
    return _binary(task.SubOp, a, b, name)


def mul(a: Value, b: Value, *, name: str | None = None) -> Value:
    """`a * b`, element by element; size-1 dimensions broadcast."""
    return _binary(task.MulOp, a, b, name)


def silu(x: Value, *, name: str | None = None) -> Value:
    """`x * sigmoid(x)`."""
    return _unary(task.SiluOp, x, name)


def gelu(x: Value, *, name: str | None = None) -> Value:
    """`x * Phi(x)`, Phi the normal distribution function (not the tanh form)."""
    return _unary(task.GeluOp, x, name)


def relu(x: Value, *, name: str | None = None) -> Value:
    """`max(x, 0)`."""
    return _unary(task.ReluOp, x, name)


def exp(x: Value, *, name: str | None = None) -> Value:
    """`e ** x`."""
    return _unary(task.ExpOp, x, name)


def cast(x: Value, dtype: DType | torch.dtype, *, name: str | None = None) -> Value:
    """The same elements in another dtype; nothing is ever cast silently."""
    with at_user_line():
        program = _program_of("cast", x)
        to = as_dtype(dtype).name
        rules.cast(x.spec, to, name=_names(x)[0])
        return _emit(program, task.CastOp(x.ssa, to, op_name=name), name)


def all_gather(x: Value, dim: int, axis: str | None = None, *, name: str | None = None) -> Value:
    """S(dim) -> R: every rank of the mesh axis gets the whole of `dim`."""
    return _collective(task.AllGatherOp, x, axis, dim, name)


def reduce_scatter(
    x: Value, dim: int, axis: str | None = None, *, name: str | None = None
) -> Value:
    """P -> S(dim): partial sums are added, each rank of the mesh axis keeps its part of `dim`."""
    return _collective(task.ReduceScatterOp, x, axis, dim, name)


def all_reduce(x: Value, axis: str | None = None, *, name: str | None = None) -> Value:
    """P -> R: partial sums are added on every rank of the mesh axis."""
    with at_user_line():
        program = _program_of("all_reduce", x)
        over = as_axis(axis, program.mesh, "all_reduce")
        index = program.mesh.index(over)
        rules.collective("all_reduce", x.spec, axis=index, name=_names(x)[0])
        return _emit(program, task.AllReduceOp(x.ssa, over, op_name=name), name)


def call(
    kernel: Kernel,
    *args: Value,
    out: Value | TensorSpec,
    name: str | None = None,
    **options: Any,  # noqa: ANN401 - whatever the kernel takes
) -> Value:
    """Run a tile kernel (`@dt.kernel`) on each tile of a result that is typed like `out`.

    Placements: an operand that is cut along with the result lies as it does or is a replica; one
    that is read whole is a replica. `options` are the kernel's own, by keyword.
    """
    with at_user_line():
        if not isinstance(kernel, Kernel):  # pyright: ignore[reportUnnecessaryIsInstance]
            message = f"call takes a kernel, made by @dt.kernel, got {kernel!r}"
            raise ProgramError(message)
        typed = [out] if isinstance(out, Value) else []
        program = _program_of(f"call of {kernel.name}", *args, *typed)
        spec = out.spec if isinstance(out, Value) else out
        traced = kernel.trace([a.spec for a in args], spec, options)
        used = [args[i] for i in traced.sources]
        names = [args[i].name or kernel.tensors[i] for i in traced.sources]
        calls.call(kernel.name, [a.spec for a in used], spec, traced.cuts, names)
        func = program.add_kernel(traced.func)
        op = task.CallOp(func, [a.ssa for a in used], traced.cuts, spec, op_name=name)
        return _emit(program, op, name)


def like(
    x: Value,
    *,
    shape: Sequence[int] | None = None,
    dtype: DType | torch.dtype | None = None,
    placements: Placement | Sequence[Placement] | None = None,
) -> TensorSpec:
    """What `call` may be given as `out`: a tensor like `x`, with some things other than its."""
    with at_user_line():
        program = _program_of("like", x)
        dims = x.shape if shape is None else as_shape(shape, "like")
        layout = x.placements
        if placements is not None:
            layout = as_placements(placements, program.mesh, len(dims), "like")
        element = x.dtype if dtype is None else as_dtype(dtype)
        spec = TensorSpec(dims, element.name, layout)
        check_spec(spec, len(program.mesh.axes), "like")
        return spec


def _unary(op: type[task.UnaryOp], x: Value, name: str | None) -> Value:
    with at_user_line():
        program = _program_of(op.function(), x)
        rules.pointwise(op.function(), [x.spec], names=_names(x))
        return _emit(program, op(x.ssa, op_name=name), name)


def _binary(op: type[task.BinaryOp], a: Value, b: Value, name: str | None) -> Value:
    with at_user_line():
        program = _program_of(op.function(), a, b)
        rules.pointwise(op.function(), [a.spec, b.spec], names=_names(a, b))
        return _emit(program, op(a.ssa, b.ssa, op_name=name), name)


def _collective(
    op: type[task.DimCollectiveOp], x: Value, axis: str | None, dim: int, name: str | None
) -> Value:
    with at_user_line():
        kind = op.name.partition(".")[2]
        program = _program_of(kind, x)
        over = as_axis(axis, program.mesh, kind)
        at = as_dim(dim, len(x.shape), kind)
        index = program.mesh.index(over)
        rules.collective(kind, x.spec, axis=index, dim=at, name=_names(x)[0])
        return _emit(program, op(x.ssa, at, over, op_name=name), name)


def _emit(program: Program, op: task.ComputeOp, name: str | None) -> Value:
    if name is not None:
        as_name(name, op.name.partition(".")[2])
    program.append(op, op.label())
    return Value(program, op.result, name)


def _program_of(what: str, *operands: object) -> Program:
    """The one program that all operands belong to, still open."""
    for operand in operands:
        if not isinstance(operand, Value):
            message = (
                f"{what} takes values of a program, got {operand!r}; a number or tensor has to be"
                f" an input or weight of its own"
            )
            raise ProgramError(message)
    values = [v for v in operands if isinstance(v, Value)]
    program = values[0].program
    for value in values:
        if value.program is not program:
            message = (
                f'{what} mixes a value of program "{program.name}" with one of program'
                f' "{value.program.name}"; a program uses its own values only'
            )
            raise ProgramError(message)
    program.require_open()
    return program


def _names(*values: Value) -> list[str]:
    """How messages call the operands: by the user's names, else by position."""
    positions = ("x",) if len(values) == 1 else ("a", "b")
    return [v.name or at for v, at in zip(values, positions, strict=True)]
