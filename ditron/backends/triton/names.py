"""Names in emitted code."""

from __future__ import annotations

import builtins
import keyword
import re
from typing import Self

# What emitted code uses besides its own names.
RESERVED = frozenset(
    {"tl", "triton", "lane", "task", "token", "done", "age", "control", "wait", "notify"}
    | {"notify_set", "i", "EPOCH", "AGE"}
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

    def __call__(self, line: str = "") -> None:
        self.lines.append("    " * self.depth + line if line else "")

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
