"""Names in emitted code."""

from __future__ import annotations

import builtins
import keyword
import re
from collections import Counter
from collections.abc import Collection
from typing import Self

# What emitted code uses besides its own names.
LIBRARY = (
    "AGE",
    "BEGIN",
    "END",
    "EPOCH",
    "enter",
    "exceeds",
    "fence_loads",
    "first_largest",
    "halves",
    "larger",
    "largest",
    "notify",
    "notify_set",
    "retire",
    "stamp",
    "wait",
)
"""What emitted code takes from `library/`."""

RESERVED = frozenset(
    {"tl", "triton", "lane", "begin", "first", "bases", "SITE", "task", "token", "done", "age"}
    | {"control", "stamps", "i", *LIBRARY}
    | set(keyword.kwlist)
    | set(dir(builtins))
)


class Names:
    """Distinct Python names."""

    def __init__(self, taken: frozenset[str] | set[str] = RESERVED) -> None:
        self.taken = set(taken)

    def fresh(self, wish: str) -> str:
        """A name like `wish` that is not taken."""
        base = re.sub(r"\W", "_", wish, flags=re.ASCII).lstrip("_") or "v"
        base = base if base[0].isalpha() else f"v{base}"
        name, count = base, 1
        while name in self.taken:
            count += 1
            name = f"{base}_{count}"
        self.taken.add(name)
        return name


class Code:
    """Lines of Python, indented by blocks."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0
        self._optional: set[str] = set()

    def __call__(self, line: str = "") -> None:
        self.lines.append("    " * self.depth + line if line else "")

    def define(self, name: str, text: str) -> None:
        """A variable that goes again if nothing uses it."""
        self._optional.add(name)
        self(f"{name} = {text}")

    def used(self) -> list[str]:
        """All lines but those of variables that nothing uses."""
        lines = self.lines
        while True:
            counts = Counter(word for line in lines for word in set(re.findall(r"\w+", line)))
            kept = [
                line
                for line in lines
                if (name := line.strip().partition(" = ")[0]) not in self._optional
                or counts[name] > 1
            ]
            if len(kept) == len(lines):
                return kept
            lines = kept

    def note(self, text: str) -> None:
        """A comment."""
        self(f"# {text}")

    def __enter__(self) -> Self:
        self.depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.depth -= 1

    def text(self) -> str:
        """All lines."""
        return "\n".join(self.lines) + "\n"


def nameless(text: str, names: Collection[str]) -> str:
    """Code without comments and with its names numbered: alike where it does the same."""
    numbers: dict[str, str] = {}

    def renamed(found: re.Match[str]) -> str:
        name = found[0]
        return numbers.setdefault(name, f"name_{len(numbers)}") if name in names else name

    lines = [line.split("#")[0] for line in text.splitlines() if '"""' not in line]
    return re.sub(r"(?<![\w.])[A-Za-z_]\w*", renamed, "\n".join(lines))
