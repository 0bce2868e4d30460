"""IR text to IR with positions, and errors that show one op instead of a whole module.

xDSL's own parser gives an op no location, and its diagnostics print the whole module in generic
form. Both are mended here, for the tools and for whoever parses a dump.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from typing import IO, NoReturn

from xdsl.context import Context
from xdsl.dialects.builtin import FileLineColLoc, ModuleOp, UnknownLoc
from xdsl.ir import IRNode, Operation
from xdsl.parser import Parser
from xdsl.parser.generic_parser import ParserState
from xdsl.printer import Printer
from xdsl.utils.diagnostic import Diagnostic
from xdsl.utils.exceptions import DiagnosticException, ParseError, VerifyException
from xdsl.utils.frontend import Frontend
from xdsl.utils.lexer import Input
from xdsl.utils.mlir_lexer import MLIRLexer

from ditron.errors import InputError
from ditron.ir.dominance import check_dominance
from ditron.ir.locations import file_loc, op_location

_VERIFY_PREFIX = "Operation does not verify: "


class _Lexer(MLIRLexer):
    """xDSL's lexer, but for a string that does not end: its own pattern takes 2^n steps there."""

    _unescaped_characters_regex = re.compile(r'"(?:[^"\\\n\v\f]++|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"')


class LocParser(Parser):
    """A parser that gives every op the position of its text.

    `line_offset` is added to line numbers: where a chunk of a split file starts.
    """

    def __init__(self, ctx: Context, text: str, name: str = "<text>", line_offset: int = 0) -> None:
        super().__init__(ctx, "", name)
        self._parser_state = ParserState(_Lexer(Input(text, name)))
        self._newlines = [-1, *(i for i, c in enumerate(text) if c == "\n")]
        self._line_offset = line_offset

    def parse_operation(self) -> Operation:
        """Parse one op and its regions; attributes' faults get the op's position."""
        start = self.pos
        try:
            op = super().parse_operation()
        except (VerifyException, ValueError) as error:
            # An attribute verifies itself as it is made, in the middle of parsing.
            self.raise_error(str(error), start, self.pos)
        if isinstance(op.location, UnknownLoc):
            line = bisect_right(self._newlines, start - 1)
            column = start - self._newlines[line - 1]
            op.location = file_loc(self.file_name, line + self._line_offset, column)
        return op

    @property
    def file_name(self) -> str:
        return self.lexer.input.name


@dataclass(frozen=True)
class LocFrontend(Frontend):
    """Replaces xDSL's `mlir` frontend: the same text, with positions."""

    name = "mlir"
    no_implicit_module: bool = False
    line_offset: int = 0

    def parse(self, ctx: Context, input: IO[bytes], input_name: str = "<text>") -> ModuleOp:  # noqa: A002
        data = input.read()
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            msg = f"{input_name} is not UTF-8 text: byte {error.start} is 0x{data[error.start]:02x}"
            raise InputError(msg) from error
        parser = LocParser(ctx, text, input_name, self.line_offset)
        return parser.parse_module(not self.no_implicit_module)


def parse_module(ctx: Context, text: str, name: str = "<text>") -> ModuleOp:
    """Parse and verify a module, dominance included.

    Raises:
        ParseError: the text is no IR.
        VerifyException: it is IR, but not valid; the notes name the op (`describe_fault`).
    """
    module = LocParser(ctx, text, name).parse_module()
    verify_module(module)
    return module


def verify_module(module: ModuleOp) -> None:
    """Verify a module, and that every definition comes before its uses.

    Raises:
        VerifyException: with notes that name the one op at fault.
    """
    with located_diagnostics():
        module.verify()
        check_dominance(module)


@contextmanager
def located_diagnostics() -> Generator[None]:
    """Within it, xDSL's diagnostics carry `file:line:col: error: ...` and the one op, as notes."""
    stock = Diagnostic.raise_exception
    Diagnostic.raise_exception = _raise_located
    try:
        yield
    finally:
        Diagnostic.raise_exception = stock


def _raise_located(self: Diagnostic, ir: IRNode, underlying_error: Exception) -> NoReturn:
    op = ir if isinstance(ir, Operation) else next(iter(self.op_messages))
    messages = [m.removeprefix(_VERIFY_PREFIX) for ms in self.op_messages.values() for m in ms]
    text = " ".join("; ".join(messages).split())
    subject = "" if text.startswith(op.name) else f"{op.name}: "
    underlying_error.add_note(f"{position(op)}: error: {subject}{text}")
    underlying_error.add_note(f"  {one_line(op)}")
    raise underlying_error


def position(op: Operation) -> str:
    """`file:line:col` of an op, or of its nearest ancestor that has one."""
    node: Operation | None = op
    while node is not None:
        loc = node.location
        if isinstance(loc, FileLineColLoc) and loc.column.data > 0:
            return f"{loc.filename.data}:{loc.line.data}:{loc.column.data}"
        if not isinstance(loc, UnknownLoc):
            break
        node = node.parent_op()
    return op_location(op)


def one_line(op: Operation) -> str:
    """The op's first line in generic form, which prints even when the op is wrong."""
    out = StringIO()
    Printer(out, print_generic_format=True).print_op(op)
    first, *rest = out.getvalue().splitlines()
    return f"{first} ..." if rest else first


def describe_fault(error: DiagnosticException | ParseError, name: str = "<text>") -> str:
    """`file:line:col: error: ...` and what it is about, from any fault that xDSL raises.

    `name` stands for the file where the fault has no position of its own.
    """
    if isinstance(error, ParseError):
        _, *source = error.span.print_with_context().rstrip().splitlines()
        shown = "\n".join(f"  {line}" for line in source)
        return f"{error.span.get_location()}: error: {error.msg}\n{shown}"
    notes: list[str] = getattr(error, "__notes__", [])
    return "\n".join(notes) if notes else f"{name}: error: {error}"
