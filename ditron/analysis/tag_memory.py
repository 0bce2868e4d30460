"""The memory of all ranks as tags of cells, for the delivery proof."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np

from ditron.analysis.arrays import longs, spans
from ditron.analysis.cell_grid import alias_groups
from ditron.analysis.cells import Cuts
from ditron.analysis.ring import Tags
from ditron.plan.tables import DTYPE_BYTES, Bools, Longs, Plan

# The writer of a cell whose bytes another buffer has taken.
LOST = -2
# Bytes of a heap, in a number that tells heaps apart.
SPACE_BITS = 48


class BufferAxes:
    """Numbers an axis for each (buffer, rank, dimension), in that order."""

    def __init__(self, plan: Plan) -> None:
        self.dims = np.array([len(b.capacity) for b in plan.buffers], np.int64)
        self.base = np.cumsum(self.dims * plan.ranks) - self.dims * plan.ranks
        sizes = [b.extent.reshape(-1) for b in plan.buffers]
        self.sizes = longs(np.concatenate([np.zeros(0, np.int64), *sizes]))

    def axis(self, buffer: Longs, rank: Longs, dim: int) -> Longs:
        """The axis of one dimension of buffers on ranks."""
        return self.base[buffer] + rank * self.dims[buffer] + dim


@dataclass(frozen=True)
class Boxes:
    """Boxes of cells: `start` [N] is the first, `size` and `step` [N, D] go on from there."""

    start: Longs
    size: Longs
    step: Longs

    def __getitem__(self, rows: Longs) -> Boxes:
        return Boxes(self.start[rows], self.size[rows], self.step[rows])

    def flat(self) -> tuple[Longs, Longs]:
        """Every cell of every box, row-major, and the box that it belongs to."""
        cell, box = self.start, np.arange(len(self.start))
        for d in range(self.size.shape[1]):
            many = self.size[box, d]
            at = spans(np.zeros_like(many), many)
            cell = np.repeat(cell, many)
            box = np.repeat(box, many)
            cell = cell + at * self.step[box, d]
        return cell, box

    def dense(self, dims: int) -> Longs:
        """Cells [N, size of dim 0, ...] of boxes that are all of one size."""
        cell = self.start.reshape(-1, *[1] * dims)
        for d in range(dims):
            at = longs(np.arange(int(self.size[0, d])))
            at = at.reshape([-1 if i == d else 1 for i in range(dims)])
            cell = cell + at * self.step[:, d].reshape(-1, *[1] * dims)
        return cell


class TagMemory:
    """`tags` and `writer` of each cell [cells]; the writer is a task, or -1.

    `live` [A] are the accesses whose cells will be asked for.
    """

    def __init__(self, plan: Plan, axes: BufferAxes, cuts: Cuts, live: Bools) -> None:
        self._plan, self._axes, self._cuts = plan, axes, cuts
        self.dims = max(1, max((len(b.capacity) for b in plan.buffers), default=1))
        shape = (len(plan.buffers), plan.ranks)
        self._size = np.ones((*shape, self.dims), np.int64)
        for row, buffer in enumerate(plan.buffers):
            ranks = np.arange(plan.ranks)
            for d in range(len(buffer.capacity)):
                self._size[row, :, d] = cuts.cells[axes.axis(longs(row), ranks, d)]
        self._step = np.ones_like(self._size)
        for d in reversed(range(self.dims - 1)):
            self._step[:, :, d] = self._step[:, :, d + 1] * self._size[:, :, d + 1]
        many = self._size.prod(axis=2)
        groups = alias_groups(plan.buffers)
        # Buffers that share bytes come first, so that what is to be known of those is short.
        order = np.argsort(~np.isin(np.arange(shape[0]), list(chain(*groups))), kind="stable")
        ends = np.cumsum(many[order])
        self._start = np.empty_like(many)
        self._start[order] = ends.reshape(shape) - many[order]
        self.tags: Tags = np.zeros(int(many.sum()), np.uint64)
        self._filled: Bools = np.zeros(len(self.tags), np.bool_)
        # The task and 1, or 0: pages of what nobody writes are never made.
        self._writer = np.zeros(len(self.tags), np.int32)
        self._boxes = self._all_boxes(live)
        self._shared = _SharedBytes(groups, plan.ranks, self) if groups else None

    def __len__(self) -> int:
        return len(self.tags)

    def boxes(self, access: Longs) -> Boxes:
        """The cells of accesses, which belong to tasks that do something."""
        return self._boxes[access]

    def _all_boxes(self, live: Bools) -> Boxes:
        """Those of all accesses; nothing is known of those of other tasks."""
        access = np.flatnonzero(live)
        found = self._boxes_of(access)
        start = np.zeros(len(live), np.int64)
        size, step = (np.zeros((len(live), self.dims), np.int64) for _ in range(2))
        start[access], size[access], step[access] = found.start, found.size, found.step
        return Boxes(start, size, step)

    def _boxes_of(self, access: Longs) -> Boxes:
        accesses, axes = self._plan.accesses, self._axes
        buffer, rank = longs(accesses.buffer)[access], longs(accesses.rank)[access]
        size = np.ones((len(access), self.dims), np.int64)
        start = self._start[buffer, rank]
        step = self._step[buffer, rank]
        for d in range(self.dims):
            real = np.flatnonzero(axes.dims[buffer] > d)
            lo, hi = accesses.lo[access[real], d], accesses.hi[access[real], d]
            axis = axes.axis(buffer[real], rank[real], d)
            first = self._cuts.cell(axis, lo)
            end = np.where(hi > lo, self._cuts.cell(axis, np.maximum(hi, lo)), first)
            size[real, d] = end - first
            start[real] += first * step[real, d]
        return Boxes(start, size, step)

    def whole(self, buffer: int, rank: int) -> tuple[slice, tuple[int, ...]]:
        """All cells of a buffer on a rank, which lie side by side, and their shape."""
        dims = len(self._plan.buffers[buffer].capacity)
        shape = tuple(self._size[buffer, rank, :dims].tolist())
        start = int(self._start[buffer, rank])
        return slice(start, start + int(np.prod(shape, dtype=np.int64))), shape

    def fill(self, cells: slice, tags: Tags) -> None:
        """Put tags into cells of a buffer, before any task runs."""
        if self._shared is not None:
            self._shared.write(self._shared.some(cells))
        self.tags[cells] = tags
        self._filled[cells] = True

    def write(self, cells: Longs, tags: Tags, task: Longs, ready: Bools | bool = True) -> None:
        """Put tags into cells; what other buffers hold in the same bytes is lost."""
        if self._shared is not None:
            self._shared.write(cells)
        self.tags[cells] = tags
        self._filled[cells] = ready
        self._writer[cells] = task + 1

    def ready(self, cells: Longs) -> Bools:
        """Whether cells hold what was last written to them, and something was."""
        filled = self._filled[cells]
        if self._shared is None:
            return filled
        return filled & self._shared.kept(cells.ravel()).reshape(cells.shape)

    def lost(self, cells: slice) -> Bools:
        """Of a buffer's cells, those that are not `ready`."""
        ready = self._filled[cells].copy()
        if self._shared is not None:
            shared = self._shared.some(cells)
            ready[shared - cells.start] &= self._shared.kept(shared)
        return ~ready

    def writer(self, cell: int) -> int:
        """The task that wrote a cell last, -1 if none did, LOST if another buffer's write did."""
        if self._shared is not None and not self._shared.kept(longs([cell])).all():
            return LOST
        return int(self._writer[cell]) - 1

    def place(self, cell: int) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
        """Buffer, rank, lo and hi in elements of a cell."""
        inside = (self._start <= cell) & (cell < self._start + self._size.prod(axis=2))
        buffer, rank = (int(at[0]) for at in np.nonzero(inside))
        rest = cell - int(self._start[buffer, rank])
        lo: list[int] = []
        hi: list[int] = []
        for d in range(len(self._plan.buffers[buffer].capacity)):
            at, rest = divmod(rest, int(self._step[buffer, rank, d]))
            axis = int(self._axes.axis(longs(buffer), longs(rank), d))
            edges = self._cuts.edges(axis)
            lo.append(int(edges[at]))
            hi.append(int(edges[at + 1]))
        return buffer, rank, tuple(lo), tuple(hi)

    def byte_intervals(self, buffer: int, rank: int) -> tuple[Longs, Longs]:
        """First heap byte and end of each cell of a buffer, in the first of its copies."""
        record = self._plan.buffers[buffer]
        width = DTYPE_BYTES[record.dtype]
        lo = np.full((1,) * len(record.capacity), record.offset_bytes)
        hi = lo + width
        step = width
        for d in reversed(range(len(record.capacity))):
            edges = self._cuts.edges(int(self._axes.axis(longs(buffer), longs(rank), d)))
            shape = [-1 if i == d else 1 for i in range(len(record.capacity))]
            lo = lo + edges[:-1].reshape(shape) * step
            hi = hi + (edges[1:].reshape(shape) - 1) * step
            step *= record.capacity[d]
        return lo.ravel(), hi.ravel()


