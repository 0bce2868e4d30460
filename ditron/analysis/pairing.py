"""Pairing: which tasks must follow which, because their boxes meet.

This is the heart of the mid-end, and the same for every pattern: a task depends on exactly the
tasks whose boxes meet its own on the same rank's bytes, be it that it reads what they write (RAW),
overwrites what they read (WAR) or what they write (WAW). `order-tiles`, `plan-memory` and
`insert-signals` all ask it.

Program order is the order of ops, then of grid coordinates, all ranks side by side; it says which
of two accesses comes first. After the last access of a launch comes the first of the next one, at
lag 1. Only neighbours in that cycle are paired (last write -> read, read -> next write, write ->
next write if nothing reads in between); all other pairs follow.

Memory is cut at the edges of written boxes only: no write then covers part of a cell, so that the
cells which a box touches tell exactly which writes it meets. Where two buffers share bytes, which
they do one after the other, all accesses of one come before those of the next, byte for byte.
Accesses of one op, lane and box form a group, and groups are paired instead of tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np

from ditron.analysis.arrays import changes, distinct_rows, last_of_run, longs, offsets, spans
from ditron.analysis.ring import mix
from ditron.plan.tables import (
    DTYPE_BYTES,
    Bools,
    Boundary,
    Buffer,
    LaneOrder,
    Longs,
    Mode,
    OpKind,
    Plan,
)


@dataclass(frozen=True)
class Groups:
    """Tasks of one op on one lane: `op`, `lane`, `rank` [G]; first and last by seq [G].

    The tasks of group g are `tasks[start[g]:start[g + 1]]`, in seq order.
    """

    op: Longs
    lane: Longs
    rank: Longs
    first: Longs
    last: Longs
    start: Longs
    tasks: Longs

    def __len__(self) -> int:
        return len(self.op)


@dataclass(frozen=True)
class Pairing:
    """`before[i]` must be done before `after[i]` begins, `lag[i]` launches later [E].

    `data` [E]: the second reads what the first writes; else it overwrites what the first touches.
    """

    groups: Groups
    before: Longs
    after: Longs
    lag: Longs
    data: Bools

    def __len__(self) -> int:
        return len(self.before)

    def __add__(self, other: Pairing) -> Pairing:
        """The edges of both, which are of the same groups."""
        return Pairing(
            self.groups,
            np.append(self.before, other.before),
            np.append(self.after, other.after),
            np.append(self.lag, other.lag),
            np.append(self.data, other.data),
        )

    def only(self, keep: Bools) -> Pairing:
        """Some of the edges."""
        before, after, lag = self.before[keep], self.after[keep], self.lag[keep]
        return Pairing(self.groups, before, after, lag, self.data[keep])


def pair(plan: Plan) -> Pairing:
    """All edges between tasks of a plan that lane order and launch order do not give already."""
    boxes = _boxes(plan)
    groups, cells = _group(plan, boxes)
    edges = _neighbours(cells.only(cells.owner < 0)), _successions(cells.only(cells.owner >= 0))
    before, after, lag, over = (np.concatenate(c) for c in zip(*edges, strict=True))
    rows = distinct_rows(before, after, lag, over)[0].T
    pairing = Pairing(groups, rows[0], rows[1], rows[2], rows[3] == 0)
    pairing = pairing.only(changes(*rows[:3]))
    return pairing.only(~_ordered_anyway(plan, pairing))


@dataclass(frozen=True)
class _Boxes:
    """Non-empty accesses of memory that is written at all; `space` tells memories apart.

    An access of a buffer that shares bytes with others comes a second time, as the bytes from its
    first to its last: there `owner` is its buffer, else -1.
    """

    task: Longs
    write: Longs
    space: Longs
    owner: Longs
    rank: Longs
    lo: Longs
    hi: Longs

    def __add__(self, other: _Boxes) -> _Boxes:
        names = [f.name for f in fields(self)]
        return _Boxes(*(np.concatenate([getattr(self, n), getattr(other, n)]) for n in names))


def _boxes(plan: Plan) -> _Boxes:
    accesses = plan.accesses
    buffer = longs(accesses.buffer)
    write = longs((accesses.mode & int(Mode.WRITE)) > 0)
    live = ~accesses.empty
    written = np.zeros(len(plan.buffers), np.bool_)
    written[buffer[(write == 1) & live]] = True
    keep = np.flatnonzero(live & written[buffer])
    # An access that reads and writes is two.
    both = keep[(write[keep] == 1) & ((accesses.mode[keep] & int(Mode.READ)) > 0)]
    rows = np.concatenate([keep, both])
    exact = _Boxes(
        longs(accesses.task[rows]),
        np.concatenate([write[keep], np.zeros(len(both), np.int64)]),
        buffer[rows],
        np.full(len(rows), -1),
        longs(accesses.rank[rows]),
        accesses.lo[rows],
        accesses.hi[rows],
    )
    space, shared = memory_spaces(plan.buffers)
    rows = np.flatnonzero(live & shared[buffer])
    lo, hi = accesses.lo[rows], accesses.hi[rows]
    by_buffer = np.argsort(buffer[rows], kind="stable")
    start = offsets(buffer[rows][by_buffer], len(plan.buffers)).tolist()
    for one, (a, b) in zip(plan.buffers, pairwise(start), strict=True):
        mine = by_buffer[a:b]
        lo[mine], hi[mine] = byte_intervals(one, lo[mine], hi[mine])
    return exact + _Boxes(
        longs(accesses.task[rows]),
        write[rows],
        len(plan.buffers) + space[buffer[rows]],
        buffer[rows],
        longs(accesses.rank[rows]),
        lo,
        hi,
    )


def memory_spaces(buffers: tuple[Buffer, ...]) -> tuple[Longs, Bools]:
    """Number buffers so that those which share bytes share a number [B]; and which do share [B]."""
    space = np.arange(len(buffers))
    flat = np.zeros(len(buffers), np.bool_)
    placed = [i for i, b in enumerate(buffers) if b.offset_bytes >= 0]
    placed.sort(key=lambda i: buffers[i].offset_bytes)
    end, previous = -1, -1
    for i in placed:
        start = buffers[i].offset_bytes
        if start < end:
            space[i] = space[previous]
            flat[i] = flat[previous] = True
        if previous < 0 or start + buffers[i].size_bytes * buffers[i].copies > end:
            end = start + buffers[i].size_bytes * buffers[i].copies
        previous = i
    return space, flat


def byte_intervals(buffer: Buffer, lo: Longs, hi: Longs) -> tuple[Longs, Longs]:
    """The bytes from first to last of boxes, as one-dimensional boxes padded with [0, 1)."""
    strides = np.cumprod([1, *buffer.capacity[:0:-1]])[::-1] * DTYPE_BYTES[buffer.dtype]
    dims = len(buffer.capacity)
    flat_lo, flat_hi = np.zeros_like(lo), np.ones_like(hi)
    flat_lo[:, 0] = buffer.offset_bytes + (lo[:, :dims] * strides).sum(axis=1)
    last = buffer.offset_bytes + ((hi[:, :dims] - 1) * strides).sum(axis=1)
    flat_hi[:, 0] = last + DTYPE_BYTES[buffer.dtype]
    return flat_lo, flat_hi


@dataclass(frozen=True)
class _Cells:
    """Rows: `group` touches `cell` at a `position` in program order; see `_Boxes` for the rest."""

    cell: Longs
    position: Longs
    write: Longs
    owner: Longs
    group: Longs

    def only(self, keep: Bools) -> _Cells:
        return _Cells(*(getattr(self, f.name)[keep] for f in fields(self)))


def _group(plan: Plan, boxes: _Boxes) -> tuple[Groups, _Cells]:
    """Groups, and the cells that they touch."""
    op, lane = longs(plan.tasks.op)[boxes.task], longs(plan.tasks.lane)[boxes.task]
    own = _position_in_op(plan, boxes, op)
    key = np.column_stack([op, boxes.write, boxes.space, boxes.rank, lane, own, boxes.lo, boxes.hi])
    if not len(key):
        empty = np.zeros(0, np.int64)
        none = Groups(empty, empty, empty, empty, empty, np.zeros(1, np.int64), empty)
        return none, _Cells(empty, empty, empty, empty, empty)
    seq = plan.tasks.seq[boxes.task]
    order = np.lexsort((seq, *key.T[::-1]))
    first = changes(*key[order].T)
    row = order[first]
    members = boxes.task[order]
    groups = Groups(
        op[row],
        lane[row],
        longs(plan.tasks.rank)[boxes.task[row]],
        members[first],
        members[last_of_run(first)],
        np.append(np.flatnonzero(first), len(members)),
        members,
    )
    cell, group = _cells(boxes, row)
    position = op[row] * (int(own.max()) + 2) + own[row] + 1
    owner = boxes.owner[row]
    return groups, _Cells(cell, position[group], boxes.write[row][group], owner[group], group)


def _position_in_op(plan: Plan, boxes: _Boxes, op: Longs) -> Longs:
    """A task's place in its op's grid, where that may matter; else -1.

    It does for writes, and for reads where the op writes the same memory too.
    """
    spaces = len(plan.buffers) + 1
    key = op * spaces + boxes.space
    reads, writes = np.unique(key[boxes.write == 0]), np.unique(key[boxes.write == 1])
    meets_itself = np.isin(key, np.intersect1d(reads, writes))
    first_task = offsets(longs(plan.tasks.op), len(plan.ops))
    tasks_a_rank = np.maximum(np.diff(first_task) // plan.ranks, 1)
    place = (boxes.task - first_task[op]) % tasks_a_rank[op]
    matters = (boxes.owner < 0) & (meets_itself | (boxes.write == 1))
    return np.where(matters, place, -1)


def _cells(boxes: _Boxes, row: Longs) -> tuple[Longs, Longs]:
    """Cells that each group touches: (cell number, group), memories told apart."""
    space, rank, write = boxes.space[row], boxes.rank[row], boxes.write[row]
    cells, owners, base = list[Longs](), list[Longs](), 0
    by_space = np.argsort(space, kind="stable")
    for mine in np.split(by_space, np.flatnonzero(np.diff(space[by_space])) + 1):
        lo, hi = boxes.lo[row[mine]], boxes.hi[row[mine]]
        written = (write[mine] == 1) | (boxes.owner[row[mine]] >= 0)
        owner: Longs = np.arange(len(mine))
        cell: Longs = rank[mine]
        size = int(rank.max()) + 1
        for d in range(lo.shape[1]):
            edges = np.concatenate([lo[written, d], hi[written, d]])
            cuts = longs(np.unique(edges))
            first, end = lo[owner, d], hi[owner, d]
            a = np.maximum(longs(cuts.searchsorted(first, "right")) - 1, 0)
            b = np.minimum(longs(cuts.searchsorted(end)), len(cuts) - 1)
            many = np.maximum(b - a, 0)
            cell = longs(np.repeat(cell * len(cuts), many)) + spans(a, many)
            owner = longs(np.repeat(owner, many))
            size *= len(cuts)
        cells.append(base + cell)
        owners.append(mine[owner])
        base += size
    return np.concatenate(cells), np.concatenate(owners)


_Edges = tuple[Longs, Longs, Longs, Longs]  # before, after, lag, whether that overwrites


def _neighbours(cells: _Cells) -> _Edges:
    """Edges between neighbours in each cell's cycle of accesses."""
    order = np.lexsort((cells.write, cells.position, cells.cell))
    cell, write, group = cells.cell[order], cells.write[order] == 1, cells.group[order]
    count = len(order)
    here = np.arange(count)
    start = np.maximum.accumulate(np.where(changes(cell), here, 0)) if count else here
    run_end = last_of_run(changes(cell))
    end = np.minimum.accumulate(np.where(run_end, here, count)[::-1])[::-1]

    last_write = np.maximum.accumulate(np.where(write, here, -1)) if count else here
    previous = np.concatenate([[-1], last_write[:-1]]) if count else here
    wrapped_back = previous < start
    previous = np.where(wrapped_back, last_write[end], previous)
    next_write = np.minimum.accumulate(np.where(write, here, count)[::-1])[::-1]
    following = np.append(next_write[1:], count) if count else here
    wrapped = following > end
    following = np.where(wrapped, next_write[start], following)

    read = np.flatnonzero(~write & (previous >= start) & (previous <= end))
    raw = previous[read], read, wrapped_back[read]
    war = read, following[read], wrapped[read]
    neighbour = np.where(here == end, start, here + 1)
    alone = np.flatnonzero(write & (following == neighbour))
    waw = alone, following[alone], wrapped[alone]
    before, after, lag = (np.concatenate(parts) for parts in zip(raw, war, waw, strict=True))
    return group[before], group[after], longs(lag), longs(np.arange(len(before)) >= len(read))


