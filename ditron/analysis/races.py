"""Race freedom: any two accesses to the same bytes, not both reads and not both adds, are ordered.

The touches of each cell are swept in an order that agrees with happens-before. Neighbouring runs
that conflict (a run of reads, a run of adds, one write) must be ordered whole; by transitivity that
orders every conflict, with at most two questions an access. The sweep goes round once into the
next launch that meets the cell, and epoch separation carries the result to any number of launches.

Source: DESIGN.md section 7.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ditron.analysis.arrays import changes, last_of_run, longs, offsets, spans
from ditron.analysis.counterexample import Edge, Race
from ditron.analysis.hand_overs import check_handed_over
from ditron.analysis.happens_before import HappensBefore, assume_separation
from ditron.analysis.plan_records import access_record, lanes_around
from ditron.analysis.separation import check_separation
from ditron.analysis.touches import WRITE, Touches, byte_intervals, find_touches
from ditron.analysis.whole_runs import SetPairs, ordered_whole
from ditron.errors import RaceError
from ditron.plan.tables import Bools, Boundary, Longs, Mode, Plan

# Pairs that are compared at once.
BATCH = 1 << 22


@dataclass(frozen=True)
class RaceReport:
    """What was compared. `pairs` were asked of happens-before, the others follow."""

    tasks: int
    accesses: int
    cells: int
    touches: int
    pairs: int
    waits: int
    slots: int
    launches: int


def check_races(plan: Plan, order: HappensBefore | None = None) -> RaceReport:
    """Prove that no two launches' accesses race, that waits are exact and epochs separated.

    Raises:
        RaceError: the two accesses, and what would order them.
        DeadlockError: tasks that wait for each other.
        PlanError: tables that mean nothing.
    """
    proved = order is not None
    order = order or assume_separation(plan)
    place = order.graph.task_order(order.columns)
    touches, pairs = _sweep(order, place)
    # Last, since what lacks a wait most often shows as a race too, and that says more.
    if not proved:
        check_separation(order)
    check_handed_over(order.columns)
    return RaceReport(
        tasks=len(plan.tasks),
        accesses=len(plan.accesses),
        cells=int(changes(touches.cell).sum()),
        touches=len(touches),
        pairs=pairs,
        waits=len(plan.waits),
        slots=len(plan.slots),
        launches=order.launches,
    )


def _sweep(order: HappensBefore, place: Longs) -> tuple[Touches, int]:
    """Compare all touches, coarsely first; how many pairs that took."""
    for grouped, coarse in ((True, True), (True, False)):
        touches = find_touches(order.columns, place, grouped=grouped, coarse=coarse)
        runs = find_runs(touches)
        pairs = 0 if runs.interrupted(place).any() else _count_ordered(order, runs)
        if pairs:
            return touches, pairs
    touches = find_touches(order.columns, place, grouped=False, coarse=False)
    return touches, _count_ordered(order, find_runs(touches), explain=True)


def _count_ordered(order: HappensBefore, runs: Runs, *, explain: bool = False) -> int:
    """How many pairs were asked for, or 0 if one of them is not ordered."""
    touches, compared = runs.touches, _compared(order, runs)
    sure = _whole(order, runs, compared)
    pairs = int((compared.sets.m + compared.sets.n)[sure].sum())
    for before, after, gap in _pairs(runs, compared, np.flatnonzero(~sure)):
        a, b = touches.last[before], touches.first[after]
        sure = order.ordered(a, 0, b, gap) | _before_its_end(order, a, b, gap)
        pairs += len(a)
        if sure.all():
            continue
        if not explain:
            return 0
        bad = np.flatnonzero(~sure)
        row = int(bad[np.argmin(gap[bad])])
        found = _explain(order, int(a[row]), int(b[row]), int(gap[row]), len(bad) - 1)
        raise RaceError(found.text, found.where, found)
    return pairs


def _before_its_end(order: HappensBefore, a: Longs, b: Longs, gap: Longs) -> Bools:
    """Whether `b` is the host's that takes a buffer back, and `a` before its rank's launch ends.

    All that a rank does in a launch is before its next acquire, which waits for nothing else. This
    tells what reached a task of the rank that has nothing to do, and so no touch in between.
    """
    columns, plan = order.columns, order.columns.plan
    acquire = np.full(plan.ranks, -1)
    acquire[columns.rank[columns.acquires]] = np.flatnonzero(columns.acquires)
    following = acquire[columns.rank[b]]
    told = columns.releases[b] & (gap == 0) & (following >= 0)
    if plan.boundary is not Boundary.STREAM or not told.any():
        return np.zeros(len(a), np.bool_)
    return told & order.ordered(a, 0, np.where(told, following, 0), 1)


@dataclass(frozen=True)
class Runs:
    """Runs of touches of a cell that may come in any order: `start` [N + 1], `run` of each row."""

    touches: Touches
    start: Longs
    run: Longs
    first_of_cell: Bools

    def interrupted(self, place: Longs) -> Bools:
        """Rows whose group goes on after the next run of the cell has begun."""
        touches = self.touches
        end = touches.time - place[touches.first] + place[touches.last]
        following = self.start[self.run + 1]
        inside = following < len(touches)
        following = np.where(inside, following, 0)
        inside &= touches.cell[following] == touches.cell
        return inside & (end > touches.time[following]) if len(touches) else inside


def find_runs(touches: Touches) -> Runs:
    """Cut each cell's touches where they stop being of one kind; a write is a run by itself."""
    first = changes(touches.cell, touches.kind) | (touches.kind == WRITE)
    start = np.append(np.flatnonzero(first), len(touches)).astype(np.int64)
    return Runs(touches, start, longs(np.cumsum(first) - 1), changes(touches.cell[start[:-1]]))


