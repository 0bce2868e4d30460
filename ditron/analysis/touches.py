"""Who touches which bytes, as rows of (cell, task), for the race and delivery proofs.

A cell is a box of one buffer on one rank between neighbouring edges of writes, so that every write
is a union of cells and a read that meets a cell meets each write of it. Buffers that share bytes of
the heap also get cells of bytes, between the first and last bytes of their boxes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ditron.analysis.arrays import changes, last_of_run, longs, offsets
from ditron.analysis.arrivals import Columns
from ditron.analysis.cell_grid import Grid, Intervals, Part, Where, alias_groups, byte_intervals
from ditron.plan.tables import Bools, Longs, Mode, Plan

# Kinds of touches: reads go with reads, adds with adds, a write goes with nothing. In cells of
# bytes, what one buffer does goes together: OWNER + its row; in a coarse cell, what readers do and
# what writers do: OWNER and OWNER + 1.
READ, ADD, WRITE, OWNER = 0, 1, 2, 3
# A buffer is taken coarsely where its touches are more than this for each box, and this at least.
MANY, MANY_AT_LEAST = 8, 20_000

_NOTHING = np.zeros(0, np.int64)
NONE: Intervals = (_NOTHING, _NOTHING, _NOTHING)

_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Touches:
    """Rows sorted by (cell, time); time is (launch phase, place in one happens-before order).

    `first`, `last` [N] are the tasks at the ends of a group of reads of one box by one op on one
    lane, most often one task twice. `period` [N] is after how many launches the cell is met again.
    `parts` says what the cells are.
    """

    cell: Longs
    time: Longs
    first: Longs
    last: Longs
    phase: Longs
    kind: Longs
    period: Longs
    parts: tuple[Part, ...]

    def __len__(self) -> int:
        return len(self.cell)

    def where(self, cells: Longs) -> Where:
        """The memory that sorted cells are of: their buffers as a whole, or their bytes."""
        buffers, found = set[int](), [NONE]
        for part in self.parts:
            mine = cells[slice(*np.searchsorted(cells, [part.first, part.end]))] - part.first
            if part.buffer < 0:
                rank, lo, hi = part.intervals
                found.append((rank[mine], lo[mine], hi[mine]))
            elif len(mine):
                buffers.add(part.buffer)
        rank, lo, hi = map(np.concatenate, zip(*found, strict=True))
        order = np.lexsort((lo, rank))
        return Where(frozenset(buffers), rank[order], lo[order], hi[order])


@dataclass(frozen=True)
class _Rows:
    """Accesses to be spread over cells: row of `accesses`, and the tasks of the group."""

    access: Longs
    first: Longs
    last: Longs

    def __getitem__(self, rows: Longs | Bools) -> _Rows:
        return _Rows(self.access[rows], self.first[rows], self.last[rows])


def find_touches(
    columns: Columns,
    place: Longs,
    *,
    grouped: bool,
    coarse: bool,
    whole: bool = False,
    within: Where | None = None,
) -> Touches:
    """Every touch of a buffer that is ever written; `place` [T] is the order of tasks.

    Grouped, reads of one box by one op on one static lane become one row. Coarsely, where reads
    meet very many cells (each task reads all that another op's tasks write), a buffer's readers
    and writers stand against each other in one cell; `whole`, so do buffers that share any bytes.
    Each asks for more order than is needed, so what fails has to be looked at without: `within`
    is the memory to look at, all by default.
    """
    plan = columns.plan
    accesses = plan.accesses
    live = ~accesses.empty & (accesses.mode != 0)
    written = np.zeros(len(plan.buffers), np.bool_)
    written[accesses.buffer[live & ((accesses.mode & ~int(Mode.READ)) != 0)]] = True
    groups = alias_groups(plan.buffers)
    for group in groups:
        written[group] |= written[group].any()
    access = np.flatnonzero(live & written[accesses.buffer]).astype(np.int64)
    task = longs(accesses.task)[access]
    rows = _Rows(access, task, task)
    if grouped:
        rows = _group_reads(columns, rows)
    finder = _Finder(plan, place, coarse=coarse)
    buffer = accesses.buffer[rows.access]
    by_buffer = np.argsort(buffer, kind="stable")
    start = offsets(longs(buffer)[by_buffer], len(plan.buffers))
    for row in np.flatnonzero(written).tolist():
        if within is None or row in within.buffers:
            finder.add_buffer(row, rows[by_buffer[start[row] : start[row + 1]]])
    for group in groups:
        if written[group].any():
            some = rows[np.isin(buffer, group)]
            finder.add_shared_bytes(group, some, whole=whole, within=within)
    return finder.finish()


def _group_reads(columns: Columns, rows: _Rows) -> _Rows:
    """Reads of one box by one op on one static lane become one row."""
    accesses, tasks = columns.plan.accesses, columns.plan.tasks
    single = columns.queued[rows.first] | columns.loose[rows.first]
    single |= accesses.mode[rows.access] != Mode.READ
    alone, rows = rows[single], rows[~single]
    parts = [
        columns.lane[rows.first],
        longs(tasks.op)[rows.first],
        longs(accesses.buffer)[rows.access],
        longs(accesses.rank)[rows.access],
        *longs(accesses.lo)[rows.access].T,
        *longs(accesses.hi)[rows.access].T,
    ]
    key = np.zeros(len(rows.access), np.uint64)
    for part in parts:
        key = (key ^ (key >> np.uint64(29)) ^ part.astype(np.uint64)) * _MIX
    order = np.lexsort((columns.seq[rows.first], key))
    first = changes(key[order].astype(np.int64), *(part[order] for part in parts))
    head, tail = order[first], order[last_of_run(first)]
    return _Rows(
        np.concatenate([alone.access, rows.access[head]]),
        np.concatenate([alone.first, rows.first[head]]),
        np.concatenate([alone.last, rows.first[tail]]),
    )


class _Finder:
    """Collects touches buffer by buffer."""

    def __init__(self, plan: Plan, place: Longs, *, coarse: bool) -> None:
        self._plan = plan
        self._place = place
        self._coarse = coarse
        self._cells = 0
        self._rows: list[tuple[Longs, ...]] = []
        self._parts: list[Part] = []

    def add_buffer(self, buffer: int, rows: _Rows) -> None:
        """Cells between the edges of writes; launch e and the next on the same copy."""
        plan, accesses = self._plan, self._plan.accesses
        dims = max(1, len(plan.buffers[buffer].capacity))
        lo, hi = accesses.lo[rows.access, :dims], accesses.hi[rows.access, :dims]
        mode = longs(accesses.mode)[rows.access]
        rank = longs(accesses.rank)[rows.access]
        writes = (mode & ~int(Mode.READ)) != 0
        grid = Grid(rank, lo, hi, writes, plan.ranks)
        near = np.arange(len(mode))
        if self._coarse and int(grid.many().sum()) > MANY * len(mode) + MANY_AT_LEAST:
            near = self._add_whole(rows, rank, writes, plan.buffers[buffer].copies)
            self._close(plan.ranks, buffer, NONE)
        index, cell = grid.spread(near)
        period = np.full(len(index), plan.buffers[buffer].copies, np.int64)
        self._add(rows[index], cell, mode[index], np.zeros_like(period), period)
        self._close(grid.cells, buffer, NONE)

    def _add_whole(self, rows: _Rows, rank: Longs, writes: Bools, copies: int) -> Longs:
        """One cell a rank, in which tasks that write stand against those that only read.

        Returns the rows of tasks that write, which are left to compare with each other.
        """
        writers = np.zeros(len(self._place), np.bool_)
        writers[rows.first[writes]] = True
        writer = writers[rows.first]
        kind = -np.where(writer, OWNER + 1, OWNER)
        period = np.full(len(kind), copies, np.int64)
        self._add(rows, rank, kind, np.zeros_like(period), period)
        return np.flatnonzero(writer).astype(np.int64)

    def add_shared_bytes(
        self, group: list[int], rows: _Rows, *, whole: bool, within: Where | None
    ) -> None:
        """Cells of bytes that several buffers share, over all phases of their copies."""
        plan = self._plan
        access = rows.access
        buffer = longs(plan.accesses.buffer)[access]
        copies = np.array([b.copies for b in plan.buffers], np.int64)
        size = np.array([b.size_bytes for b in plan.buffers], np.int64)
        period = int(np.lcm.reduce(copies[group]))
        lo, hi = byte_intervals(plan, access)
        if whole:
            lo = np.array([b.offset_bytes for b in plan.buffers], np.int64)[buffer]
            hi = lo + size[buffer]
        phase = np.repeat(np.arange(period), len(access))
        every = np.tile(np.arange(len(access)), period)
        shift = phase % copies[buffer[every]] * size[buffer[every]]
        lo, hi = lo[every] + shift, hi[every] + shift
        rank = longs(plan.accesses.rank)[access][every]
        if within is not None:
            kept, lo, hi = within.clip(rank, lo, hi)
            every, phase, rank = every[kept], phase[kept], rank[kept]
        cuts = np.ones(len(every), np.bool_)
        grid = Grid(rank, lo[:, None], hi[:, None], cuts, plan.ranks)
        index, cell = grid.spread(np.arange(len(every)))
        owner = OWNER + buffer[every[index]]
        shared = _cells_of_many(cell, owner, grid.cells)
        index, cell, owner = index[shared], cell[shared], owner[shared]
        many = np.full(len(index), period, np.int64)
        self._add(rows[every[index]], cell, -owner, phase[index], many)
        self._close(grid.cells, -1, grid.intervals())

    def _add(self, rows: _Rows, cell: Longs, mode: Longs, phase: Longs, period: Longs) -> None:
        self._rows.append((self._cells + cell, rows.first, rows.last, mode, phase, period))

    def _close(self, cells: int, buffer: int, intervals: Intervals) -> None:
        """The rows added last are of so many cells."""
        self._parts.append(Part(self._cells, self._cells + cells, buffer, intervals))
        self._cells += cells

    def finish(self) -> Touches:
        """Sort by cell and time, and make one row of what one task does to a cell."""
        none = (np.zeros(0, np.int64),) * 6
        parts = self._rows or [none]
        cell, first, last, mode, phase, period = map(np.concatenate, zip(*parts, strict=True))
        tasks = len(self._place)
        time = phase * tasks + self._place[first]
        span = (int(period.max(initial=1)) + 1) * tasks
        key = cell * span + time
        # What one task does to a cell is one row (in cells of bytes, one a buffer).
        order = np.argsort(key, kind="stable")
        head = np.flatnonzero(changes(key[order], last[order], np.minimum(mode[order], 0)))
        merged = np.bitwise_or.reduceat(mode[order], head) if len(head) else mode
        order = order[head]
        writes = ((merged & Mode.WRITE) != 0) | (merged == (Mode.READ | Mode.ADD))
        kind = np.where(writes, WRITE, np.where((merged & Mode.ADD) != 0, ADD, READ))
        kind = np.where(merged < 0, -merged, kind)
        return Touches(
            cell[order],
            time[order],
            first[order],
            last[order],
            phase[order],
            longs(kind),
            period[order],
            tuple(self._parts),
        )


def _cells_of_many(cell: Longs, owner: Longs, cells: int) -> Bools:
    """Rows in cells that more than one buffer touches."""
    lowest = np.full(cells, np.iinfo(np.int64).max)
    highest = np.full(cells, -1)
    np.minimum.at(lowest, cell, owner)
    np.maximum.at(highest, cell, owner)
    return (lowest != highest)[cell]