def _successions(cells: _Cells) -> _Edges:
    """Edges where bytes go from one buffer to the next: what conflicts, of all accesses of both.

    A buffer that only reads a cell holds nobody back from reading, so what came before it is also
    held against what comes after.
    """
    order = np.lexsort((cells.owner, cells.position, cells.cell))
    cell, owner, group = cells.cell[order], cells.owner[order], cells.group[order]
    write = cells.write[order] == 1
    start = np.flatnonzero(changes(cell, owner))
    size = np.diff(np.append(start, len(cell)))
    writes = np.maximum.reduceat(write, start) if len(start) else write
    first = changes(cell[start])
    number = np.arange(len(start))
    last = last_of_run(first)
    following = np.where(last, np.maximum.accumulate(np.where(first, number, 0)), number + 1)
    alike = _alike(group * 2 + write, start)
    edges = [(number[:0],) * 3]
    run, after, lag = number, following, longs(last)
    # Of a cell that one buffer touches there is nothing to hand on.
    while len(live := np.flatnonzero(after != run)):
        run, after, lag = run[live], after[live], lag[live]
        _, once = np.unique(distinct_rows(alike[run], alike[after], lag)[1], return_index=True)
        many = size[run[once]] * size[after[once]]
        which, at = np.repeat(once, many), spans(np.zeros_like(many), many)
        width = size[after[which]]
        x, y = start[run[which]] + at // width, start[after[which]] + at % width
        conflict = write[x] | write[y]
        edges.append((group[x[conflict]], group[y[conflict]], lag[which[conflict]]))
        over = ~writes[after]
        run, lag, after = run[over], lag[over] + last[after[over]], following[after[over]]
    before, after, lag = (np.concatenate(parts) for parts in zip(*edges, strict=True))
    return before, after, longs(lag), np.ones_like(before)


