"""Source locations: from the user's Python line into IR, and from IR into messages."""

from __future__ import annotations

from functools import lru_cache
from typing import cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    CallSiteLoc,
    FileLineColLoc,
    FusedLoc,
    IntAttr,
    LocationAttr,
    NameLoc,
    StringAttr,
    UnknownLoc,
)
from xdsl.ir import Attribute, Operation

from ditron.plan.callsite import call_site

UNKNOWN = "<unknown>"


@lru_cache(maxsize=65536)
def file_loc(filename: str, line: int, col: int = 0) -> FileLineColLoc:
    """A location in a file; shared, since attributes are costly to make."""
    return FileLineColLoc(StringAttr(filename), IntAttr(line), IntAttr(col))


def caller_loc() -> LocationAttr:
    """The line of user code that called into ditron."""
    site = call_site()
    return file_loc(*site) if site else UnknownLoc()


def describe(loc: Attribute) -> str:
    """`file:line`, or `<unknown>`."""
    match loc:
        case FileLineColLoc():
            return f"{loc.filename.data}:{loc.line.data}"
        case CallSiteLoc():
            return f"{describe(loc.callee)} (called at {describe(loc.caller)})"
        case NameLoc():
            return describe(loc.location) if loc.location else loc.desc.data
        case FusedLoc():
            parts = cast("ArrayAttr[Attribute]", loc.locations)
            return " + ".join(describe(part) for part in parts.data)
        case _:
            return UNKNOWN


def op_location(op: Operation) -> str:
    """`file:line` of an op, else of its nearest ancestor that has one."""
    at: Operation | None = op
    while at is not None:
        if not isinstance(at.location, UnknownLoc):
            return describe(at.location)
        at = at.parent_op()
    return UNKNOWN
