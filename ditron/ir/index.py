"""Index expressions inside ops: `%me * 128 + min(%c, 3)` wherever an op takes an index.

An op stores a list of expressions over numbered arguments (`ExprsAttr`) and the SSA values those
numbers stand for. The `Indices` directive prints and parses the two together in infix, in the
manner of MLIR's `affine.load %m[%i + 3]`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ArrayAttr, IndexType, IntAttr
from xdsl.ir import Data, SSAValue
from xdsl.irdl import IRDLOperation, irdl_attr_definition
from xdsl.irdl.declarative_assembly_format import (
    AttributeVariable,
    CustomDirective,
    ParsingState,
    PrintingState,
    VariadicOperandVariable,
    irdl_custom_directive,
)
from xdsl.parser import AttrParser, Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from ditron.plan.expr import (
    CALLS,
    PRECEDENCE,
    Arg,
    Binary,
    Const,
    Expr,
    arguments,
    as_expr,
    binary,
    pieces,
    remap,
    to_text,
)
from ditron.plan.limits import MAX_ELEMENTS

INDEX = IndexType()
_ARGUMENT = re.compile(r"d[0-9]+")


@dataclass(frozen=True)
class Ssa(Expr):
    """An SSA value as a leaf, while IR is being built."""

    value: SSAValue


Index = Expr | SSAValue | int


def as_index(value: Index) -> Expr:
    """An SSA value or an int as an expression."""
    return Ssa(value) if isinstance(value, SSAValue) else as_expr(value)


def number(indices: Sequence[Index]) -> tuple[list[SSAValue], ExprsAttr]:
    """Replace SSA leaves by numbered arguments, each value once."""
    values: list[SSAValue] = []

    def walk(expr: Expr) -> Expr:
        if isinstance(expr, Ssa):
            if expr.value not in values:
                values.append(expr.value)
            return Arg(values.index(expr.value))
        if isinstance(expr, Binary):
            return binary(expr.op, walk(expr.lhs), walk(expr.rhs))
        return expr

    exprs = tuple(walk(as_index(i)) for i in indices)
    return values, ExprsAttr(exprs)


def check_indices(op: IRDLOperation, **clauses: int | None) -> None:
    """Raise unless each clause has that many expressions, over no more arguments than it is given.

    The arguments of a clause `offsets` are the operands `offset_args`, or plain `args`.
    """
    for clause, count in clauses.items():
        exprs: ExprsAttr | None = getattr(op, clause)
        if exprs is None:
            continue
        own = f"{clause.removesuffix('s')}_args"
        args: Sequence[SSAValue] = getattr(op, own if hasattr(op, own) else "args")
        if count is not None and len(exprs.data) != count:
            many = f"{count} index expression{'' if count == 1 else 's'}"
            raise VerifyException(f"{op.name}: `{clause}` takes {many}, got {len(exprs.data)}")
        if any(index >= len(args) for index in _used(exprs.data)):
            few = f"more arguments than the {len(args)} given"
            raise VerifyException(f"{op.name}: `{clause}` needs {few}")


def leaves(args: Sequence[SSAValue], exprs: ExprsAttr) -> list[Expr]:
    """The inverse of `number`: expressions over SSA leaves."""
    ssa = [Ssa(a) for a in args]
    return [remap(e, ssa) for e in exprs.data]


@irdl_attr_definition
class ExprsAttr(Data[tuple[Expr, ...]]):
    """Expressions over arguments `d0`, `d1`, ..."""

    name = "device.exprs"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[Expr, ...]:
        def atom() -> Expr | None:
            at = parser.pos
            name = parser.parse_optional_identifier()
            if name is None:
                return None
            if not _ARGUMENT.fullmatch(name):
                parser.raise_error(f"expected an argument such as d0, got {name}", at, parser.pos)
            return Arg(int(name[1:]))

        with parser.in_angle_brackets():
            if parser.parse_optional_keyword("none") is not None:
                return ()
            return tuple(
                parser.parse_comma_separated_list(
                    parser.Delimiter.NONE, lambda: parse_expr(parser, atom)
                )
            )

    def print_parameter(self, printer: Printer) -> None:
        names = [f"d{i}" for i in range(1 + max(_used(self.data), default=-1))]
        with printer.in_angle_brackets():
            printer.print_string(", ".join(to_text(e, names) for e in self.data) or "none")


def _used(exprs: Sequence[Expr]) -> set[int]:
    return set[int]().union(*map(arguments, exprs))


def parse_expr(parser: AttrParser, atom: Callable[[], Expr | None], level: int = 0) -> Expr:
    """An infix expression by precedence climbing; `atom` parses an argument."""
    lhs = _parse_operand(parser, atom)
    while True:
        op = _parse_operator(parser, level)
        if op is None:
            return lhs
        lhs = binary(op, lhs, parse_expr(parser, atom, PRECEDENCE[op] + 1))


def _parse_operator(parser: AttrParser, level: int) -> str | None:
    for sign in ("+", "-", "*"):
        if PRECEDENCE[sign] >= level and parser.parse_optional_punctuation(sign) is not None:
            return sign
    for op, precedence in PRECEDENCE.items():
        if op.isalpha() and precedence >= level and parser.parse_optional_keyword(op) is not None:
            return op
    return None


def _parse_operand(parser: AttrParser, atom: Callable[[], Expr | None]) -> Expr:
    for call in CALLS:
        if parser.parse_optional_keyword(call) is not None:
            with parser.in_parens():
                lhs = parse_expr(parser, atom)
                parser.parse_punctuation(",")
                return binary(call, lhs, parse_expr(parser, atom))
    if parser.parse_optional_punctuation("(") is not None:
        inner = parse_expr(parser, atom)
        parser.parse_punctuation(")")
        return inner
    number_ = parser.parse_optional_integer(allow_boolean=False)
    if number_ is not None:
        if abs(number_) > MAX_ELEMENTS:
            parser.raise_error("an integer of an index expression is at most 2^48")
        return Const(number_)
    found = atom()
    if found is None:
        parser.raise_error("expected an index expression")
    return found


@irdl_custom_directive
class Indices(CustomDirective):
    """`custom<Indices>($args, $exprs)`: a comma-separated list of index expressions."""

    args: VariadicOperandVariable
    exprs: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        operands: list[UnresolvedOperand] = []
        seen: dict[str, int] = {}

        def atom() -> Expr | None:
            operand = parser.parse_optional_unresolved_operand()
            if operand is None:
                return None
            key = f"{operand.span.text}#{operand.index}"
            if key not in seen:
                seen[key] = len(operands)
                operands.append(operand)
            return Arg(seen[key])

        exprs = parser.parse_comma_separated_list(
            parser.Delimiter.NONE, lambda: parse_expr(parser, atom)
        )
        self.args.set(state, operands)
        self.exprs.set(state, ExprsAttr(tuple(exprs)))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        state.print_whitespace(printer)
        exprs = self.exprs.get(op)
        assert isinstance(exprs, ExprsAttr)
        print_exprs(printer, self.args.get(op), exprs)

    def set_empty(self, state: ParsingState) -> None:
        self.args.set(state, [])

    def is_present(self, op: IRDLOperation) -> bool:
        exprs = self.exprs.get(op)
        return isinstance(exprs, ExprsAttr) and bool(exprs.data)

    def is_anchorable(self) -> bool:
        return True


def print_exprs(printer: Printer, args: Sequence[SSAValue], exprs: ExprsAttr) -> None:
    """Infix text with the values' own names."""
    for i, expr in enumerate(exprs.data):
        if i:
            printer.print_string(", ")
        for piece in pieces(expr):
            if isinstance(piece, str):
                printer.print_string(piece)
            else:
                printer.print_ssa_value(args[piece])


@irdl_custom_directive
class Dims(CustomDirective):
    """`custom<Dims>($attr)`: a list of numbers, `0, 0, 1`."""

    attr: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        numbers = parser.parse_comma_separated_list(
            parser.Delimiter.NONE, lambda: parser.parse_integer(allow_negative=False)
        )
        self.attr.set(state, ArrayAttr(map(IntAttr, numbers)))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        state.print_whitespace(printer)
        attr = self.attr.get(op)
        assert isa(attr, ArrayAttr[IntAttr])
        printer.print_string(", ".join(str(n.data) for n in attr))

    def is_present(self, op: IRDLOperation) -> bool:
        return self.attr.get(op) is not None

    def is_anchorable(self) -> bool:
        return True