class _SharedBytes:
    """Whose the bytes are that several buffers share, told in stretches between cells' edges.

    A stretch belongs to the buffer that was last written there, since the `since`-th write. A cell
    is kept if all of its stretches are its buffer's, and were when it was written.
    """

    def __init__(self, groups: list[list[int]], ranks: int, memory: TagMemory) -> None:
        cells, buffers, lows, highs = [list[Longs]() for _ in range(4)]
        for number, group in enumerate(groups):
            for rank in range(ranks):
                space = (number * ranks + rank) << SPACE_BITS
                for buffer in group:
                    lo, hi = memory.byte_intervals(buffer, rank)
                    own, _ = memory.whole(buffer, rank)
                    cells.append(np.arange(int(own.start), int(own.stop)))
                    buffers.append(np.full(len(lo), buffer))
                    lows.append(space + lo)
                    highs.append(space + hi)
        cell, low, high = (np.concatenate(column) for column in (cells, lows, highs))
        edges = np.unique(np.concatenate([low, high]))
        self._cells = len(cell)
        self._buffer, self._first, self._many = (np.empty_like(cell) for _ in range(3))
        self._buffer[cell] = np.concatenate(buffers)
        self._first[cell] = np.searchsorted(edges, low)
        self._many[cell] = np.searchsorted(edges, high) - self._first[cell]
        self._owner = np.full(len(edges), -1)
        self._since = np.zeros(len(edges), np.int64)
        self._written = np.zeros(len(cell), np.int64)
        self._writes = 0

    def some(self, cells: slice) -> Longs:
        """Those of cells side by side that share bytes."""
        start, stop = int(cells.start), min(int(cells.stop), self._cells)
        return np.arange(start, max(start, stop))

    def write(self, cells: Longs) -> None:
        """Take the bytes of cells for their buffers."""
        cells = cells[cells < self._cells]
        self._writes += 1
        self._written[cells] = self._writes
        stretch, at = self._stretches(cells)
        buffer = self._buffer[cells[at]]
        taken = self._owner[stretch] != buffer
        self._owner[stretch[taken]] = buffer[taken]
        self._since[stretch[taken]] = self._writes

    def kept(self, cells: Longs) -> Bools:
        """Which cells no other buffer has been written over since they were."""
        kept = np.ones(len(cells), np.bool_)
        shared = np.flatnonzero(cells < self._cells)
        cells = cells[shared]
        stretch, at = self._stretches(cells)
        own = self._owner[stretch] == self._buffer[cells[at]]
        own &= self._written[cells[at]] >= self._since[stretch]
        kept[shared[at[~own]]] = False
        return kept

    def _stretches(self, cells: Longs) -> tuple[Longs, Longs]:
        """The stretches of cells that share bytes, and of which cell each is."""
        many = self._many[cells]
        return spans(self._first[cells], many), np.repeat(np.arange(len(cells)), many)