def run_pairs(runs: Runs) -> tuple[Longs, Longs, Bools]:
    """Neighbouring runs of each cell, and whether the second is in the cell's next launch."""
    touches, start = runs.touches, runs.start[:-1]
    kind = touches.kind[start]
    number = np.arange(len(start))
    within = number[~runs.first_of_cell]
    head = number[runs.first_of_cell]
    tail = number[last_of_run(runs.first_of_cell)]
    # Reads at the end and at the start of a cell's launch are one run.
    merged = (kind[head] == kind[tail]) & (kind[head] != WRITE)
    joined = merged & (head != tail)
    before = [within - 1, tail[~merged], tail[joined] - 1, tail[joined]]
    after = [within, head[~merged], head[joined], head[joined] + 1]
    wraps = np.zeros(sum(map(len, before)), np.bool_)
    wraps[len(within) :] = True
    return np.concatenate(before), np.concatenate(after), wraps


@dataclass(frozen=True)
class _Compared:
    """Neighbouring runs, as sets of rows of touches: `before` of one, `after` of the next."""

    sets: SetPairs
    wraps: Bools
    one_phase: bool


def _compared(order: HappensBefore, runs: Runs) -> _Compared:
    touches = runs.touches
    before, after, wraps = run_pairs(runs)
    sources, source_start = _of_runs(order, runs, last=True)
    targets, target_start = _of_runs(order, runs, last=False)
    period = np.append(touches.period, 0)[runs.start[after]]
    sets = SetPairs(
        before=sources,
        before_start=source_start[before],
        m=np.diff(source_start)[before],
        after=targets,
        after_start=target_start[after],
        n=np.diff(target_start)[after],
        gap=longs(wraps) * period,
    )
    # Cells of bytes that copies of buffers share are met in several phases of a launch.
    return _Compared(sets, wraps, one_phase=not touches.phase.any())


def _whole(order: HappensBefore, runs: Runs, compared: _Compared) -> Bools:
    """The pairs of runs that one look shows to be ordered, where some are large."""
    sets, touches = compared.sets, runs.touches
    if not (len(sets.big()) and compared.one_phase):
        return np.zeros(len(sets.m), np.bool_)
    tasks = replace(sets, before=touches.last[sets.before], after=touches.first[sets.after])
    return ordered_whole(order, tasks, np.arange(len(sets.m)), begun=False)


