"""What the command line shows: results on stdout, progress on stderr."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from statistics import median

from rich.console import Console
from xdsl.dialects.builtin import ModuleOp

from ditron.ir import task
from ditron.ir.attrs import ChoiceAttr
from ditron.ir.locations import op_location

PROGRESS_AFTER_S = 1.0
"""Work shorter than this shows no progress."""

PIPE_WIDTH = 120
"""Columns where standard output is no terminal."""

NAMES_SHOWN = 3
"""Of ops that share a line of decisions."""


def console() -> Console:
    """Standard output: plain text unless it is a terminal."""
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return Console(width=width, highlight=False, soft_wrap=True)


@contextmanager
def progress(what: str) -> Generator[None]:
    """Show on stderr what is going on, once it takes over a second, and only on a terminal."""
    screen = Console(stderr=True)
    if not screen.is_terminal:
        yield
        return
    status = screen.status(what)
    timer = threading.Timer(PROGRESS_AFTER_S, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


@dataclass(frozen=True)
class Decision:
    """What was chosen for one op of the program."""

    op: str
    name: str
    choice: str
    where: str


def decisions(source: ModuleOp, decided: ModuleOp) -> list[Decision]:
    """Every op that had a choice, in program order.

    Args:
        source: the program as written, with the user's lines.
        decided: a later stage of it, with choices; parsed from text, its positions are the text's.
    """
    lines: dict[tuple[str, str], list[str]] = {}
    for op in _compute_ops(source):
        lines.setdefault((op.name, op.label()), []).append(op_location(op))
    found: list[Decision] = []
    for op in _compute_ops(decided):
        known = lines.get((op.name, op.label()), [])
        where = known.pop(0) if known else ""
        if op.choice is not None:
            found.append(Decision(op.name, op.label(), _describe(op.choice), where))
    return found


def decision_rows(found: Iterable[Decision]) -> list[tuple[str, str, str]]:
    """(names, choice, line) of decisions; ops of one line that chose the same share a row.

    Layers do not count: `layers.*.qkv` is one name.
    """
    names: dict[tuple[str, str], dict[str, None]] = {}
    for decision in found:
        name = re.sub(r"(?<=\.)\d+(?=\.)", "*", decision.name)
        names.setdefault((decision.choice, short(decision.where)), {})[name] = None
    return [(_some(list(alike)), *key) for key, alike in names.items()]


def _some(names: list[str]) -> str:
    more = len(names) - NAMES_SHOWN
    if more <= 1:
        return ", ".join(names)
    return f"{', '.join(names[:NAMES_SHOWN])} and {more} more"


def _compute_ops(module: ModuleOp) -> Iterator[task.ComputeOp]:
    return (op for op in module.walk() if isinstance(op, task.ComputeOp))


def _describe(choice: ChoiceAttr) -> str:
    words = [choice.algorithm, choice.transfer]
    if choice.algorithm or choice.transfer:
        words.append(f"chunks of {choice.chunk} rows" if choice.chunk else "whole shards")
    if choice.tile:
        words.append(f"tiles of {'x'.join(map(str, choice.tile))}")
    return ", ".join(filter(None, words))


def columns(rows: Iterable[Iterable[object]], headers: Iterable[str] = ()) -> str:
    """Rows as aligned text; a cell may have several lines."""
    cells = [[str(cell).splitlines() or [""] for cell in row] for row in rows]
    if names := list(headers):
        cells.insert(0, [[name] for name in names])
    widths = [
        max(len(line) for cell in column for line in cell) for column in zip(*cells, strict=True)
    ]
    lines: list[str] = []
    for row in cells:
        for parts in zip_longest(*row, fillvalue=""):
            padded = (part.ljust(width) for part, width in zip(parts, widths, strict=True))
            lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def short(where: str) -> str:
    """A `file:line` with its path as seen from the working directory, if it is below that."""
    return where.removeprefix(f"{Path.cwd()}/")


def launch_times(seconds: list[float]) -> str:
    """`3 launches: 1.20 ms median, 1.10 to 1.40`."""
    low, middle, high = (1e3 * x for x in (min(seconds), median(seconds), max(seconds)))
    return f"{len(seconds)} launches: {middle:.2f} ms median, {low:.2f} to {high:.2f}"
