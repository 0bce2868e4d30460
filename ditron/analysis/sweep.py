"""Touches of each cell in some order: runs that may come in any order, and what neighbours lack.

A run is of reads, of adds, one write, or, in cells of bytes, of what one buffer does. If all of a
run is before all of the next, every conflict of the cell is ordered by transitivity, with at most
two questions a touch. The sweep goes round once, into the next launch that meets the cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ditron.analysis.arrays import changes, distinct, last_of_run, longs, offsets, spans
from ditron.analysis.happens_before import HappensBefore
from ditron.analysis.touches import WRITE, Touches
from ditron.analysis.whole_runs import SetPairs, ordered_whole
from ditron.plan.tables import Bools, Boundary, Longs

# Pairs that are compared at once.
BATCH = 1 << 22


@dataclass(frozen=True)
class Swept:
    """What of some touches is ordered: so many cells, touches in them, and pairs asked for.

    `unordered` are the other cells, sorted.
    """

    cells: int
    touches: int
    pairs: int
    unordered: Longs


def sweep(order: HappensBefore, place: Longs, touches: Touches) -> Swept:
    """Which cells' touches are ordered; `place` [T] is the order that they are sorted by."""
    runs = find_runs(touches)
    neighbours = _neighbours(order, runs)
    sets = neighbours.sets
    sure = _whole(order, runs, neighbours)
    asked = np.where(sure, sets.m + sets.n, sets.m * sets.n)
    rest = np.flatnonzero(~sure)
    sure[rest] = True
    for which, a, b, gap in _pairs(runs, neighbours, rest):
        sure[which[~_ordered(order, a, b, gap)]] = False
    bad = np.concatenate([neighbours.cell[~sure], touches.cell[runs.interrupted(place)]])
    bad = distinct(bad)
    good = ~np.isin(touches.cell, bad)
    return Swept(
        cells=int(changes(touches.cell[good]).sum()),
        touches=int(good.sum()),
        pairs=int(asked[~np.isin(neighbours.cell, bad)].sum()),
        unordered=bad,
    )


def unordered_pairs(order: HappensBefore, touches: Touches) -> Iterator[tuple[Longs, Longs, Longs]]:
    """Of neighbouring runs, tasks that nothing orders and how many launches the second is later."""
    runs = find_runs(touches)
    neighbours = _neighbours(order, runs)
    for _, a, b, gap in _pairs(runs, neighbours, np.flatnonzero(~_whole(order, runs, neighbours))):
        bad = ~_ordered(order, a, b, gap)
        yield a[bad], b[bad], gap[bad]


def _ordered(order: HappensBefore, a: Longs, b: Longs, gap: Longs) -> Bools:
    return order.ordered(a, 0, b, gap) | _before_its_end(order, a, b, gap)


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
class _Neighbours:
    """Neighbouring runs of a `cell` [P], as sets of rows of touches: of one, and of the next.

    `one_phase`: nothing is met in several phases of a launch, as copies of buffers are.
    """

    sets: SetPairs
    cell: Longs
    wraps: Bools
    one_phase: bool


def _neighbours(order: HappensBefore, runs: Runs) -> _Neighbours:
    touches = runs.touches
    before, after, wraps = run_pairs(runs)
    sources, source_start = _of_runs(order, runs, last=True)
    targets, target_start = _of_runs(order, runs, last=False)
    row = runs.start[after]
    sets = SetPairs(
        before=sources,
        before_start=source_start[before],
        m=np.diff(source_start)[before],
        after=targets,
        after_start=target_start[after],
        n=np.diff(target_start)[after],
        gap=longs(wraps) * touches.period[row],
    )
    return _Neighbours(sets, touches.cell[row], wraps, one_phase=not touches.phase.any())


def _whole(order: HappensBefore, runs: Runs, neighbours: _Neighbours) -> Bools:
    """The pairs of runs that one look shows to be ordered, where some are large."""
    sets, touches = neighbours.sets, runs.touches
    if not (len(sets.big()) and neighbours.one_phase):
        return np.zeros(len(sets.m), np.bool_)
    tasks = replace(sets, before=touches.last[sets.before], after=touches.first[sets.after])
    return ordered_whole(order, tasks, np.arange(len(sets.m)), begun=False)


def _pairs(
    runs: Runs, neighbours: _Neighbours, rest: Longs
) -> Iterator[tuple[Longs, Longs, Longs, Longs]]:
    """Of some pairs of runs: (pair, task, task, how many launches the second is later), batched."""
    touches, sets = runs.touches, neighbours.sets
    total = np.cumsum(sets.m[rest] * sets.n[rest])
    for part in np.split(rest, np.flatnonzero(np.diff(total // BATCH, prepend=0))):
        many = sets.m[part] * sets.n[part]
        which = np.repeat(part, many)
        at = spans(np.zeros_like(many), many)
        width = sets.n[which]
        a = sets.before[sets.before_start[which] + at // width]
        b = sets.after[sets.after_start[which] + at % width]
        gap = touches.phase[b] - touches.phase[a] + neighbours.wraps[which] * touches.period[a]
        yield which, touches.last[a], touches.first[b], gap


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
