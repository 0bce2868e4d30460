"""Slots that a plan needs, as rows, and how IR names them: in arrays, numbered on each rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import networkx as nx
import numpy as np

from ditron.analysis.arrays import changes, distinct_rows, longs, offsets, spans
from ditron.plan.tables import After, Ints, Longs, Mode, Notifies, NotifyOp, Plan, Slots, Waits


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
        first: dict[int, int] = {}
        for part in nx.connected_components(graph):
            waiters = sorted(end for kind, end, _ in part if kind == "waits")
            first |= dict.fromkeys(waiters, waiters[0])
        ends, which = np.unique(head, return_inverse=True)
        array = longs([first[end] for end in ends.tolist()])[which]
        order = np.argsort(array, kind="stable").astype(np.int64)
        cuts = np.flatnonzero(changes(array[order]))[1:]
        parts = [part for part in np.split(order, cuts) if len(part)]
        found = [SlotArray(int(array[p[0]]) % many, int(array[p[0]]) // many, p) for p in parts]
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
        maker = longs(self.plan.tasks.op)[self._first_event[array.slots]]
        return [replace(array, slots=array.slots[maker == m]) for m in np.unique(maker)]

    def numberings(self, array: SlotArray) -> list[Longs]:
        """Ways to number the slots of an array on each rank from 0, each [slots of the array]."""
        at = array.slots
        rank, first_event = self.rank[at], self._first_event[at]
        first_waiter, last_waiter = self._first_waiter[at], self._last_waiter[at]
        place = self._places(at)
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

    def events_of(self, slots: Longs) -> Longs:
        """The rows (`event`, `event_slot`) of some slots."""
        return _rows_of(*self._events_by_slot, slots)

    def waits_of(self, slots: Longs) -> Longs:
        """The rows (`waiter`, `waiter_slot`) of some slots."""
        return _rows_of(*self._waits_by_slot, slots)

    def _places(self, slots: Longs) -> Longs:
        """Where the first of each slot's events writes: a number that grows along memory."""
        rows = self.events_of(slots)
        event = self.event[rows]
        ops = np.unique(longs(self.plan.tasks.op)[event])
        start = self._first_task[ops]
        tasks = spans(start, self._first_task[ops + 1] - start)
        _, number = distinct_rows(*self._corners[tasks].T)
        place = np.full(len(slots), 1 << 60)
        of = np.searchsorted(slots, self.event_slot[rows])
        np.minimum.at(place, of, number[np.searchsorted(tasks, event)])
        return place

    @cached_property
    def _first_task(self) -> Longs:
        return offsets(longs(self.plan.tasks.op), len(self.plan.ops))

    @cached_property
    def _corners(self) -> Longs:
        """Buffer and lowest corner of what each task writes last [T, 1 + D]."""
        accesses, tasks = self.plan.accesses, len(self.plan.tasks)
        rows = np.flatnonzero((accesses.mode & int(Mode.WRITE)) > 0)
        corner = np.zeros((tasks, accesses.lo.shape[1] + 1), np.int64)
        corner[accesses.task[rows], 0] = accesses.buffer[rows]
        corner[accesses.task[rows], 1:] = accesses.lo[rows]
        return corner

    @cached_property
    def _events_by_slot(self) -> tuple[Longs, Longs]:
        return _by_slot(self.event_slot, len(self.rank))

    @cached_property
    def _waits_by_slot(self) -> tuple[Longs, Longs]:
        return _by_slot(self.waiter_slot, len(self.rank))

    @cached_property
    def _first_event(self) -> Longs:
        return self._smallest(self.event, self.event_slot)

    @cached_property
    def _first_waiter(self) -> Longs:
        return self._smallest(self.waiter, self.waiter_slot)

    @cached_property
    def _last_waiter(self) -> Longs:
        return -self._smallest(-self.waiter, self.waiter_slot)

    def _smallest(self, value: Longs, slot: Longs) -> Longs:
        result = np.full(len(self.rank), 1 << 60)
        np.minimum.at(result, slot, value)
        return result


def _by_slot(slot: Longs, slots: int) -> tuple[Longs, Longs]:
    """Rows by their slot, and where those of each slot start."""
    order = np.argsort(slot, kind="stable").astype(np.int64)
    return order, offsets(slot[order], slots)


def _rows_of(order: Longs, start: Longs, slots: Longs) -> Longs:
    return np.sort(order[spans(start[slots], start[slots + 1] - start[slots])])


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
