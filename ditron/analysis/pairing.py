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
cells which a box touches tell exactly which writes it meets. Accesses of one op, lane and box form
a group, and groups are paired instead of tasks. Bytes that go from one buffer to another are
`analysis/turns.py`'s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ditron.analysis.arrays import (
    changes,
    distinct_rows,
    last_of_run,
    longs,
    offsets,
    sorted_by,
    spans,
)
from ditron.plan.tables import (
    Bools,
    Boundary,
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

    def __add__(self, other: Groups) -> Groups:
        """Both, the other's behind."""
        return Groups(
            np.append(self.op, other.op),
            np.append(self.lane, other.lane),
            np.append(self.rank, other.rank),
            np.append(self.first, other.first),
            np.append(self.last, other.last),
            np.append(self.start, len(self.tasks) + other.start[1:]),
            np.append(self.tasks, other.tasks),
        )

    @staticmethod
    def of_single(plan: Plan, tasks: Longs) -> Groups:
        """Each task by itself."""
        rows = plan.tasks
        return Groups(
            longs(rows.op)[tasks],
            longs(rows.lane)[tasks],
            longs(rows.rank)[tasks],
            tasks,
            tasks,
            np.arange(len(tasks) + 1),
            tasks,
        )


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


def pair(plan: Plan, *, last_of_lane: bool = False) -> Pairing:
    """All edges within buffers that lane order and launch order do not give already.

    `last_of_lane` leaves out that data are read after a task behind which its lane has another that
    they are read after.
    """
    boxes = _boxes(plan)
    groups, start, cells = _group(plan, boxes)
    rows = distinct_rows(*_neighbours(cells))[0]
    before, after, lag, over = rows[changes(*rows[:, :3].T)].T
    if last_of_lane:
        keep = _last_of_lanes(plan, groups, start, before, after, lag * 2 + over)
        before, after, lag, over = (c[keep] for c in (before, after, lag, over))
    # Of boxes: all tasks that read it, on all lanes.
    many = np.diff(start)
    m, n = many[before], many[after]
    each, at = np.repeat(np.arange(len(m)), m * n), spans(np.zeros_like(m), m * n)
    width = n[each]
    before, after = start[before[each]] + at // width, start[after[each]] + at % width
    pairing = Pairing(groups, before, after, lag[each], over[each] == 0)
    return pairing.only(~_ordered_anyway(plan, pairing))


def _last_of_lanes(
    plan: Plan, groups: Groups, start: Longs, before: Longs, after: Longs, kind: Longs
) -> Longs:
    """Edges between boxes but those from a lane that has a later one of that kind to the same."""
    group = start[before]
    single = start[before + 1] - group == 1
    lane = np.where(single & _in_order(plan, groups)[group], groups.lane[group], -1 - group)
    seq = longs(plan.tasks.seq)[groups.last[group]]
    order = sorted_by(after, kind, lane, seq)
    return order[last_of_run(changes(after[order], kind[order], lane[order]))]


@dataclass(frozen=True)
class _Boxes:
    """Non-empty accesses of buffers that are written at all."""

    task: Longs
    write: Longs
    buffer: Longs
    rank: Longs
    lo: Longs
    hi: Longs


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
    return _Boxes(
        longs(accesses.task[rows]),
        np.concatenate([write[keep], np.zeros(len(both), np.int64)]),
        buffer[rows],
        longs(accesses.rank[rows]),
        accesses.lo[rows],
        accesses.hi[rows],
    )


@dataclass(frozen=True)
class _Cells:
    """Rows: `box` touches `cell` at a `position` in program order, and may `write` it."""

    cell: Longs
    position: Longs
    write: Longs
    box: Longs


def _group(plan: Plan, boxes: _Boxes) -> tuple[Groups, Longs, _Cells]:
    """Groups, where those of each box that an op reads or a task writes start, and its cells."""
    op, lane = longs(plan.tasks.op)[boxes.task], longs(plan.tasks.lane)[boxes.task]
    own = _position_in_op(plan, boxes, op)
    seq, write = longs(plan.tasks.seq)[boxes.task], boxes.write
    of_box = [op, write, boxes.buffer, boxes.rank, np.where(write == 1, lane, -1), own]
    of_box += [*boxes.lo.T, *boxes.hi.T]
    order = sorted_by(*of_box, lane, seq)
    new_box = changes(*(column[order] for column in of_box))
    first = new_box | changes(lane[order])
    row, box = order[first], order[new_box]
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
    start = np.append(np.flatnonzero(new_box[first]), len(row))
    cell, touching = _cells(boxes, box)
    position = op[box] * (int(own.max(initial=0)) + 2) + own[box] + 1
    return groups, start, _Cells(cell, position[touching], write[box][touching], touching)


def _position_in_op(plan: Plan, boxes: _Boxes, op: Longs) -> Longs:
    """A task's place in its op's grid, where that may matter; else -1.

    It does for writes, and for reads where the op writes the same buffer too.
    """
    key = op * len(plan.buffers) + boxes.buffer
    reads, writes = np.unique(key[boxes.write == 0]), np.unique(key[boxes.write == 1])
    meets_itself = np.isin(key, np.intersect1d(reads, writes))
    first_task = offsets(longs(plan.tasks.op), len(plan.ops))
    tasks_a_rank = np.maximum(np.diff(first_task) // plan.ranks, 1)
    place = (boxes.task - first_task[op]) % tasks_a_rank[op]
    return np.where(meets_itself | (boxes.write == 1), place, -1)


def _cells(boxes: _Boxes, row: Longs) -> tuple[Longs, Longs]:
    """Cells that boxes touch: (cell number, which of `row`), buffers told apart."""
    buffer, rank, write = boxes.buffer[row], boxes.rank[row], boxes.write[row]
    none = np.zeros(0, np.int64)
    cells, owners, base = [none], [none], 0
    by_buffer = np.argsort(buffer, kind="stable")
    for mine in np.split(by_buffer, np.flatnonzero(np.diff(buffer[by_buffer])) + 1):
        lo, hi = boxes.lo[row[mine]], boxes.hi[row[mine]]
        written = write[mine] == 1
        owner: Longs = np.arange(len(mine))
        cell: Longs = rank[mine]
        size = int(rank.max(initial=0)) + 1
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
    order = sorted_by(cells.cell, cells.position, cells.write, cells.box)
    cell, write, box = cells.cell[order], cells.write[order] == 1, cells.box[order]
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
    return box[before], box[after], longs(lag), longs(np.arange(len(before)) >= len(read))


def _ordered_anyway(plan: Plan, pairing: Pairing) -> Bools:
    """Edges that need no signal: one static lane's own order, and launches of one rank."""
    groups, before, after = pairing.groups, pairing.before, pairing.after
    same_rank = groups.rank[before] == groups.rank[after]
    same_lane = groups.lane[before] == groups.lane[after]
    in_order = _in_order(plan, groups)[before]
    seq = plan.tasks.seq
    follows = seq[groups.last[before]] < seq[groups.first[after]]
    across = same_rank if plan.boundary is Boundary.STREAM else same_lane & in_order
    later = pairing.lag > 0
    ordered = (later & across) | (~later & same_lane & in_order & follows)
    hand_over = np.array([op.kind in (OpKind.ACQUIRE, OpKind.RELEASE) for op in plan.ops], np.bool_)
    with_host = hand_over[groups.op[before]] | hand_over[groups.op[after]]
    itself = (groups.first[before] == groups.first[after]) & (pairing.lag == 0)
    return ordered | (with_host & same_rank) | (before == after) | itself


def _in_order(plan: Plan, groups: Groups) -> Bools:
    """Groups that are done before what follows on their lane begins.

    A transfer that lands later is in lane order only where the lane waits for it to land.
    """
    static = np.array([o is LaneOrder.STATIC for o in plan.lanes.order], np.bool_)
    lands_late = np.array([op.deferred for op in plan.ops], np.bool_)[groups.op]
    return static[groups.lane] & (~lands_late | plan.lanes.fifo[groups.lane])
