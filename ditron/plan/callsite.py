"""Which line of the user's Python called into ditron."""

from __future__ import annotations

import sys
from types import FrameType

_SKIPPED = frozenset({"ditron", "xdsl", "contextlib"})


def call_site() -> tuple[str, int] | None:
    """File and line of the innermost frame outside ditron, xDSL and contextlib (about 1 us)."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _SKIPPED:
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None


def user_line() -> str | None:
    """The same as `file:line`, the form that errors carry in `where`."""
    site = call_site()
    return f"{site[0]}:{site[1]}" if site else None
