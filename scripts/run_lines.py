"""The RUN lines of a golden IR test: what lit would hand to a shell, as plain data.

The little of sh that golden tests use: words and quotes, `|`, `2>&1`, lit's `not`, and `%s`.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

RUN = re.compile(r"^\s*(?://|#)\s*RUN:\s?(.*?)\s*$")


@dataclass(frozen=True)
class Command:
    """One program of a pipe. `negated`: it must fail (`not`); `merged`: stderr joins stdout."""

    program: str
    arguments: tuple[str, ...]
    negated: bool = False
    merged: bool = False


@dataclass(frozen=True)
class RunLine:
    """A pipe of commands, and the line of the file that asks for it."""

    line: int
    commands: tuple[Command, ...]


def parse_run_lines(path: Path) -> list[RunLine]:
    """All RUN lines of a file, `%s` put in, lines ending in a backslash joined.

    Raises:
        ValueError: a line that this little shell cannot read.
    """
    found: list[RunLine] = []
    pending, start = "", 0
    for number, text in enumerate(path.read_text().splitlines(), 1):
        match = RUN.match(text)
        if match is None:
            continue
        start = start if pending else number
        pending = f"{pending} {match[1]}".strip()
        if pending.endswith("\\"):
            pending = pending[:-1].rstrip()
            continue
        commands = tuple(_command(words, path) for words in _split_pipe(pending))
        found.append(RunLine(start, commands))
        pending = ""
    return found


def _split_pipe(text: str) -> list[list[str]]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|")
    lexer.whitespace_split = True
    lexer.commenters = ""
    pipe: list[list[str]] = [[]]
    for word in lexer:
        if word == "|":
            pipe.append([])
        else:
            pipe[-1].append(word)
    return pipe


def _command(words: list[str], path: Path) -> Command:
    negated = words[:1] == ["not"]
    words = words[1:] if negated else words
    merged = "2>&1" in words
    words = [str(path) if w == "%s" else w for w in words if w != "2>&1"]
    unknown = [w for w in words if w in (">", "<", "&&", "||", ";") or w.startswith(("%", "$"))]
    if not words or unknown:
        msg = f"{path}: cannot read RUN line: {' '.join(words) or 'empty command'} {unknown}"
        raise ValueError(msg)
    return Command(words[0], tuple(words[1:]), negated, merged)
