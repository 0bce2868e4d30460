"""Rows (event, waiter) that need fewer slots: what lanes know already goes, what they share comes.

Events share a slot if exactly the same tasks wait for them. Where all lanes wait for all lanes, as
in a decode step, each event lacks one waiter, that of its own lane, and no two agree; a waiter that
has what it needs from earlier on its lane does the same harm. So three more ways to say the same
are weighed: without what an earlier task of the lane waited for, with waiters on the event's own
lane, and both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ditron.analysis.arrays import (
    changes,
    distinct,
    distinct_rows,
    last_of_run,
    longs,
    record_highs,
    sorted_by,
    spans,
)
from ditron.analysis.pairing import Groups
from ditron.plan.tables import Longs, Plan

Rows = tuple[Longs, Longs]

# The way by which all tasks wait, those on the event's own lane too.
ALL_OWN = 2


@dataclass(frozen=True)
class GroupRows:
    """Each task of a `group` [N] needs an `event` [N]; the first of them waits, or all do."""

    groups: Groups
    event: Longs
    group: Longs

    @property
    def waiter(self) -> Longs:
        """The first task of each group."""
        return self.groups.first[self.group]

    def only(self, keep: Longs) -> GroupRows:
        """Some of the rows."""
        return GroupRows(self.groups, self.event[keep], self.group[keep])

    def tasks(self) -> Rows:
        """(event, waiter) of all tasks of the groups."""
        start = self.groups.start[self.group]
        many = self.groups.start[self.group + 1] - start
        return np.repeat(self.event, many), self.groups.tasks[spans(start, many)]


def fewest_slots(plan: Plan, rows: GroupRows, slots: Callable[[Rows], tuple[int, int]]) -> Rows:
    """Of the ways to say what rows say, for each op of events the one of fewest slots.

    Another way than the plain one, by which all tasks wait, has to save half of them, since what is
    plain has closed forms. How many slots a way takes is told by the first task of each group.

    Args:
        plan: of static lanes.
        rows: each group with the last event of each lane that it needs.
        slots: how many slots rows need, and how many notifies.
    """
    first = rows.event, rows.waiter
    few = without_repeats(plan, first)
    ways = [first, few, *(with_own_lane(plan, way, first=True) for way in (first, few))]
    op = longs(plan.tasks.op)
    ops = distinct(op[rows.event])
    chosen: list[Rows] = []
    plain = np.zeros(len(rows.event), np.bool_)
    for parts in zip(*(_by_op(op[way[0]], ops) for way in ways), strict=True):
        some = [(way[0][part], way[1][part]) for way, part in zip(ways, parts, strict=True)]
        cost = [slots(each) for each in some]
        best = min((1, 2, 3), key=lambda way: cost[way])
        if 2 * cost[best][0] > cost[0][0]:
            plain[parts[0]] = True
        elif best == ALL_OWN:
            every = rows.only(parts[0]).tasks()
            chosen.append(with_own_lane(plan, every, first=False))
        else:
            chosen.append(some[best])
    event, waiter = rows.only(np.flatnonzero(plain)).tasks()
    keep = last_of_each_lane(plan, event, waiter)
    events, waiters = zip((event[keep], waiter[keep]), *chosen, strict=True)
    return np.concatenate(events), np.concatenate(waiters)


def _by_op(op: Longs, ops: Longs) -> list[Longs]:
    """The rows of each op's events."""
    order = np.argsort(op, kind="stable")
    return np.split(order, np.searchsorted(op[order], ops[1:]))


def last_of_each_lane(plan: Plan, event: Longs, waiter: Longs) -> Longs:
    """The rows that are the last of a waiter's events on a lane."""
    lane, seq = longs(plan.tasks.lane)[event], longs(plan.tasks.seq)[event]
    order = sorted_by(waiter, lane, seq)
    return order[last_of_run(changes(waiter[order], lane[order]))]


def without_repeats(plan: Plan, rows: Rows) -> Rows:
    """Rows but those whose waiter's lane has waited for that event, or a later one of its lane."""
    event, waiter = rows
    lane, seq = longs(plan.tasks.lane), longs(plan.tasks.seq)
    order = sorted_by(lane[waiter], lane[event], seq[waiter])
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
