"""Race freedom: any two accesses to the same bytes, not both reads and not both adds, are ordered.

The touches of each cell are swept in an order that agrees with happens-before. Neighbouring runs
that conflict (a run of reads, a run of adds, one write) must be ordered whole; by transitivity that
orders every conflict, with at most two questions an access. The sweep goes round once into the
next launch that meets the cell, and epoch separation carries the result to any number of launches.

Source: DESIGN.md section 7.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ditron.analysis.arrays import longs
from ditron.analysis.cell_grid import byte_intervals
from ditron.analysis.counterexample import Edge, Race
from ditron.analysis.hand_overs import check_handed_over
from ditron.analysis.happens_before import HappensBefore, assume_separation
from ditron.analysis.plan_records import access_record, lanes_around
from ditron.analysis.separation import check_separation
from ditron.analysis.sweep import Swept, sweep, unordered_pairs
from ditron.analysis.touches import find_touches
from ditron.errors import RaceError
from ditron.plan.tables import Longs, Mode, Plan


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
    swept = _sweep(order, place)
    # Last, since what lacks a wait most often shows as a race too, and that says more.
    if not proved:
        check_separation(order)
    check_handed_over(order.columns)
    return RaceReport(
        tasks=len(plan.tasks),
        accesses=len(plan.accesses),
        cells=swept.cells,
        touches=swept.touches,
        pairs=swept.pairs,
        waits=len(plan.waits),
        slots=len(plan.slots),
        launches=order.launches,
    )


def _sweep(order: HappensBefore, place: Longs) -> Swept:
    """Compare all touches, coarsely first, then what that does not show to be ordered.

    Raises:
        RaceError: there are two that nothing orders.
    """
    within, cells, rows, pairs = None, 0, 0, 0
    for grouped, coarse in ((True, True), (True, False), (False, False)):
        touches = find_touches(
            order.columns, place, grouped=grouped, coarse=coarse, whole=coarse, within=within
        )
        swept = sweep(order, place, touches)
        cells, rows, pairs = cells + swept.cells, rows + swept.touches, pairs + swept.pairs
        if not len(swept.unordered):
            return replace(swept, cells=cells, touches=rows, pairs=pairs)
        within = touches.where(swept.unordered)
    a, b, gap = (np.concatenate(c) for c in zip(*unordered_pairs(order, touches), strict=True))
    row = int(np.argmin(gap))
    found = _explain(order, int(a[row]), int(b[row]), int(gap[row]), len(a) - 1)
    raise RaceError(found.text, found.where, found)


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
