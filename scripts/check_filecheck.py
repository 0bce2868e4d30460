"""Golden tests test what they seem to.

filecheck ignores a directive that it does not know and never sees a file that no RUN line gives it,
so both would pass whatever the compiler does. Here every CHECK word must be a directive that some
RUN line of the file uses, spelt right, and every prefix that a RUN line names must have lines.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from run_lines import RunLine, parse_run_lines

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 120

SUFFIX = re.compile(r"(-(NEXT|LABEL|NOT|DAG|SAME|EMPTY|COUNT-\d+))?(\{LITERAL\})?")
WORD = re.compile(r"^\s*(?://|#)\s*([A-Za-z][A-Za-z0-9_]*(?:-[A-Za-z0-9_]+)*(?:\{\w+\})?)\s*(:?)")
NOT_CHECKS = frozenset({"RUN", "COM", "REQUIRES", "XFAIL", "UNSUPPORTED"})


def check_file(path: Path) -> list[str]:
    """What is wrong with one golden test, as `file:line: message`."""
    try:
        runs = parse_run_lines(path)
    except ValueError as error:
        return [str(error)]
    faults: list[str] = [] if runs else [f"{path}: no RUN line"]
    prefixes = {prefix for run in runs for prefix in check_prefixes(run)}
    used: set[str] = set()
    lines = path.read_text().splitlines()
    if len(lines) > MAX_LINES:
        faults.append(f"{path}: {len(lines)} lines, at most {MAX_LINES} can be read")
    for number, text in enumerate(lines, 1):
        match = WORD.match(text)
        if match is None:
            continue
        word, colon = match.groups()
        prefix = next((p for p in prefixes if is_directive(word, p)), None)
        if prefix is not None and colon:
            used.add(prefix)
        elif looks_like_directive(word, colon, prefixes):
            faults.append(f"{path}:{number}: {word}{colon} is no directive of a RUN line here")
    faults += [f"{path}: no line for prefix {prefix}" for prefix in sorted(prefixes - used)]
    return faults


def check_prefixes(run: RunLine) -> set[str]:
    """The prefixes with which a RUN line calls filecheck; none where it does not."""
    found: set[str] = set()
    for command in run.commands:
        if command.program != "filecheck":
            continue
        text = " ".join(command.arguments)
        named = re.findall(r"--?check-prefix(?:es)?[= ](\S+)", text)
        found |= {p for group in named for p in group.split(",")} or {"CHECK"}
    return found


def is_directive(word: str, prefix: str) -> bool:
    """Whether `word` is `prefix` with a suffix that filecheck knows."""
    return word.startswith(prefix) and SUFFIX.fullmatch(word.removeprefix(prefix)) is not None


def looks_like_directive(word: str, colon: str, prefixes: set[str]) -> bool:
    """Whether the writer must have meant a directive."""
    if word in NOT_CHECKS:
        return False
    shouted = word.upper() == word and len(word) > 1
    stem = word.upper().startswith(("CHECK", *prefixes))
    return (shouted and (bool(colon) or stem)) or (stem and bool(colon))


def main(folder: Path = ROOT / "tests/filecheck") -> int:
    """1 where a golden test tests less than it says."""
    faults = [fault for path in sorted(folder.rglob("*.mlir")) for fault in check_file(path)]
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
