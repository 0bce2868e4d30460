"""Cut axes into cells, so that each operation takes whole cells to whole cells.

An axis is one dimension of one array: a buffer on a rank, or a tensor of the task program. A
relation says that a stretch of one axis is a stretch of another: what a transfer copies, what a
kernel's views share, where a shard lies in its tensor. Cuts are carried over relations until none
is new.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ditron.analysis.arrays import changes, distinct, longs, spans
from ditron.plan.tables import Longs


@dataclass(frozen=True)
class Relations:
    """Stretch `[a_lo, a_lo + size)` of axis `a` is `[b_lo, b_lo + size)` of axis `b` [N]."""

    a: Longs
    a_lo: Longs
    b: Longs
    b_lo: Longs
    size: Longs

    @staticmethod
    def of(parts: list[tuple[Longs, ...]]) -> Relations:
        """Each different relation once, both ways round, empty ones left out."""
        none = (np.zeros(0, np.int64),) * 5
        rows = [none, *(np.broadcast_arrays(*p) for p in parts)]
        a, a_lo, b, b_lo, size = (np.concatenate(c) for c in zip(*rows, strict=True))
        keep = (size > 0) & ((a != b) | (a_lo != b_lo))
        a, a_lo, b, b_lo, size = (c[keep] for c in (a, a_lo, b, b_lo, size))
        both = (
            np.concatenate([a, b]),
            np.concatenate([a_lo, b_lo]),
            np.concatenate([b, a]),
            np.concatenate([b_lo, a_lo]),
            np.concatenate([size, size]),
        )
        order = np.lexsort(both[::-1])
        both = tuple(c[order] for c in both)
        first = changes(*both)
        return Relations(*(c[first] for c in both))


class Cuts:
    """Where axes are cut. `size` [axes] is how long each axis is."""

    def __init__(self, size: Longs) -> None:
        self._span = int(size.max(initial=0)) + 1
        self._size = size
        ends = np.arange(len(size)) * self._span
        self._new: list[Longs] = [ends, ends + size]
        self._keys = np.zeros(0, np.int64)

    def add(self, axis: Longs, at: Longs) -> None:
        """Cut axes where they are not cut yet; beyond an axis' ends nothing is cut.

        Counts from the next `close` on.
        """
        inside = (at > 0) & (at < self._size[axis])
        self._new.append(distinct(axis[inside] * self._span + at[inside]))

    def close(self, relations: Relations) -> None:
        """Carry cuts over relations until there are no new ones."""
        for axis, lo in ((relations.a, relations.a_lo), (relations.b, relations.b_lo)):
            self.add(axis, lo)
            self.add(axis, lo + relations.size)
        self._keys = fresh = distinct(np.concatenate(self._new))
        while len(fresh):
            changed = np.zeros(len(self._size), np.bool_)
            changed[fresh // self._span] = True
            use = np.flatnonzero(changed[relations.a])
            base = relations.a[use] * self._span + relations.a_lo[use]
            first = np.searchsorted(fresh, base, side="right")
            many = np.searchsorted(fresh, base + relations.size[use], side="left") - first
            carried = fresh[spans(first, many)] - np.repeat(base, many)
            to = relations.b[use] * self._span + relations.b_lo[use]
            carried = distinct(carried + np.repeat(to, many))
            at = np.minimum(np.searchsorted(self._keys, carried), len(self._keys) - 1)
            fresh = carried[self._keys[at] != carried]
            self._keys = np.insert(self._keys, np.searchsorted(self._keys, fresh), fresh)
        self._index()

    def _index(self) -> None:
        starts = np.arange(len(self._size) + 1) * self._span
        self._start = np.searchsorted(self._keys, starts)

    @property
    def cells(self) -> Longs:
        """How many cells each axis has."""
        return longs(np.diff(self._start)) - 1

    def cell(self, axis: Longs, at: Longs) -> Longs:
        """Which cell of its axis begins at a cut."""
        return np.searchsorted(self._keys, axis * self._span + at) - self._start[axis]

    def begin(self, axis: Longs, first: Longs, count: int) -> Longs:
        """Where `count` cells of each axis begin, from the first on [axes, count]."""
        row = (self._start[axis] + first)[:, None] + np.arange(count)
        return self._keys[row] - axis[:, None] * self._span

    def edges(self, axis: int) -> Longs:
        """Where an axis is cut, from 0 to its size."""
        return self._keys[self._start[axis] : self._start[axis + 1]] - axis * self._span
