"""Epoch separation: a slot's next use begins after every wait for this one.

Source: DESIGN.md section 4, pass 9.
"""

from __future__ import annotations

import numpy as np

from ditron.analysis.arrays import changes, longs, offsets, spans
from ditron.analysis.counterexample import Edge, EpochNotSeparated
from ditron.analysis.happens_before import HappensBefore, assume_separation
from ditron.analysis.plan_records import lanes_around, slot_record, task_record
from ditron.analysis.whole_runs import SetPairs, ordered_whole
from ditron.errors import RaceError
from ditron.plan.tables import Longs, Plan

# Pairs of (wait, increment) that are compared at once.
BATCH = 1 << 22


def happens_before(plan: Plan) -> HappensBefore:
    """Happens-before of a plan whose waits are exact and whose epochs are separated.

    Raises:
        RaceError: a wait that may pass after the wrong increments.
        DeadlockError: tasks that wait for each other.
        PlanError: tables that mean nothing.
    """
    order = assume_separation(plan)
    check_separation(order)
    return order


def check_separation(order: HappensBefore) -> None:
    """Every wait of a launch is before every increment of the slot's next use, or one lane's.

    Only the first notifier of each static lane needs comparing.

    Raises:
        RaceError: an increment that may come before the wait for the slot's previous use.
    """
    plan = order.plan
    waits, notifies = plan.waits, plan.notifies
    wait, note = _separated_waits(order), _first_notifies(order)
    wait = _not_whole(order, wait, note)
    start = offsets(longs(notifies.slot)[note], len(plan.slots))
    slot = longs(waits.slot)[wait]
    many = start[slot + 1] - start[slot]
    batches = np.flatnonzero(np.diff(np.cumsum(many) // BATCH, prepend=0)) if len(wait) else wait
    for part in np.split(np.arange(len(wait)), batches):
        which = np.repeat(wait[part], many[part])
        by = note[spans(start[slot[part]], many[part])]
        lag = longs(waits.lag)[which]
        copies = longs(plan.slots.copies)[waits.slot[which]]
        sure = order.begun(waits.task[which], lag, notifies.task[by], copies)
        if not sure.all():
            bad = int(np.flatnonzero(~sure)[0])
            found = _unseparated(plan, int(which[bad]), int(by[bad]))
            raise RaceError(found.text, found.where, found)


def _not_whole(order: HappensBefore, wait: Longs, note: Longs) -> Longs:
    """Leave out the waits on slots that many wait for, where one look shows them all separated."""
    plan, slots = order.plan, len(order.plan.slots)
    slot, lag = longs(plan.waits.slot)[wait], longs(plan.waits.lag)[wait]
    by_set = np.lexsort((lag, slot))
    wait, slot, lag = wait[by_set], slot[by_set], lag[by_set]
    head = np.flatnonzero(changes(slot, lag))
    note_start = offsets(longs(plan.notifies.slot)[note], slots)
    sets = SetPairs(
        before=longs(plan.waits.task)[wait],
        before_start=head,
        m=np.diff(np.append(head, len(wait))),
        after=longs(plan.notifies.task)[note],
        after_start=note_start[slot[head]],
        n=np.diff(note_start)[slot[head]],
        gap=longs(plan.slots.copies)[slot[head]] - lag[head],
    )
    big = sets.big()
    big = big[(sets.gap[big] >= 0) & (sets.gap[big] < order.launches)]
    if not len(big):
        return wait
    sure = np.zeros(len(head), np.bool_)
    sure[big] = ordered_whole(order, sets, big, begun=True)
    return wait[~np.repeat(sure, sets.m)]


def _separated_waits(order: HappensBefore) -> Longs:
    """Rows of waits that need separation, one of each class of queued tasks."""
    waits, graph, queued = order.plan.waits, order.graph, order.columns.queued
    wait = graph.waits[~order.arrivals.ordered[waits.slot[graph.waits]]]
    task = longs(waits.task)[wait]
    plain = wait[~queued[task]]
    wait, task = wait[queued[task]], task[queued[task]]
    keys = (graph.source_class[task], longs(waits.lag)[wait], longs(waits.slot)[wait])
    rows = np.lexsort(keys)
    first = changes(*(key[rows] for key in keys))
    return np.concatenate([plain, wait[rows[first]]])


def _first_notifies(order: HappensBefore) -> Longs:
    """Rows of notifies that are the first on their slot and lane, sorted by slot.

    Of queued tasks one that stands for all that know the same.
    """
    columns, notifies = order.columns, order.plan.notifies
    task, slot = longs(notifies.task), longs(notifies.slot)
    row = len(columns.lane_size) + order.graph.last_row[task]
    lane = np.where(columns.queued[task], row, columns.lane[task])
    rows = np.lexsort((columns.seq[task], lane, slot))
    return longs(rows[changes(slot[rows], lane[rows])])


def _unseparated(plan: Plan, wait: int, notify: int) -> EpochNotSeparated:
    waits, slots = plan.waits, plan.slots
    waiter, slot = int(waits.task[wait]), int(waits.slot[wait])
    maker, copies = int(plan.notifies.task[notify]), int(slots.copies[slot])
    lag = int(waits.lag[wait])
    first, second = task_record(plan, waiter), task_record(plan, maker)
    gap = copies - lag
    return EpochNotSeparated(
        lanes=lanes_around(plan, [(waiter, 0), (maker, max(0, gap))]),
        waiter=first,
        slot=slot_record(plan, slot),
        value=int(waits.value[wait]),
        lag=lag,
        copies=copies,
        notifier=second,
        missing=Edge(first, "end", second, gap) if gap >= 0 else None,
    )
