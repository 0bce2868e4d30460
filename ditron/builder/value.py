"""Values of a program and their operators: matmul, functions of elements, casts."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from ditron.builder.arguments import as_name, at_user_line
from ditron.errors import ProgramError
from ditron.ir import task
from ditron.ir.task_program import CommonArgs
from ditron.plan.callsite import user_line
from ditron.plan.dtypes import DTYPES, DType, as_dtype
from ditron.plan.placement import Placements

if TYPE_CHECKING:
    import torch

    from ditron.builder.task import Program


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


def program_of(what: str, *operands: object) -> Program:
    """The one program that all operands belong to, still open.

    Raises:
        ProgramError: something that is no value, or values of several programs.
    """
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


def admit(what: str, name: str | None, **operands: Value) -> CommonArgs:
    """Check an op's operands and name before it is made.

    Args:
        what: the op in messages.
        name: the user's name for it.
        operands: by what messages call those that the user gave no name.

    Raises:
        ProgramError: they cannot be.
    """
    program_of(what, *operands.values())
    if name is not None:
        as_name(name, what)
    return {"op_name": name, "names": [v.name or at for at, v in operands.items()]}


def as_place(start: int | Value, what: str) -> tuple[int, SSAValue | None]:
    """Offset and run-time number of where something begins.

    Raises:
        ProgramError: it is neither an integer nor a value.
    """
    if isinstance(start, Value):
        return 0, start.ssa
    try:
        return operator.index(start), None
    except TypeError:
        message = f"{what} is an integer or a scalar of the program's, got {start!r}"
        raise ProgramError(message) from None


def emit(like: Value, op: task.ComputeOp) -> Value:
    """Append an op to the program of one of its operands."""
    like.program.append(op, op.label())
    return Value(like.program, op.result, op.op_name.data if op.op_name else None)


@at_user_line()
def matmul(a: Value, b: Value, *, transpose_b: bool = False, name: str | None = None) -> Value:
    """`a @ b` accumulated in float32: a [..., M, K], b [..., K, N], [..., N, K] if `transpose_b`.

    Leading dimensions agree, or b has none. Placements: (R, R) -> R; (S(M), R) -> S(M); (R, S(N))
    -> S(N); (S(K), S(K)) -> P; one P beside R -> P; leading dimensions as in pointwise ops.
    """
    args = admit("matmul", name, a=a, b=b)
    return emit(a, task.MatmulOp(a.ssa, b.ssa, transpose_b=transpose_b, **args))


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


@at_user_line()
def cast(x: Value, dtype: DType | torch.dtype, *, name: str | None = None) -> Value:
    """The same elements in another dtype; nothing is ever cast silently."""
    args = admit("cast", name, x=x)
    return emit(x, task.CastOp(x.ssa, as_dtype(dtype).name, **args))


@at_user_line()
def _unary(op: type[task.UnaryOp], x: Value, name: str | None) -> Value:
    args = admit(op.function(), name, x=x)
    return emit(x, op(x.ssa, **args))


@at_user_line()
def _binary(op: type[task.BinaryOp], a: Value, b: Value, name: str | None) -> Value:
    args = admit(op.function(), name, a=a, b=b)
    return emit(a, op(a.ssa, b.ssa, **args))
