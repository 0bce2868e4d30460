"""Which signal slots a plan needs: who raises them, who waits for them, how far.

An *event* is the end of one task: on a static lane the last task of a group stands for all of it.
For data (lag 0), events that feed exactly the same tasks of a rank share a slot there, and a waiter
needs only the last event of each lane. Whoever overwrites bytes, in this launch (memory that is
shared in turn) or in a later one (credits, lag 1 or more), waits only where the order of data does
not say that already; in a model's layers it nearly always does. What a credit awaits has long
happened, so credits are as coarse as lanes: the last event of a lane, awaited once, by the first
task that needs any.

A wait's value is always the slot's count: all its events.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from ditron.analysis.arrays import changes, distinct_rows, last_of_run, longs, spans
from ditron.analysis.happens_before import HappensBefore, assume_separation
from ditron.analysis.pairing import Groups, Pairing
from ditron.analysis.ring import mix
from ditron.analysis.slot_plan import SlotPlan
from ditron.analysis.slot_rows import GroupRows, Rows, fewest_slots, last_of_each_lane
from ditron.analysis.turns import add_turns
from ditron.plan.tables import Bools, LaneOrder, Lanes, Longs, Plan


def without_queues(plan: Plan) -> Plan:
    """The plan with a lane of its own for each task of a queue, since a queue orders nothing."""
    queued = np.array([o is LaneOrder.QUEUE for o in plan.lanes.order], np.bool_)[plan.tasks.lane]
    loose = np.flatnonzero(queued)
    if not len(loose):
        return plan
    lanes, tasks, many = plan.lanes, plan.tasks, len(plan.lanes)
    of = [*range(many), *tasks.lane[loose].tolist()]
    lane, seq = tasks.lane.copy(), tasks.seq.copy()
    lane[loose], seq[loose] = many + np.arange(len(loose)), 0
    apart = Lanes(
        rank=lanes.rank[of],
        index=lanes.index[of],
        engine=tuple(lanes.engine[i] for i in of),
        kind=tuple(lanes.kind[i] for i in of),
        order=(LaneOrder.STATIC,) * len(of),
        fifo=lanes.fifo[of],
    )
    return replace(plan, lanes=apart, tasks=replace(tasks, lane=lane, seq=seq))


def plan_slots(
    plan: Plan,
    pairing: Pairing,
    setters: Collection[int] = (),
    together: Longs | None = None,
) -> SlotPlan:
    """The slots that order every edge of a pairing, which `needed` has gone through.

    `setters` are ops that can only set a slot, so that each of their events needs its own. Tasks
    that share a number in `together` [T], unless it is -1, wait for all transfers that one needs.
    The plan has no queues: see `without_queues`.
    """

    def needs(rows: Rows) -> tuple[int, int]:
        event, waiter = rows
        source, _, key, _ = _shared_slots(plan, event, waiter, _now(rows), setters)
        return len(key), len(source)

    rows = fewest_slots(plan, _data_rows(plan, pairing, together), needs)
    data = (*rows, _now(rows))
    later = pairing.only(pairing.lag > 0)
    if len(later):
        order = assume_separation(_slots(plan, *data, setters).in_plan())
        later = later.only(~_held(order, later))
    parts = [data, _credit_rows(plan, later)]
    event, waiter, lag = (np.concatenate(p) for p in zip(*parts, strict=True))
    return _slots(plan, event, waiter, lag, setters)


def needed(plan: Plan, pairing: Pairing) -> Pairing:
    """The edges by which data goes, and of whoever overwrites those that data do not order.

    To the edges within buffers come those between buffers that share bytes, where none order them.
    """
    flow = pairing.only(pairing.data & (pairing.lag == 0))
    later = pairing.only(pairing.lag > 0)
    rest = pairing.only(~pairing.data & (pairing.lag == 0))
    groups = pairing.groups
    rows = groups.last[flow.before], groups.first[flow.after]
    order = assume_separation(_slots(plan, *rows, _now(rows), ()).in_plan())
    return add_turns(flow + later + rest.only(~_held(order, rest)), order)


def _held(order: HappensBefore, edges: Pairing) -> Bools:
    """Which edges lanes, launches and waits for data order.

    Leaving them out changes nothing in what happens before what, so nothing in the proofs.
    """
    before, after = edges.groups.last[edges.before], edges.groups.first[edges.after]
    return order.ordered(before, 0, after, edges.lag)


def _now(rows: Rows) -> Longs:
    """The lag of rows of data."""
    return np.zeros(len(rows[0]), np.int64)


def _data_rows(plan: Plan, pairing: Pairing, together: Longs | None) -> GroupRows:
    """(event, waiting group), each group with the last event of each lane only."""
    groups = pairing.groups
    now = np.flatnonzero(pairing.lag == 0)
    rows = GroupRows(groups, groups.last[pairing.before[now]], pairing.after[now])
    if together is not None:
        rows = _shared(plan, rows, together)
    return rows.only(last_of_each_lane(plan, rows.event, rows.waiter))


def _shared(plan: Plan, rows: GroupRows, together: Longs) -> GroupRows:
    """The rows, and those by which tasks that start together wait for each other's transfers."""
    moves = np.array([op.engine == "copy" for op in plan.ops], np.bool_)
    event, waiter = rows.only(np.flatnonzero(moves[plan.tasks.op[rows.event]])).tasks()
    some = together[waiter] >= 0
    pairs = distinct_rows(event[some], together[waiter[some]])[0]
    event, wanted = pairs[:, 0], pairs[:, 1]
    members = np.argsort(together, kind="stable")
    ordered = together[members]
    start = np.searchsorted(ordered, wanted).astype(np.int64)
    many = np.searchsorted(ordered, wanted, side="right").astype(np.int64) - start
    others = members[spans(start, many)]
    groups = rows.groups + Groups.of_single(plan, others)
    numbers = len(rows.groups) + np.arange(len(others))
    return GroupRows(
        groups,
        np.append(rows.event, np.repeat(event, many)),
        np.append(rows.group, numbers),
    )


