"""Reshapes in terms of cells: runs of dimensions that hold the same elements in row-major order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ditron.plan.reshape import matching_dims


@dataclass(frozen=True)
class Line:
    """Some dimensions of a box, outermost first: their axes, where it begins, its sizes."""

    axes: tuple[int, ...]
    lo: tuple[int, ...]
    sizes: tuple[int, ...]

    @staticmethod
    def whole(base: int, shape: Sequence[int]) -> Line:
        """All of an array whose axes are numbered from `base` on."""
        ndim = len(shape)
        return Line(tuple(range(base, base + ndim)), (0,) * ndim, tuple(shape))

    def part(self, dims: Sequence[int]) -> Line:
        """Some of the dimensions; those of size 1 say nothing, if there are others."""
        dims = [d for d in dims if self.sizes[d] != 1] or dims[-1:]
        picked = ([column[d] for d in dims] for column in (self.axes, self.lo, self.sizes))
        return Line(*map(tuple, picked))

    @property
    def elements(self) -> int:
        return prod(self.sizes)

    def outer(self) -> Iterator[tuple[int, int]]:
        """(axis, where) of the cuts that make all but the last dimension rows of their own."""
        for axis, lo, size in zip(self.axes[:-1], self.lo[:-1], self.sizes[:-1], strict=True):
            yield from ((axis, lo + i) for i in range(size + 1))


Stretch = tuple[int, int, int, int, int]


def runs(a: Line, b: Line) -> Iterator[tuple[Line, Line]]:
    """Runs of the dimensions of two boxes that stand for each other, as short as can be."""
    for ours, theirs in matching_dims(a.sizes, b.sizes):
        yield a.part(ours), b.part(theirs)


def stretches(a: Line, b: Line) -> Iterator[Stretch]:
    """(axis, start, other axis, start there, size): rows of the one in rows of the other."""
    length, other = a.sizes[-1], b.sizes[-1]
    total = a.elements
    if not total:
        return
    ends = np.union1d(np.arange(0, total + 1, length), np.arange(0, total + 1, other))
    for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        here, there = a.lo[-1] + start % length, b.lo[-1] + start % other
        yield a.axes[-1], here, b.axes[-1], there, end - start
