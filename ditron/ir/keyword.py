"""Enumerations printed as bare keywords: `engine copy`, `after put`."""

from __future__ import annotations

from collections.abc import Collection

from xdsl.dialects.builtin import StringAttr
from xdsl.irdl import IRDLOperation
from xdsl.irdl.declarative_assembly_format import (
    AttributeVariable,
    CustomDirective,
    ParsingState,
    PrintingState,
    irdl_custom_directive,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException


@irdl_custom_directive
class Keyword(CustomDirective):
    """`custom<Keyword>($attr)`: a string attribute written without quotes."""

    attr: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        self.attr.set(state, StringAttr(parser.parse_identifier()))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        state.print_whitespace(printer)
        value = self.attr.get(op)
        assert isinstance(value, StringAttr)
        printer.print_string(value.data)


def check_keyword(op: IRDLOperation, what: str, value: StringAttr, known: Collection[str]) -> None:
    """Raise unless `value` is one of `known`."""
    if value.data not in known:
        raise VerifyException(f"{op.name}: {what} is one of {', '.join(known)}, got {value.data}")
