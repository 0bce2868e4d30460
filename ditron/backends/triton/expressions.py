"""Index expressions as Triton code.

Triton divides integers like C, towards zero, while `plan/expr.py` rounds down. Every expression is
a function of the rank and of grid coordinates whose ranges are known, so its own range is, too: a
dividend that may be negative is shifted by a multiple of the divisor first, and what needs no
division loses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Protocol

from xdsl.ir import SSAValue

from ditron.errors import PlanError
from ditron.ir.index import Ssa
from ditron.plan.expr import Binary, Const, Expr

ATOM = 9
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<="}
LOGIC = {"and": "&", "or": "|"}
# How tightly Python binds what is printed: comparisons least, so they go in parentheses.
LEVELS = {"|": 2, "^": 3, "&": 4, "+": 5, "-": 5, "*": 6, "//": 6, "%": 6}
COMPARISON_LEVEL = 1


@dataclass(frozen=True)
class Range:
    """All integers from `low` to `high`, both included."""

    low: int
    high: int

    @property
    def single(self) -> bool:
        return self.low == self.high


ZERO = Range(0, 0)


class Values(Protocol):
    """The variables that hold index values."""

    def range(self, value: SSAValue) -> Range:
        """What it may be."""
        ...

    def use(self, value: SSAValue) -> str:
        """The name of its variable, which from now on has to be there."""
        ...


def range_of(expr: Expr, names: Values) -> Range:
    """What an expression may be."""
    match expr:
        case Const(value):
            return Range(value, value)
        case Ssa(value=value):
            return names.range(value)
        case Binary(op, lhs, rhs):
            return _combine(op, range_of(lhs, names), range_of(rhs, names))
        case _:
            raise TypeError(expr)


def _combine(op: str, a: Range, b: Range) -> Range:  # noqa: PLR0911 - one an operator
    match op:
        case "+":
            return Range(a.low + b.low, a.high + b.high)
        case "-":
            return Range(a.low - b.high, a.high - b.low)
        case "*":
            ends = [x * y for x, y in product((a.low, a.high), (b.low, b.high))]
            return Range(min(ends), max(ends))
        case "min":
            return Range(min(a.low, b.low), min(a.high, b.high))
        case "max":
            return Range(max(a.low, b.low), max(a.high, b.high))
        case "floordiv":
            _check_divisor(b)
            ends = [x // y for x, y in product((a.low, a.high), (b.low, b.high))]
            return Range(min(ends), max(ends))
        case "mod":
            _check_divisor(b)
            inside = b.single and a.low // b.low == a.high // b.low
            return Range(a.low % b.low, a.high % b.low) if inside else Range(0, b.high - 1)
        case "xor" if min(a.low, b.low) >= 0:
            return Range(0, (1 << max(a.high, b.high).bit_length()) - 1)
        case "xor":
            raise PlanError("xor of what may be negative has no Triton code")
        case _:
            return Range(0, 1)


def _check_divisor(divisor: Range) -> None:
    if divisor.low < 1:
        raise PlanError(f"Triton code divides by positive numbers only, got {divisor.low}")


def number(expr: Expr, names: Values) -> str:
    """The value of an expression, as Triton code."""
    return _number(expr, names)[0]


def operand(expr: Expr, names: Values, level: int = ATOM) -> str:
    """The same in parentheses unless it binds as tightly as `level`; by default, as an atom."""
    text, own = _number(expr, names)
    return text if own >= level else f"({text})"


def condition(expr: Expr, names: Values) -> str:
    """Whether an expression is not 0, as Triton code."""
    return _condition(expr, names)[0]


def _number(expr: Expr, names: Values) -> tuple[str, int]:  # noqa: C901, PLR0911 - one a form
    """Text and how tightly it binds."""
    known = range_of(expr, names)
    if known.single:
        return str(known.low), ATOM if known.low >= 0 else LEVELS["*"]
    match expr:
        case Ssa(value=value):
            return names.use(value), ATOM
        case Binary(("min" | "max") as op, lhs, rhs):
            return f"tl.{op}imum({number(lhs, names)}, {number(rhs, names)})", ATOM
        case Binary("floordiv", lhs, rhs):
            return _floordiv(lhs, rhs, names)
        case Binary("mod", lhs, rhs):
            return _mod(lhs, rhs, names)
        case Binary(("+" | "-"), lhs, rhs) if range_of(rhs, names) == ZERO:
            return _number(lhs, names)
        case Binary("+", lhs, rhs) if range_of(lhs, names) == ZERO:
            return _number(rhs, names)
        case Binary(("+" | "-" | "*") as op, lhs, rhs):
            return _infix(op, operand(lhs, names, LEVELS[op]), operand(rhs, names, LEVELS[op] + 1))
        case Binary("xor", lhs, rhs):
            return _infix("^", operand(lhs, names, 3), operand(rhs, names, 4))
        case Binary():
            return f"tl.where({condition(expr, names)}, 1, 0)", ATOM
        case _:
            raise TypeError(expr)


def _infix(op: str, lhs: str, rhs: str) -> tuple[str, int]:
    return f"{lhs} {op} {rhs}", LEVELS[op]


def _floordiv(lhs: Expr, rhs: Expr, names: Values) -> tuple[str, int]:
    low = range_of(lhs, names).low
    if low >= 0:
        return _infix("//", operand(lhs, names, LEVELS["//"]), operand(rhs, names))
    divisor = _constant_divisor(rhs, names)
    quotients = -(low // divisor)
    shifted = f"({operand(lhs, names, LEVELS['+'])} + {quotients * divisor})"
    return f"{shifted} // {divisor} - {quotients}", LEVELS["-"]


def _mod(lhs: Expr, rhs: Expr, names: Values) -> tuple[str, int]:
    inside = range_of(lhs, names)
    if inside.low >= 0:
        if inside.high < range_of(rhs, names).low:
            return _number(lhs, names)
        return _infix("%", operand(lhs, names, LEVELS["%"]), operand(rhs, names))
    divisor = _constant_divisor(rhs, names)
    shift = -(inside.low // divisor) * divisor
    return f"({operand(lhs, names, LEVELS['+'])} + {shift}) % {divisor}", LEVELS["%"]


def _constant_divisor(expr: Expr, names: Values) -> int:
    divisor = range_of(expr, names)
    if not divisor.single:
        raise PlanError("a negative number divided by what is no constant has no Triton code")
    return divisor.low


def _condition(expr: Expr, names: Values) -> tuple[str, int]:
    match expr:
        case Binary(op, lhs, rhs) if op in COMPARISONS:
            sides = (operand(side, names, COMPARISON_LEVEL + 1) for side in (lhs, rhs))
            return f" {COMPARISONS[op]} ".join(sides), COMPARISON_LEVEL
        case Binary(op, lhs, rhs) if op in LOGIC:
            sides = (_condition(side, names) for side in (lhs, rhs))
            sign = LOGIC[op]
            return f" {sign} ".join(
                text if level >= LEVELS[sign] else f"({text})" for text, level in sides
            ), LEVELS[sign]
        case _:
            return f"{operand(expr, names, COMPARISON_LEVEL + 1)} != 0", COMPARISON_LEVEL