def _credit_rows(plan: Plan, pairing: Pairing) -> tuple[Longs, Longs, Longs]:
    """(event, waiting task, lag): the last task of an op on a lane, and the first of another."""
    groups = pairing.groups
    first, last = _ends_of_op_on_lane(plan)
    event = last[groups.last[pairing.before]]
    waiter = first[groups.first[pairing.after]]
    lane, seq = longs(plan.tasks.lane), longs(plan.tasks.seq)
    # Of the ops on one lane, the first waits, and the last of those that others wait for tells.
    first_waiter = _extreme(lane[waiter], -seq[waiter], waiter)
    rank = longs(plan.lanes.rank)[lane[waiter]]
    last_event = _extreme(lane[event] * plan.ranks + rank, seq[event], event)
    rows, _ = distinct_rows(last_event, first_waiter, pairing.lag)
    return rows[:, 0], rows[:, 1], rows[:, 2]


def _ends_of_op_on_lane(plan: Plan) -> tuple[Longs, Longs]:
    """For each task, the first and the last task of its op on its lane."""
    op, lane, seq = longs(plan.tasks.op), longs(plan.tasks.lane), longs(plan.tasks.seq)
    key, tasks = lane * len(plan.ops) + op, np.arange(len(op))
    return _extreme(key, -seq, tasks), _extreme(key, seq, tasks)


def _extreme(key: Longs, value: Longs, entry: Longs) -> Longs:
    """For each row, the entry with the greatest value among the rows with its key."""
    order = np.lexsort((value, key))
    first = changes(key[order])
    last = order[last_of_run(first)]
    result = np.empty_like(entry)
    result[order] = entry[last][np.cumsum(first) - 1] if len(order) else entry
    return result


def _shared_slots(
    plan: Plan, event: Longs, waiter: Longs, lag: Longs, setters: Collection[int]
) -> tuple[Longs, Longs, Longs, Longs]:
    """What raises a slot and of which row that is; what tells slots apart, and which each raises.

    A source is (event, rank that waits, lag); a slot's first columns are rank and lag.
    """
    rank = longs(plan.tasks.rank)[waiter]
    source, source_of = distinct_rows(event, rank, lag)
    # An event's waiters on a rank, as a sum of tags: equal sums share a slot. A collision would
    # only make a waiter wait for too much, since values are counted from what is shared.
    tags = np.zeros(len(source), np.uint64)
    np.add.at(tags, source_of, mix(waiter.astype(np.uint64)))
    signature = tags.view(np.int64)
    op = longs(plan.tasks.op)
    alone = np.isin(op[source[:, 0]], list(setters))
    own = np.where(alone, source[:, 0] + 1, 0)
    return source, source_of, *distinct_rows(source[:, 1], source[:, 2], signature, own)


def _slots(
    plan: Plan, event: Longs, waiter: Longs, lag: Longs, setters: Collection[int]
) -> SlotPlan:
    source, source_of, slot_key, slot_of = _shared_slots(plan, event, waiter, lag, setters)
    waits, _ = distinct_rows(waiter, slot_of[source_of])
    return SlotPlan(
        plan,
        rank=slot_key[:, 0],
        lag=slot_key[:, 1],
        count=longs(np.bincount(slot_of, minlength=len(slot_key))),
        event=source[:, 0],
        event_slot=slot_of,
        waiter=waits[:, 0],
        waiter_slot=waits[:, 1],
    )
