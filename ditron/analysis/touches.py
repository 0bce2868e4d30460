"""Who touches which bytes, as rows of (cell, task), for the race and delivery proofs.

A cell is a box of one buffer on one rank between neighbouring edges of writes, so that every write
is a union of cells and a read that meets a cell meets each write of it. Buffers that share bytes of
the heap also get cells of bytes, between the first and last bytes of their boxes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ditron.analysis.arrays import changes, last_of_run, longs, spans
from ditron.analysis.arrivals import Columns
from ditron.plan.tables import DTYPE_BYTES, Bools, Buffer, Longs, Mode, Plan

# Kinds of touches: reads go with reads, adds with adds, a write goes with nothing. In cells of
# bytes, what one buffer does goes together: OWNER + its row.
READ, ADD, WRITE, OWNER = 0, 1, 2, 3

_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Touches:
    """Rows sorted by (cell, time); time is (launch phase, place in one happens-before order).

    `first`, `last` [N] are the tasks at the ends of a group of reads of one box by one op on one
    lane, most often one task twice. `period` [N] is after how many launches the cell is met again.
    """

    cell: Longs
    time: Longs
    first: Longs
    last: Longs
    phase: Longs
    kind: Longs
    period: Longs

    def __len__(self) -> int:
        return len(self.cell)


@dataclass(frozen=True)
class _Rows:
    """Accesses to be spread over cells: row of `accesses`, and the tasks of the group."""

    access: Longs
    first: Longs
    last: Longs

    def __getitem__(self, rows: Longs | Bools) -> _Rows:
        return _Rows(self.access[rows], self.first[rows], self.last[rows])


def find_touches(columns: Columns, place: Longs, *, grouped: bool) -> Touches:
    """Every touch of a buffer that is ever written; `place` [T] is the order of tasks."""
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
    finder = _Finder(columns, place)
    buffer = accesses.buffer[rows.access]
    for row in np.flatnonzero(written).tolist():
        finder.add_buffer(row, rows[buffer == row])
    for group in groups:
        if written[group].any():
            finder.add_shared_bytes(group, rows[np.isin(buffer, group)])
    return finder.finish()


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

    def __init__(self, columns: Columns, place: Longs) -> None:
        self._columns = columns
        self._plan = columns.plan
        self._place = place
        self._cells = 0
        self._parts: list[tuple[Longs, ...]] = []

    def add_buffer(self, buffer: int, rows: _Rows) -> None:
        """Cells between the edges of writes; launch e and the next on the same copy."""
        plan, accesses = self._plan, self._plan.accesses
        dims = max(1, len(plan.buffers[buffer].capacity))
        lo, hi = accesses.lo[rows.access, :dims], accesses.hi[rows.access, :dims]
        mode = longs(accesses.mode)[rows.access]
        index, cell, cells = grid_cells(
            longs(accesses.rank)[rows.access], lo, hi, (mode & ~int(Mode.READ)) != 0, plan.ranks
        )
        period = np.full(len(index), plan.buffers[buffer].copies, np.int64)
        self._add(rows[index], cell, mode[index], np.zeros_like(period), period)
        self._cells += cells

    def add_shared_bytes(self, group: list[int], rows: _Rows) -> None:
        """Cells of bytes that several buffers share, over all phases of their copies."""
        plan = self._plan
        access = rows.access
        buffer = longs(plan.accesses.buffer)[access]
        copies = np.array([b.copies for b in plan.buffers], np.int64)
        size = np.array([b.size_bytes for b in plan.buffers], np.int64)
        period = int(np.lcm.reduce(copies[group]))
        lo, hi = byte_intervals(plan, access)
        phase = np.repeat(np.arange(period), len(access))
        every = np.tile(np.arange(len(access)), period)
        shift = phase % copies[buffer[every]] * size[buffer[every]]
        lo, hi = lo[every] + shift, hi[every] + shift
        index, cell, cells = grid_cells(
            longs(plan.accesses.rank)[access][every],
            lo[:, None],
            hi[:, None],
            np.ones(len(every), np.bool_),
            plan.ranks,
        )
        owner = OWNER + buffer[every[index]]
        shared = _cells_of_many(cell, owner, cells)
        index, cell, owner = index[shared], cell[shared], owner[shared]
        many = np.full(len(index), period, np.int64)
        self._add(rows[every[index]], cell, -owner, phase[index], many)
        self._cells += cells

    def _add(self, rows: _Rows, cell: Longs, mode: Longs, phase: Longs, period: Longs) -> None:
        self._parts.append((self._cells + cell, rows.first, rows.last, mode, phase, period))

    def finish(self) -> Touches:
        """Sort by cell and time, and make one row of what one task does to a cell."""
        none = (np.zeros(0, np.int64),) * 6
        parts = self._parts or [none]
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
        )


def _cells_of_many(cell: Longs, owner: Longs, cells: int) -> Bools:
    """Rows in cells that more than one buffer touches."""
    lowest = np.full(cells, np.iinfo(np.int64).max)
    highest = np.full(cells, -1)
    np.minimum.at(lowest, cell, owner)
    np.maximum.at(highest, cell, owner)
    return (lowest != highest)[cell]


def grid_cells(
    rank: Longs, lo: Longs, hi: Longs, cuts: Bools, ranks: int
) -> tuple[Longs, Longs, int]:
    """Spread boxes over the cells between the edges of those with `cuts`.

    Returns for each (box, cell) that meet the box's row and the cell's number, and how many cells
    there are. rank [N] owns the memory; lo, hi [N, D].
    """
    index = np.arange(len(rank))
    cell = np.zeros(len(rank), np.int64)
    width = np.ones(ranks, np.int64)
    for dim in range(lo.shape[1]):
        span = int(hi[:, dim].max(initial=0)) + 2
        base = rank * span
        marks = [np.arange(ranks) * span, base[cuts] + lo[cuts, dim], base[cuts] + hi[cuts, dim]]
        edges = np.unique(np.concatenate(marks))
        start = np.searchsorted(edges, np.arange(ranks + 1) * span)
        size = np.diff(start)
        first = np.searchsorted(edges, base + lo[:, dim], side="right") - 1
        end = np.searchsorted(edges, base + hi[:, dim], side="left")
        many = end - first
        at = spans(first[index], many[index]) - np.repeat(start[rank[index]], many[index])
        cell = np.repeat(cell, many[index])
        index = np.repeat(index, many[index])
        cell = cell * size[rank[index]] + at
        width *= size
    offset = np.cumsum(width) - width
    return index, offset[rank[index]] + cell, int(width.sum())
