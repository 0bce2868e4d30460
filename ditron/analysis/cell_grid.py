"""Boxes cut into cells, and boxes as bytes of the heap where buffers share those."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ditron.analysis.arrays import longs, spans
from ditron.plan.tables import DTYPE_BYTES, Bools, Buffer, Longs, Plan


def alias_groups(buffers: tuple[Buffer, ...]) -> list[list[int]]:
    """Buffers that share bytes of the heap with others, in connected groups."""
    placed = [i for i, b in enumerate(buffers) if b.offset_bytes >= 0 and b.size_bytes]
    placed.sort(key=lambda i: buffers[i].offset_bytes)
    groups: list[list[int]] = []
    end = -1
    for i in placed:
        buffer = buffers[i]
        if buffer.offset_bytes >= end:
            groups.append([])
        groups[-1].append(i)
        end = max(end, buffer.offset_bytes + buffer.copies * buffer.size_bytes)
    return [g for g in groups if len(g) > 1]


def byte_intervals(plan: Plan, access: Longs) -> tuple[Longs, Longs]:
    """First byte and end of each access's box in the first copy of its buffer, in heap bytes."""
    accesses = plan.accesses
    table = [_strides(plan, b) for b in plan.buffers]
    strides = np.array([s for s, _ in table], np.int64).reshape(len(table), -1)
    start = np.array([b for _, b in table], np.int64)
    buffer = accesses.buffer[access]
    first = (accesses.lo[access] * strides[buffer]).sum(axis=1)
    last = ((accesses.hi[access] - 1) * strides[buffer]).sum(axis=1)
    size = np.array([DTYPE_BYTES[b.dtype] for b in plan.buffers], np.int64)[buffer]
    return start[buffer] + first, start[buffer] + last + size


def _strides(plan: Plan, buffer: Buffer) -> tuple[list[int], int]:
    width = plan.accesses.lo.shape[1]
    strides: list[int] = []
    step = DTYPE_BYTES[buffer.dtype]
    for size in reversed(buffer.capacity):
        strides.insert(0, step)
        step *= size
    return strides + [0] * (width - len(strides)), buffer.offset_bytes


Intervals = tuple[Longs, Longs, Longs]  # rank, begin, end


class Grid:
    """Cells of boxes: between the edges of those with `cuts`. rank [N] owns; lo, hi are [N, D]."""

    def __init__(self, rank: Longs, lo: Longs, hi: Longs, cuts: Bools, ranks: int) -> None:
        self._rank = rank
        self._edges: list[Longs] = []
        self._dims: list[tuple[Longs, Longs, Longs]] = []  # first cell, cells, cells of each rank
        for dim in range(lo.shape[1]):
            span = int(hi[:, dim].max(initial=0)) + 2
            low, high = rank * span + lo[:, dim], rank * span + hi[:, dim]
            edges = np.unique(np.concatenate([np.arange(ranks) * span, low[cuts], high[cuts]]))
            self._edges.append(longs(edges % span))
            start = np.searchsorted(edges, np.arange(ranks + 1) * span)
            first = np.searchsorted(edges, low, side="right") - 1
            many = np.searchsorted(edges, high, side="left") - first
            self._dims.append((first - start[rank], many, np.diff(start)))
        width = np.multiply.reduce([size for _, _, size in self._dims])
        self._offset = np.cumsum(width) - width
        self.cells = int(width.sum())

    def intervals(self) -> Intervals:
        """The cells of one dimension; each rank's last, behind all edges, is empty."""
        (edges,) = self._edges
        _, _, size = self._dims[0]
        end = np.append(edges[1:], 0)
        return longs(np.repeat(np.arange(len(size)), size)), edges, np.maximum(edges, end)

    def many(self) -> Longs:
        """How many cells each box meets."""
        return np.multiply.reduce([many for _, many, _ in self._dims])

    def spread(self, rows: Longs) -> tuple[Longs, Longs]:
        """For each (box, cell) that meet: the box, out of `rows`, and the cell's number."""
        index, cell = rows, np.zeros(len(rows), np.int64)
        for first, many, size in self._dims:
            at = spans(first[index], many[index])
            cell = np.repeat(cell, many[index])
            index = np.repeat(index, many[index])
            cell = cell * size[self._rank[index]] + at
        return index, self._offset[self._rank[index]] + cell


@dataclass(frozen=True)
class Part:
    """Cells from `first` to `end`: of `buffer`; or, if that is -1, of `intervals` of bytes."""

    first: int
    end: int
    buffer: int
    intervals: Intervals


@dataclass(frozen=True)
class Where:
    """Some of a plan's memory: `buffers`, and bytes `lo` to `hi` of the heap on `rank` [K].

    The spans of bytes lie apart, sorted by rank and place.
    """

    buffers: frozenset[int]
    rank: Longs
    lo: Longs
    hi: Longs

    @staticmethod
    def all_bytes(plan: Plan) -> Where:
        """All bytes of the heap, no buffer by itself."""
        end = max((b.offset_bytes + b.copies * b.size_bytes for b in plan.buffers), default=0)
        ranks = np.arange(plan.ranks)
        return Where(frozenset(), longs(ranks), longs(0 * ranks), longs(0 * ranks + end))

    def clip(self, rank: Longs, lo: Longs, hi: Longs) -> Intervals:
        """What intervals of bytes [N] have of the spans: (interval, lo, hi)."""
        size = max(int(self.hi.max(initial=0)), int(hi.max(initial=0))) + 1
        first = np.searchsorted(self.rank * size + self.hi, rank * size + lo, side="right")
        end = np.searchsorted(self.rank * size + self.lo, rank * size + hi, side="left")
        many = longs(np.maximum(end - first, 0))
        row, span = np.repeat(np.arange(len(lo)), many), spans(longs(first), many)
        return longs(row), np.maximum(lo[row], self.lo[span]), np.minimum(hi[row], self.hi[span])
