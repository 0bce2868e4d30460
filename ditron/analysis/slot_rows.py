"""Rows (event, waiter) that need fewer slots: what lanes know already goes, what they share comes.

Events share a slot if exactly the same tasks wait for them. Where all lanes wait for all lanes, as
in a decode step, each event lacks one waiter, that of its own lane, and no two agree; a waiter that
has what it needs from earlier on its lane does the same harm. So three more ways to say the same
are weighed: without what an earlier task of the lane waited for, with waiters on the event's own
lane, and both.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ditron.analysis.arrays import changes, distinct_rows, longs, record_highs, spans
from ditron.plan.tables import Ints, Longs, Plan

Rows = tuple[Longs, Longs]


def fewest_slots(plan: Plan, rows: Rows, slots: Callable[[Rows], tuple[int, int]]) -> Rows:
    """Of the ways to say what rows [N] (event, waiter) say, for each op the one of fewest slots.

    Another way than the plain one has to save half of them, since what is plain has closed forms.

    Args:
        plan: of static lanes.
        rows: each waiter with the last event of each lane that it needs.
        slots: how many slots rows need, and how many notifies.
    """
    few = without_repeats(plan, rows)
    others = [few, with_own_lane(plan, rows, first=False), with_own_lane(plan, few, first=True)]
    found: list[Rows] = []
    ops = np.unique(plan.tasks.op[rows[0]])
    for plain, *rest in zip(*(_by_op(plan, way, ops) for way in (rows, *others)), strict=True):
        best = min(rest, key=slots)
        found.append(best if 2 * slots(best)[0] <= slots(plain)[0] else plain)
    event, waiter = (
        (np.concatenate([*part]) for part in zip(*found, strict=True)) if found else rows
    )
    return event, waiter


def _by_op(plan: Plan, rows: Rows, ops: Ints) -> list[Rows]:
    """The rows of each op's events."""
    event, waiter = rows
    op = plan.tasks.op[event]
    order = np.argsort(op, kind="stable")
    cuts = np.searchsorted(op[order], ops[1:])
    return list(zip(np.split(event[order], cuts), np.split(waiter[order], cuts), strict=True))


def without_repeats(plan: Plan, rows: Rows) -> Rows:
    """Rows but those whose waiter's lane has waited for that event, or a later one of its lane."""
    event, waiter = rows
    lane, seq = longs(plan.tasks.lane), longs(plan.tasks.seq)
    order = np.lexsort((seq[waiter], lane[event], lane[waiter]))
    run = changes(lane[waiter][order], lane[event][order])
    keep = np.sort(order[record_highs(run, seq[event][order])])
    return event[keep], waiter[keep]


def with_own_lane(plan: Plan, rows: Rows, *, first: bool) -> Rows:
    """Rows and, for the ops that wait for an event, their tasks on the event's lane behind it.

    All of them, or the first of each op only.
    """
    event, waiter = rows
    op, lane, seq = longs(plan.tasks.op), longs(plan.tasks.lane), longs(plan.tasks.seq)
    pairs = distinct_rows(event, op[waiter])[0].T
    by_place = np.lexsort((seq, lane, op))
    key = (op * len(plan.lanes) + lane)[by_place]
    wanted: Longs = pairs[1] * len(plan.lanes) + lane[pairs[0]]
    start: Longs = longs(np.searchsorted(key, wanted))
    many: Longs = longs(np.searchsorted(key, wanted, side="right")) - start
    if first:
        many = longs(np.minimum(many, 1))
    own = by_place[spans(start, many)]
    made = np.repeat(pairs[0], many)
    behind = seq[own] > seq[made]
    found, _ = distinct_rows(np.append(event, made[behind]), np.append(waiter, own[behind]))
    return found[:, 0], found[:, 1]
