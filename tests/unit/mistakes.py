"""A device program that is fine but for a mistake that is added to it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import ditron as dt
from ditron.errors import DitronError


def wrong(value: object) -> Any:
    """Something that the types do not let pass."""
    return value


class Given:
    """What a mistake finds there."""

    def __init__(self, d: dt.DeviceProgram) -> None:
        self.d = d
        self.x = d.input("x", (8, 6), dt.f32, dt.Shard(0))
        self.y = d.output("y", (8, 6), dt.f32, dt.Shard(0))
        self.far = d.scratch("far", (2, 6), dt.f32, symmetric=True)
        self.near = d.scratch("near", (2, 6), dt.f32)
        self.s = d.signals("s", 4)
        with d.grid("copy", engine="copy") as g:
            g.copy(self.all(g, self.x), self.all(g, self.y))

    def all(self, g: dt.Grid, buffer: dt.Buffer, at: Any = None) -> dt.View:
        return g.view(buffer, (0, 0), (2, 6), at=at)


Mistake = Callable[[dt.DeviceProgram, Given], object]


class Mistakes:
    """Mistakes with the error that each should be named by."""

    def __init__(self) -> None:
        self.all: list[tuple[type[DitronError], str, Mistake]] = []

    def __call__(self, kind: type[DitronError], message: str) -> Callable[[Mistake], Mistake]:
        def keep(body: Mistake) -> Mistake:
            self.all.append((kind, message, body))
            return body

        return keep

    def test(self) -> pytest.MarkDecorator:
        """Parametrizes a test by all of them."""
        ids = [body.__name__ for _, _, body in self.all]
        return pytest.mark.parametrize(("kind", "message", "body"), self.all, ids=ids)


def check(kind: type[DitronError], message: str, body: Mistake) -> None:
    """The mistake is refused, at its line that ends in `# here`."""

    def write() -> None:
        with dt.DeviceProgram("p", dt.Mesh(tp=4)) as d:
            body(d, Given(d))

    with pytest.raises(DitronError) as caught:
        write()
    error = caught.value
    assert type(error) is kind
    assert message in error.message
    lines, first = inspect.getsourcelines(body)
    marked = [first + i for i, line in enumerate(lines) if line.rstrip().endswith("# here")]
    file, _, line = (error.where or "").rpartition(":")
    assert file == inspect.getsourcefile(body)
    assert not marked or int(line) in marked
