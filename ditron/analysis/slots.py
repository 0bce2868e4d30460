"""Which signal slots a plan needs: who raises them, who waits for them, how far.

An *event* is the end of one task: on a static lane the last task of a group stands for all of it.
For data (lag 0), events that feed exactly the same tasks of a rank share a slot there, and a waiter
needs only the last event of each lane. Credits (lag 1 or more) that the order of data gives already
are left out. What the others await has long happened, so they are as coarse as lanes: the last
event of a lane, awaited once, by the first task that needs any.

A wait's value is always the slot's count: all its events.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import networkx as nx
import numpy as np

from ditron.analysis.arrays import changes, distinct_rows, last_of_run, longs, spans
from ditron.analysis.happens_before import assume_separation
from ditron.analysis.pairing import Pairing
from ditron.analysis.ring import mix
from ditron.analysis.slot_rows import Rows, fewest_slots
from ditron.plan.tables import (
    After,
    Ints,
    LaneOrder,
    Lanes,
    Longs,
    Mode,
    Notifies,
    NotifyOp,
    Plan,
    Slots,
    Waits,
)


@dataclass(frozen=True)
class SlotArray:
    """Slots that IR declares together: those that one op or a few wait for.

    `op` is the op that waits first, `lag` how many launches later, `slots` the slots' rows.
    """

    op: int
    lag: int
    slots: Longs


@dataclass(frozen=True)
class SlotPlan:
    """Slots: `rank` [S] where each lies, `lag` [S], `count` [S] its events a launch.

    Rows (`event`, `event_slot`) are notifies, rows (`waiter`, `waiter_slot`) waits, by task.
    """

    plan: Plan
    rank: Longs
    lag: Longs
    count: Longs
    event: Longs
    event_slot: Longs
    waiter: Longs
    waiter_slot: Longs

    def arrays(self) -> list[SlotArray]:
        """Slots that share an op that raises them, or an op that waits, go into one array."""
        op, many = longs(self.plan.tasks.op), len(self.plan.ops)
        graph: nx.Graph[tuple[str, int, int]] = nx.Graph()
        raised = self.lag[self.event_slot] * many + op[self.event]
        awaited = self.lag[self.waiter_slot] * many + op[self.waiter]
        head = awaited[_first_row(self.waiter_slot)] if len(awaited) else awaited
        for kind, end, slot in (
            ("raises", raised, self.event_slot),
            ("waits", awaited, self.waiter_slot),
        ):
            links = np.unique(np.stack([head[slot], end]), axis=1).T.tolist()
            graph.add_edges_from((("waits", a, 0), (kind, b, 0)) for a, b in links)
        found: list[SlotArray] = []
        for part in nx.connected_components(graph):
            waiters = sorted(end for kind, end, _ in part if kind == "waits")
            slots = np.flatnonzero(np.isin(head, waiters)).astype(np.int64)
            found.append(SlotArray(waiters[0] % many, waiters[0] // many, slots))
        return sorted(found, key=lambda array: (array.op, array.lag))

    def in_plan(self) -> Plan:
        """The plan with these slots, all in one array."""
        plan, slot = self.plan, self.waiter_slot
        all_, many = np.ones(len(self.rank), np.int32), np.ones(len(self.event), np.int32)
        deferred = np.array([op.deferred for op in plan.ops], np.bool_)
        after = np.where(deferred[plan.tasks.op[self.event]], int(After.PUT), int(After.END))
        slots = Slots(
            *_ints(self.rank, self.count, all_, 0 * all_, np.arange(len(all_), dtype=np.int64))
        )
        waits = Waits(*_ints(self.waiter, slot, self.count[slot], self.lag[slot]))
        notifies = Notifies(
            *_ints(self.event, self.event_slot, many, int(NotifyOp.ADD) * many, after)
        )
        return replace(plan, signals=("all",), slots=slots, waits=waits, notifies=notifies)

    def by_maker(self, array: SlotArray) -> list[SlotArray]:
        """The same slots in one array for each op that raises them first."""
        op = longs(self.plan.tasks.op)
        maker = self._smallest(op[self.event], self.event_slot)[array.slots]
        return [replace(array, slots=array.slots[maker == m]) for m in np.unique(maker)]

    def numberings(self, array: SlotArray) -> list[Longs]:
        """Ways to number the slots of an array on each rank from 0, each [slots of the array]."""
        at = array.slots
        rank = self.rank[at]
        first_waiter = self._smallest(self.waiter, self.waiter_slot)[at]
        last_waiter = -self._smallest(-self.waiter, self.waiter_slot)[at]
        first_event = self._smallest(self.event, self.event_slot)[at]
        mine = np.isin(self.event_slot, at)
        place = self._smallest(self._places(self.event[mine]), self.event_slot[mine])[at]
        sender = longs(self.plan.tasks.rank)[first_event]
        of_sender = _dense(rank, sender, place, first_event, keys=2)
        ways = [
            _dense(rank, first_waiter, last_waiter, first_event),
            _dense(rank, place, first_event),
            sender * (int(of_sender.max(initial=0)) + 1) + of_sender,
        ]
        if len(np.unique(np.stack([rank, place]), axis=1).T) == len(place):
            ways.append(place - place.min(initial=1 << 60))
        return ways

    def _places(self, event: Longs) -> Longs:
        """Where each event's task writes: a number that grows along memory."""
        accesses, op = self.plan.accesses, longs(self.plan.tasks.op)
        rows = np.flatnonzero((accesses.mode & int(Mode.WRITE)) > 0)
        corner = np.zeros((len(op), accesses.lo.shape[1] + 1), np.int64)
        corner[accesses.task[rows], 0] = accesses.buffer[rows]
        corner[accesses.task[rows], 1:] = accesses.lo[rows]
        mine = np.isin(op, np.unique(op[event]))
        place = np.zeros(len(op), np.int64)
        _, place[mine] = np.unique(corner[mine], axis=0, return_inverse=True)
        return place[event]

    def _smallest(self, value: Longs, slot: Longs) -> Longs:
        result = np.full(len(self.rank), 1 << 60)
        np.minimum.at(result, slot, value)
        return result


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
    """The slots that order every edge of a pairing.

    `setters` are ops that can only set a slot, so that each of their events needs its own. Tasks
    that share a number in `together` [T], unless it is -1, wait for all transfers that one needs.
    The plan has no queues: see `without_queues`.
    """

    def needs(rows: Rows) -> tuple[int, int]:
        found = _slots(plan, *rows, _now(rows), setters)
        return len(found.rank), len(found.event)

    now = _needed_now(plan, pairing.only(pairing.lag == 0), together)
    rows = fewest_slots(plan, _data_rows(plan, now, together), needs)
    data = (*rows, _now(rows))
    later = _unordered(_slots(plan, *data, setters), pairing.only(pairing.lag > 0))
    parts = [data, _credit_rows(plan, later)]
    event, waiter, lag = (np.concatenate(p) for p in zip(*parts, strict=True))
    return _slots(plan, event, waiter, lag, setters)


