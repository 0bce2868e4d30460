"""Index expressions: what a grid computes from the rank and its coordinates.

One form serves every layer: a `device.index` op holds an `Expr` over its operands, `expand`
evaluates it on numpy arrays (a whole grid at once), passes build and fit it, backends print it.
Integers only; comparisons give 0 or 1. Division and `mod` round towards minus infinity, as numpy
and MLIR's affine maps do and as C does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ditron.errors import PlanError
from ditron.plan.limits import MAX_ELEMENTS

Values = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Expr:
    """An integer expression over numbered arguments; operators build larger ones."""

    def __add__(self, other: Expr | int) -> Expr:
        return binary("+", self, other)

    def __radd__(self, other: int) -> Expr:
        return binary("+", other, self)

    def __sub__(self, other: Expr | int) -> Expr:
        return binary("-", self, other)

    def __rsub__(self, other: int) -> Expr:
        return binary("-", other, self)

    def __mul__(self, other: Expr | int) -> Expr:
        return binary("*", self, other)

    def __rmul__(self, other: int) -> Expr:
        return binary("*", other, self)

    def __floordiv__(self, other: Expr | int) -> Expr:
        return binary("floordiv", self, other)

    def __mod__(self, other: Expr | int) -> Expr:
        return binary("mod", self, other)


@dataclass(frozen=True)
class Const(Expr):
    """An integer."""

    value: int


@dataclass(frozen=True)
class Arg(Expr):
    """Argument number `index`."""

    index: int


@dataclass(frozen=True)
class Binary(Expr):
    """`lhs op rhs`; see `OPERATORS`."""

    op: str
    lhs: Expr
    rhs: Expr


def _divisor(value: Values) -> Values:
    if (value == 0).any():
        raise PlanError("an index expression divides by zero")
    return value


OPERATORS: dict[str, Callable[[Values, Values], Values]] = {
    "or": lambda a, b: ((a != 0) | (b != 0)).astype(np.int64),
    "and": lambda a, b: ((a != 0) & (b != 0)).astype(np.int64),
    "eq": lambda a, b: (a == b).astype(np.int64),
    "ne": lambda a, b: (a != b).astype(np.int64),
    "lt": lambda a, b: (a < b).astype(np.int64),
    "le": lambda a, b: (a <= b).astype(np.int64),
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "floordiv": lambda a, b: np.floor_divide(a, _divisor(b)),
    "mod": lambda a, b: np.mod(a, _divisor(b)),
    "xor": np.bitwise_xor,
    "min": np.minimum,
    "max": np.maximum,
}

# How tightly an infix operator binds; `min` and `max` are written as calls.
PRECEDENCE = {
    "or": 1,
    "and": 2,
    "eq": 3,
    "ne": 3,
    "lt": 3,
    "le": 3,
    "+": 4,
    "-": 4,
    "*": 5,
    "floordiv": 5,
    "mod": 5,
    "xor": 5,
}
CALLS = ("min", "max")


def as_expr(value: Expr | int) -> Expr:
    """An int as a constant."""
    return value if isinstance(value, Expr) else Const(value)


def binary(op: str, lhs: Expr | int, rhs: Expr | int) -> Expr:
    """`lhs op rhs`, folded where that needs no algebra."""
    a, b = as_expr(lhs), as_expr(rhs)
    if isinstance(a, Const) and isinstance(b, Const):
        return Const(int(OPERATORS[op](np.array(a.value), np.array(b.value))))
    if op in ("+", "*") and isinstance(a, Const):
        return _with_constant(op, b, a.value, Binary(op, a, b))
    return (
        _with_constant(op, a, b.value, Binary(op, a, b))
        if isinstance(b, Const)
        else Binary(op, a, b)
    )


def _with_constant(op: str, a: Expr, value: int, plain: Expr) -> Expr:
    """`a op value`, simpler where the value is 0, 1 or negative; else `plain`."""
    match op, value:
        case (("+" | "-"), 0) | (("*" | "floordiv"), 1):
            return a
        case ("*", 0) | ("mod", 1):
            return Const(0)
        case (("+" | "-"), _) if value < 0:
            return Binary("-" if op == "+" else "+", a, Const(-value))
        case ("*", _) if isinstance(a, Binary) and a.op == "*" and isinstance(a.rhs, Const):
            return binary("*", a.lhs, a.rhs.value * value)
        case ("floordiv", _) if isinstance(a, Binary) and a.op == "*":
            return _divided(a, value, plain)
        case _:
            return plain


def _divided(product: Binary, by: int, plain: Expr) -> Expr:
    """A product divided by a number that goes into its constant."""
    match product.rhs:
        case Const(factor) if by and factor % by == 0:
            return binary("*", product.lhs, factor // by)
        case _:
            return plain


def minimum(a: Expr | int, b: Expr | int) -> Expr:
    """min(a, b)."""
    return binary("min", a, b)


def maximum(a: Expr | int, b: Expr | int) -> Expr:
    """max(a, b)."""
    return binary("max", a, b)


def clip(value: Expr | int, low: int, high: int) -> Expr:
    """`value` held between `low` and `high`."""
    return minimum(maximum(value, low), high)


def evaluate(expr: Expr, args: Sequence[Values]) -> Values:
    """The value of `expr`, elementwise with numpy broadcasting.

    Raises:
        PlanError: a division by zero, or a number that is too large.
    """
    match expr:
        case Const(value):
            if abs(value) > MAX_ELEMENTS:
                raise PlanError(f"an index expression has {value}, beyond 2^48")
            return np.asarray(value, dtype=np.int64)
        case Arg(index):
            return args[index]
        case Binary(op, lhs, rhs):
            return OPERATORS[op](evaluate(lhs, args), evaluate(rhs, args))
        case _:
            raise TypeError(expr)


def to_text(expr: Expr, names: Sequence[str]) -> str:
    """Infix text, with as few parentheses as the precedences allow."""
    return "".join(p if isinstance(p, str) else names[p] for p in pieces(expr))


def pieces(expr: Expr, outer: int = 0) -> Iterator[str | int]:
    """Infix text in pieces: strings, and the numbers of arguments."""
    match expr:
        case Const(value):
            yield str(value)
        case Arg(index):
            yield index
        case Binary(op, lhs, rhs) if op in CALLS:
            yield from (f"{op}(", *pieces(lhs), ", ", *pieces(rhs), ")")
        case Binary(op, lhs, rhs):
            level = PRECEDENCE[op]
            inner = (*pieces(lhs, level), f" {op} ", *pieces(rhs, level + 1))
            yield from ("(", *inner, ")") if level < outer else inner
        case _:
            raise TypeError(expr)


def arguments(expr: Expr) -> set[int]:
    """The argument numbers that occur."""
    match expr:
        case Arg(index):
            return {index}
        case Binary(_, lhs, rhs):
            return arguments(lhs) | arguments(rhs)
        case _:
            return set()


def remap(expr: Expr, new: Sequence[Expr]) -> Expr:
    """`expr` with argument i replaced by `new[i]`."""
    match expr:
        case Arg(index):
            return new[index]
        case Binary(op, lhs, rhs):
            return binary(op, remap(lhs, new), remap(rhs, new))
        case _:
            return expr
