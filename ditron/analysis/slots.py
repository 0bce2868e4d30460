"""Which signal slots a plan needs: who raises them, who waits for them, how far.

An *event* is the end of one task: on a static lane the last task of a group stands for all of it.
For data (lag 0), events that feed exactly the same tasks of a rank share a slot there, and a waiter
needs only the last event of each lane. For credits (lag 1 or more) what is awaited has long
happened, so they are as coarse as lanes: the last event of a lane, awaited once, by the first task
that needs any.

A wait's value is always the slot's count: all its events.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import networkx as nx
import numpy as np

from ditron.analysis.arrays import changes, last_of_run, longs, spans
from ditron.analysis.pairing import Pairing
from ditron.errors import PlanError
from ditron.plan.tables import LaneOrder, Longs, Mode, Plan


@dataclass(frozen=True)
class SlotUse:
    """Rows (task, slot) of notifies or of waits."""

    task: Longs
    slot: Longs


@dataclass(frozen=True)
class SlotPlan:
    """Slots and their uses.

    `array` [S] is the row of `arrays` that a slot belongs to, `rank` [S] where it lies, `count` [S]
    its events a launch. An array is (op that waits first, lag). `numberings` are ways to number the
    slots of an array on each rank [S]; which one to take depends on what reads best.
    """

    arrays: tuple[tuple[int, int], ...]
    array: Longs
    rank: Longs
    count: Longs
    numberings: tuple[Longs, ...]
    notifies: SlotUse
    waits: SlotUse


def plan_slots(plan: Plan, pairing: Pairing, setters: Collection[int] = ()) -> SlotPlan:
    """The slots that order every edge of a pairing.

    `setters` are ops that can only set a slot, so that each of their events needs its own.
    """
    if LaneOrder.QUEUE in plan.lanes.order:
        raise PlanError("queue lanes cannot be given signals yet: use static lanes")
    parts = [_data_rows(plan, pairing), _credit_rows(plan, pairing)]
    event, waiter, lag = (np.concatenate(p) for p in zip(*parts, strict=True))
    return _slots(plan, event, waiter, lag, setters)


def _data_rows(plan: Plan, pairing: Pairing) -> tuple[Longs, Longs, Longs]:
    """(event, waiting task, lag 0), each waiter with the last event of each lane only."""
    groups = pairing.groups
    now = pairing.lag == 0
    before, after = pairing.before[now], pairing.after[now]
    many = np.diff(groups.start)[after]
    waiter = groups.tasks[spans(groups.start[after], many)]
    event = np.repeat(groups.last[before], many)
    return _last_of_each_lane(plan, event, waiter)


def _last_of_each_lane(plan: Plan, event: Longs, waiter: Longs) -> tuple[Longs, Longs, Longs]:
    lane, seq = longs(plan.tasks.lane)[event], longs(plan.tasks.seq)[event]
    order = np.lexsort((seq, lane, waiter))
    keep = order[last_of_run(changes(waiter[order], lane[order]))]
    return event[keep], waiter[keep], np.zeros(len(keep), np.int64)


def _credit_rows(plan: Plan, pairing: Pairing) -> tuple[Longs, Longs, Longs]:
    """(event, waiting task, lag): the last task of an op on a lane, and the first of another."""
    groups = pairing.groups
    later = pairing.lag > 0
    first, last = _ends_of_op_on_lane(plan)
    event = last[groups.last[pairing.before[later]]]
    waiter = first[groups.first[pairing.after[later]]]
    lane, seq = longs(plan.tasks.lane), longs(plan.tasks.seq)
    # Of the ops on one lane, the first waits, and the last of those that others wait for tells.
    first_waiter = _extreme(lane[waiter], -seq[waiter], waiter)
    rank = longs(plan.lanes.rank)[lane[waiter]]
    last_event = _extreme(lane[event] * plan.ranks + rank, seq[event], event)
    rows = np.stack([last_event, first_waiter, pairing.lag[later]], axis=1)
    rows = np.unique(rows, axis=0)
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
    source, source_of = _number(event, rank, lag)
    # An event's waiters on a rank, as a sum of random keys: equal sums share a slot. A collision
    # would only make a waiter wait for too much, since values are counted from what is shared.
    keys = np.random.default_rng(0).integers(1, 1 << 40, len(plan.tasks), dtype=np.int64)
    signature = np.zeros(len(source), np.int64)
    np.add.at(signature, source_of, keys[waiter])
    op = longs(plan.tasks.op)
    alone = np.isin(op[source[:, 0]], list(setters))
    own = np.where(alone, source[:, 0] + 1, 0)
    slot_key, slot_of = _number(source[:, 1], source[:, 2], signature, own)
    slot = slot_of[source_of]
    waits = np.unique(np.stack([waiter, slot], axis=1), axis=0)
    uses = _Uses(plan, slot_key[:, 0], source[:, 0], slot_of, waits[:, 0], waits[:, 1])
    array, heads = uses.arrays(slot_key[:, 1])
    return SlotPlan(
        heads,
        array,
        slot_key[:, 0],
        np.bincount(slot_of, minlength=len(slot_key)).astype(np.int64),
        uses.numberings(array),
        SlotUse(uses.event, uses.event_slot),
        SlotUse(uses.waiter, uses.waiter_slot),
    )


@dataclass(frozen=True)
class _Uses:
    """Slots by their rank [S], with rows (event, slot) and (waiter, slot)."""

    plan: Plan
    rank: Longs
    event: Longs
    event_slot: Longs
    waiter: Longs
    waiter_slot: Longs

    def arrays(self, lag: Longs) -> tuple[Longs, tuple[tuple[int, int], ...]]:
        """Slots that share an op that raises them or an op that waits go into one array."""
        op, many = longs(self.plan.tasks.op), len(self.plan.ops)
        raised = lag[self.event_slot] * 2 * many + op[self.event]
        awaited = (lag[self.waiter_slot] * 2 + 1) * many + op[self.waiter]
        ends = np.concatenate([raised, awaited])
        slot = np.concatenate([self.event_slot, self.waiter_slot])
        links = np.unique(np.stack([awaited[_first_of(self.waiter_slot)][slot], ends]), axis=1)
        graph: nx.Graph[int] = nx.Graph(zip(*links.tolist(), strict=True))
        heads: dict[int, tuple[int, int]] = {}
        for part in nx.connected_components(graph):
            waiters = [divmod(end, 2 * many) for end in part if end % (2 * many) >= many]
            head = min((place - many, delay) for delay, place in waiters)
            heads.update(dict.fromkeys(part, head))
        names = sorted(set(heads.values()))
        number = np.zeros(int(ends.max(initial=0)) + 1, np.int64)
        for end, head in heads.items():
            number[end] = names.index(head)
        return number[awaited[_first_of(self.waiter_slot)]], tuple(names)

    def numberings(self, array: Longs) -> tuple[Longs, ...]:
        """Ways to number the slots of each (array, rank) from 0."""
        first_waiter = self._smallest(self.waiter, self.waiter_slot)
        last_waiter = -self._smallest(-self.waiter, self.waiter_slot)
        first_event = self._smallest(self.event, self.event_slot)
        place = self._smallest(self._places(), self.event_slot)
        sender = longs(self.plan.tasks.rank)[first_event] if len(array) else array
        by_waiter = _dense(array, self.rank, first_waiter, last_waiter, first_event)
        by_place = _dense(array, self.rank, place, first_event)
        of_sender = _dense(array, self.rank, sender, place, first_event, keys=3)
        by_sender = sender * (int(of_sender.max(initial=0)) + 1) + of_sender
        ways = [by_waiter, by_place, by_sender]
        taken = np.stack([array, self.rank, place], axis=1)
        if len(np.unique(taken, axis=0)) == len(taken):
            start = np.full(int(array.max(initial=0)) + 1, 1 << 60)
            np.minimum.at(start, array, place)
            ways.append(place - start[array])
        return tuple(ways)

    def _places(self) -> Longs:
        """Where each event's task writes: a number that grows along memory."""
        accesses = self.plan.accesses
        rows = np.flatnonzero((accesses.mode & int(Mode.WRITE)) > 0)
        corner = np.zeros((len(self.plan.tasks), accesses.lo.shape[1] + 1), np.int64)
        corner[accesses.task[rows], 0] = accesses.buffer[rows]
        corner[accesses.task[rows], 1:] = accesses.lo[rows]
        mine = np.isin(self.plan.tasks.op, np.unique(longs(self.plan.tasks.op)[self.event]))
        place = np.zeros(len(self.plan.tasks), np.int64)
        _, place[mine] = np.unique(corner[mine], axis=0, return_inverse=True)
        return place[self.event]

    def _smallest(self, value: Longs, slot: Longs) -> Longs:
        result = np.full(len(self.rank), 1 << 60)
        np.minimum.at(result, slot, value)
        return result


def _first_of(slot: Longs) -> Longs:
    """For each slot, its first row."""
    return np.unique(slot, return_index=True)[1]


def _dense(*columns: Longs, keys: int = 2) -> Longs:
    """Each row's place, by the later columns, among the rows that agree in the first `keys`."""
    order = np.lexsort(columns[::-1])
    start = changes(*(c[order] for c in columns[:keys]))
    place = np.arange(len(order))
    result = np.empty_like(order)
    result[order] = (
        place - np.maximum.accumulate(np.where(start, place, 0)) if len(order) else place
    )
    return result


def _number(*columns: Longs) -> tuple[Longs, Longs]:
    """Distinct rows of some columns, and which of them each row is."""
    rows, inverse = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    return rows, longs(inverse).reshape(-1)