def _needed_now(plan: Plan, pairing: Pairing, together: Longs | None) -> Pairing:
    """The edges by which data goes, and those of the others that these do not order already."""
    flow, rest = pairing.only(pairing.data), pairing.only(~pairing.data)
    rows = _data_rows(plan, flow, together)
    return flow + _unordered(_slots(plan, *rows, _now(rows), ()), rest)


def _unordered(data: SlotPlan, edges: Pairing) -> Pairing:
    """The edges that lanes, launches and waits for data do not order.

    Leaving the others out changes nothing in what happens before what, so nothing in the proofs.
    """
    if not len(edges):
        return edges
    order = assume_separation(data.in_plan())
    before, after = edges.groups.last[edges.before], edges.groups.first[edges.after]
    return edges.only(~order.ordered(before, 0, after, edges.lag))


def _now(rows: Rows) -> Longs:
    """The lag of rows of data."""
    return np.zeros(len(rows[0]), np.int64)


def _data_rows(plan: Plan, pairing: Pairing, together: Longs | None) -> Rows:
    """(event, waiting task), each waiter with the last event of each lane only."""
    groups = pairing.groups
    now = pairing.lag == 0
    before, after = pairing.before[now], pairing.after[now]
    many = np.diff(groups.start)[after]
    waiter = groups.tasks[spans(groups.start[after], many)]
    event = np.repeat(groups.last[before], many)
    if together is not None:
        event, waiter = _shared(plan, event, waiter, together)
    return _last_of_each_lane(plan, event, waiter)


def _shared(plan: Plan, event: Longs, waiter: Longs, together: Longs) -> tuple[Longs, Longs]:
    """The rows, and those by which tasks that start together wait for each other's transfers."""
    moves = np.array([op.engine == "copy" for op in plan.ops], np.bool_)
    some = moves[plan.tasks.op[event]] & (together[waiter] >= 0)
    pairs = distinct_rows(event[some], together[waiter[some]])[0].T
    members = np.argsort(together, kind="stable")
    ordered, wanted = together[members], longs(pairs[1])
    start = np.searchsorted(ordered, wanted).astype(np.int64)
    many = np.searchsorted(ordered, wanted, side="right").astype(np.int64) - start
    others = members[spans(start, many)]
    rows = np.stack([np.append(event, np.repeat(pairs[0], many)), np.append(waiter, others)])
    return tuple(distinct_rows(*rows)[0].T)


def _last_of_each_lane(plan: Plan, event: Longs, waiter: Longs) -> Rows:
    lane, seq = longs(plan.tasks.lane)[event], longs(plan.tasks.seq)[event]
    order = np.lexsort((seq, lane, waiter))
    keep = order[last_of_run(changes(waiter[order], lane[order]))]
    return event[keep], waiter[keep]


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


def _slots(
    plan: Plan, event: Longs, waiter: Longs, lag: Longs, setters: Collection[int]
) -> SlotPlan:
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
    slot_key, slot_of = distinct_rows(source[:, 1], source[:, 2], signature, own)
    slot = slot_of[source_of]
    waits, _ = distinct_rows(waiter, slot)
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


def _ints(*columns: Longs | Ints) -> Iterator[Ints]:
    return (column.astype(np.int32) for column in columns)


def _first_row(slot: Longs) -> Longs:
    """For each slot, its first row."""
    return np.unique(slot, return_index=True)[1]


def _dense(*columns: Longs, keys: int = 1) -> Longs:
    """Each row's place, by the later columns, among the rows that agree in the first `keys`."""
    order = np.lexsort(columns[::-1])
    start = changes(*(c[order] for c in columns[:keys]))
    place = np.arange(len(order))
    result = np.empty_like(order)
    result[order] = (
        place - np.maximum.accumulate(np.where(start, place, 0)) if len(order) else place
    )
    return result