def _pairs(runs: Runs, compared: _Compared, rest: Longs) -> Iterator[tuple[Longs, Longs, Longs]]:
    """Rows to compare, and how many launches the second is later, in batches."""
    touches, sets = runs.touches, compared.sets
    total = np.cumsum(sets.m[rest] * sets.n[rest])
    for part in np.split(rest, np.flatnonzero(np.diff(total // BATCH, prepend=0))):
        many = sets.m[part] * sets.n[part]
        which = np.repeat(part, many)
        at = spans(np.zeros_like(many), many)
        width = sets.n[which]
        a = sets.before[sets.before_start[which] + at // width]
        b = sets.after[sets.after_start[which] + at % width]
        gap = touches.phase[b] - touches.phase[a] + compared.wraps[which] * touches.period[a]
        yield a, b, gap


def _of_runs(order: HappensBefore, runs: Runs, *, last: bool) -> tuple[Longs, Longs]:
    """The rows of each run that stand for all: the last (or first) of each static lane."""
    touches, columns = runs.touches, order.columns
    size = np.diff(runs.start)
    long_run = size[runs.run] > 1 if len(touches) else np.zeros(0, np.bool_)
    task = touches.last if last else touches.first
    lane = columns.lane[task]
    if last:
        lane = np.where(columns.loose[task], len(columns.lane_size) + np.arange(len(task)), lane)
    # Nothing tells queued tasks of one class apart.
    alike = order.graph.source_class if last else order.graph.last_row
    phases = int(touches.phase.max(initial=0)) + 1
    queued = -1 - (alike[task] * phases + touches.phase)
    lane = np.where(columns.queued[task], queued, lane)
    rows = np.flatnonzero(long_run)
    keys = (columns.seq[task[rows]], touches.phase[rows], lane[rows], runs.run[rows])
    rows = rows[np.lexsort(keys)]
    first = changes(runs.run[rows], lane[rows])
    keep = ~long_run
    keep[rows[last_of_run(first) if last else first]] = True
    kept = np.flatnonzero(keep).astype(np.int64)
    return kept, offsets(runs.run[kept], len(size))


def _explain(order: HappensBefore, a: int, b: int, gap: int, more: int) -> Race:
    """The two accesses that meet, and the edge that would order them."""
    plan = order.plan
    x, y = _conflict(plan, a, b, gap)
    if gap == 0 and _writes_again(order, x, y):
        a, b, x, y = b, a, y, x
    first, second = access_record(plan, x), access_record(plan, y)
    after = "put" if plan.ops[int(plan.tasks.op[a])].deferred else "end"
    missing = Edge(first.task, after, second.task, gap)
    return Race(lanes_around(plan, [(a, 0), (b, gap)]), first, second, gap, missing, more)


def _writes_again(order: HappensBefore, write: int, read: int) -> bool:
    """Whether a write is of a later use of the bytes than a read: it lacks a credit.

    So it is where the read has its data from a write before both, and the write a reader of its
    own that comes after it.
    """
    accesses = order.plan.accesses
    if accesses.mode[write] != Mode.WRITE or accesses.mode[read] != Mode.READ:
        return False
    near = (accesses.buffer == accesses.buffer[write]) & (accesses.rank == accesses.rank[write])
    low = np.maximum(accesses.lo[write], accesses.lo[read])
    high = np.minimum(accesses.hi[write], accesses.hi[read])
    near &= ((accesses.lo < high) & (accesses.hi > low)).all(axis=1)
    rows = np.flatnonzero(near & ~order.columns.acquires[accesses.task])
    task, a, b = longs(accesses.task)[rows], int(accesses.task[write]), int(accesses.task[read])
    before = order.ordered(task, 0, a, 0) & order.ordered(task, 0, b, 0)
    after = order.ordered(a, 0, task, 0)
    writes = accesses.mode[rows] == Mode.WRITE
    return bool((before & writes).any() and (after & ~writes).any())


def _conflict(plan: Plan, a: int, b: int, gap: int) -> tuple[int, int]:
    """Accesses of two tasks that meet, conflicting ones first."""
    accesses = plan.accesses
    found: list[tuple[bool, int, int]] = []
    for x in plan.accesses_of(a):
        for y in plan.accesses_of(b):
            if accesses.rank[x] == accesses.rank[y] and _meet(plan, x, y, gap):
                modes = int(accesses.mode[x]), int(accesses.mode[y])
                calm = modes in ((Mode.READ, Mode.READ), (Mode.ADD, Mode.ADD))
                found.append((calm, x, y))
    assert found, "tasks that touch one cell meet"
    return min(found)[1:]


def _meet(plan: Plan, x: int, y: int, gap: int) -> bool:
    accesses = plan.accesses
    if accesses.empty[x] or accesses.empty[y]:
        return False
    one, two = int(accesses.buffer[x]), int(accesses.buffer[y])
    if one == two and gap % plan.buffers[one].copies == 0:
        lo = np.maximum(accesses.lo[x], accesses.lo[y])
        return bool((lo < np.minimum(accesses.hi[x], accesses.hi[y])).all())
    lo, hi = byte_intervals(plan, longs([x, y]))
    copies = max(plan.buffers[one].copies, plan.buffers[two].copies)
    apart = copies > 1  # copies lie elsewhere; any pair of them may be the one
    return apart or bool(max(lo) < min(hi))