def _alike(value: Longs, start: Longs) -> Longs:
    """A number for each run of values, the same for runs of the same values in any order.

    Sets as sums of what looks random: two that differ have one sum once in 2^64.
    """
    total = np.add.reduceat(mix(value.astype(np.uint64)), start) if len(start) else start
    return total.view(np.int64)


def _ordered_anyway(plan: Plan, pairing: Pairing) -> Bools:
    """Edges that need no signal: one static lane's own order, and launches of one rank."""
    groups, before, after = pairing.groups, pairing.before, pairing.after
    same_rank = groups.rank[before] == groups.rank[after]
    same_lane = groups.lane[before] == groups.lane[after]
    static = np.array([o is LaneOrder.STATIC for o in plan.lanes.order], np.bool_)
    # A transfer that lands later is in lane order only where the lane waits for it to land.
    lands_late = np.array([op.deferred for op in plan.ops], np.bool_)[groups.op[before]]
    in_order = static[groups.lane[before]] & (~lands_late | plan.lanes.fifo[groups.lane[before]])
    seq = plan.tasks.seq
    follows = seq[groups.last[before]] < seq[groups.first[after]]
    across = same_rank if plan.boundary is Boundary.STREAM else same_lane & in_order
    later = pairing.lag > 0
    ordered = (later & across) | (~later & same_lane & in_order & follows)
    hand_over = np.array([op.kind in (OpKind.ACQUIRE, OpKind.RELEASE) for op in plan.ops], np.bool_)
    with_host = hand_over[groups.op[before]] | hand_over[groups.op[after]]
    itself = (groups.first[before] == groups.first[after]) & (pairing.lag == 0)
    return ordered | (with_host & same_rank) | (before == after) | itself
