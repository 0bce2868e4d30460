"""Index expressions: what they fold to, how they print and parse, what they are worth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Union

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.parser import Parser

from ditron.errors import PlanError
from ditron.ir.index import ExprsAttr
from ditron.plan.expr import (
    OPERATORS,
    PRECEDENCE,
    Arg,
    Binary,
    Const,
    Expr,
    arguments,
    binary,
    clip,
    evaluate,
    maximum,
    minimum,
    remap,
    to_text,
)

X, Y, Z = Arg(0), Arg(1), Arg(2)
NAMES = ("%x", "%y", "%z")


def value(expr: Expr, *args: int) -> int:
    return int(evaluate(expr, [np.array(a) for a in args]))


# What an operator means, on Python's integers.
MEANING: dict[str, Callable[[int, int], int]] = {
    "or": lambda a, b: int(bool(a) or bool(b)),
    "and": lambda a, b: int(bool(a) and bool(b)),
    "eq": lambda a, b: int(a == b),
    "ne": lambda a, b: int(a != b),
    "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b),
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "xor": lambda a, b: a ^ b,
    "min": min,
    "max": max,
}

Tree = Union[int, str, tuple[str, "Tree", "Tree"]]  # noqa: UP007 - it names itself


def trees() -> st.SearchStrategy[Tree]:
    """An integer, an argument's name, or (operator, left, right); divisors are constants, not 0."""
    leaf = st.integers(-9, 9) | st.sampled_from(NAMES)
    divisor = st.integers(1, 5) | st.integers(-5, -1)

    def grow(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        divided = st.tuples(st.sampled_from(["floordiv", "mod"]), inner, divisor)
        others = sorted(set(OPERATORS) - {"floordiv", "mod"})
        return divided | st.tuples(st.sampled_from(others), inner, inner)

    return st.recursive(leaf, grow, max_leaves=8)


def build(tree: Tree) -> Expr:
    if isinstance(tree, int):
        return Const(tree)
    if isinstance(tree, str):
        return Arg(NAMES.index(tree))
    op, a, b = tree
    return binary(op, build(a), build(b))


def meaning(tree: Tree, args: tuple[int, ...]) -> int:
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return args[NAMES.index(tree)]
    op, a, b = tree
    return MEANING[op](meaning(a, args), meaning(b, args))


def parsed(text: str) -> Expr:
    """The expression that IR text says, over d0, d1, ..."""
    attribute = Parser(_context(), f"#device.exprs<{text}>").parse_attribute()
    assert isinstance(attribute, ExprsAttr)
    (expr,) = attribute.data
    return expr


def _context() -> Context:
    context = Context()
    context.load_attr_or_type(ExprsAttr)
    return context


def test_every_operator_has_a_meaning_and_a_precedence():
    assert set(MEANING) == set(OPERATORS) == set(PRECEDENCE) | {"min", "max"}


@given(trees(), st.tuples(*[st.integers(-20, 20)] * 3))
@settings(max_examples=300, deadline=None)
def test_folding_keeps_the_value(tree: Tree, args: tuple[int, ...]):
    assert value(build(tree), *args) == meaning(tree, args)


@given(trees())
@settings(max_examples=300, deadline=None)
def test_text_parses_back(tree: Tree):
    expr = build(tree)
    assert parsed(to_text(expr, ["d0", "d1", "d2"])) == expr
    assert str(ExprsAttr((expr, X))) == f"#device.exprs<{to_text(expr, ['d0', 'd1', 'd2'])}, d0>"


@given(trees(), st.tuples(*[st.integers(-20, 20)] * 3))
@settings(max_examples=100, deadline=None)
def test_remap_puts_values_in(tree: Tree, args: tuple[int, ...]):
    expr = build(tree)
    assert remap(expr, [X, Y, Z]) == expr
    whole = remap(expr, [Const(a) for a in args])
    assert whole == Const(meaning(tree, args))
    assert arguments(expr) <= {0, 1, 2}


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (X + 0, "%x"),
        (0 + X, "%x"),
        (X - 0, "%x"),
        (X * 1, "%x"),
        (1 * X, "%x"),
        (X * 0, "0"),
        (X // 1, "%x"),
        (X % 1, "0"),
        (X + -3, "%x - 3"),
        (-3 + X, "%x - 3"),
        (X - -3, "%x + 3"),
        (Const(7) // -2, "-4"),
        (Const(-7) % 4, "1"),
        (Const(-7) % -4, "-3"),
        (minimum(3, maximum(X, 0)), "min(3, max(%x, 0))"),
        (clip(X, 0, 8), "min(max(%x, 0), 8)"),
    ],
)
def test_fold(expr: Expr, text: str):
    assert to_text(expr, NAMES) == text


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        ((X + Y) * Z, "(%x + %y) * %z"),
        (X + Y * Z, "%x + %y * %z"),
        (X - (Y - Z), "%x - (%y - %z)"),
        ((X - Y) - Z, "%x - %y - %z"),
        (X - (Y + Z), "%x - (%y + %z)"),
        ((X * 4) // 3, "%x * 4 floordiv 3"),
        (2 * (X * 4), "%x * 8"),
        ((X * 4) // 2, "%x * 2"),
        (X * (Y // 4), "%x * (%y floordiv 4)"),
        ((X + Y) % 4, "(%x + %y) mod 4"),
        (0 - X, "0 - %x"),
        (X * -2, "%x * -2"),
        (binary("eq", X % 2, Y), "%x mod 2 eq %y"),
        (binary("and", binary("lt", X, Y), binary("or", X, Y)), "%x lt %y and (%x or %y)"),
        (binary("eq", X, binary("eq", Y, Z)), "%x eq (%y eq %z)"),
        (binary("xor", X, 1), "%x xor 1"),
        (minimum(X + Y, 4) * 2, "min(%x + %y, 4) * 2"),
    ],
)
def test_as_few_parentheses_as_the_precedences_allow(expr: Expr, text: str):
    assert to_text(expr, NAMES) == text


@pytest.mark.parametrize(("a", "b"), [(7, 4), (-7, 4), (7, -4), (-7, -4), (-8, 4), (0, 3)])
def test_division_rounds_down(a: int, b: int):
    quotient, rest = value(X // b, a), value(X % b, a)
    assert quotient == a // b
    assert rest == a % b
    assert quotient * b + rest == a


@pytest.mark.parametrize("op", ["floordiv", "mod"])
def test_division_by_zero(op: str):
    with pytest.raises(PlanError, match="an index expression divides by zero"):
        binary(op, 3, 0)
    with pytest.raises(PlanError, match="an index expression divides by zero"):
        evaluate(binary(op, X, Y), [np.arange(3), np.arange(3)])


def test_arrays_broadcast():
    rank, tile = np.arange(3).reshape(-1, 1), np.arange(4).reshape(1, -1)
    got = evaluate((X + Y + 1) % 3, [rank, tile])
    assert got.tolist() == [[(r + t + 1) % 3 for t in range(4)] for r in range(3)]
    assert evaluate(binary("lt", X, 2), [np.arange(4)]).tolist() == [1, 1, 0, 0]


def test_expressions_are_values():
    assert Binary("+", Arg(0), Const(1)) == X + 1
    assert len({X + 1, Arg(0) + 1, X + 2}) == 2
    assert arguments(minimum(X, 3) + Z) == {0, 2}


def test_an_operand_must_be_an_expression():
    with pytest.raises(TypeError):
        evaluate(Expr(), [])
    with pytest.raises(TypeError):
        to_text(Expr(), [])
