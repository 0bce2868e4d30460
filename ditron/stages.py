"""The text of a program after each pass, made when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from functools import cached_property

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass


class Stages(Mapping[str, str]):
    """The program's text after each pass, "00-input" first, made when asked for."""

    def __init__(self, source: ModuleOp, passes: Sequence[ModulePass]) -> None:
        self.source, self._passes = source, passes
        names = ["input", *(p.name for p in passes)]
        self._names = [f"{i:02d}-{name}" for i, name in enumerate(names)]
        self._texts: list[str] = []

    def __getitem__(self, name: str) -> str:
        if name not in self._names:
            raise KeyError(f"no stage {name!r}; there are {', '.join(self._names)}")
        if not self._texts:
            self._replay()
        return self._texts[self._names.index(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def diff(self, a: str, b: str) -> str:
        """What changed from stage `a` to stage `b`, as a unified diff."""
        lines = unified_diff(self[a].splitlines(), self[b].splitlines(), a, b, lineterm="")
        return "\n".join(lines)

    @cached_property
    def last(self) -> ModuleOp:
        """The IR after the last pass; not to be changed."""
        module, context = self.source.clone(), Context()
        for one in self._passes:
            one.apply(context, module)
        return module

    def _replay(self) -> None:
        module, context = self.source.clone(), Context()
        self._texts.append(str(module))
        for one in self._passes:
            one.apply(context, module)
            self._texts.append(str(module))
