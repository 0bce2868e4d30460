"""Deadlock freedom.

Waits are `>=` on counters that only grow, so whether a run finishes does not depend on its order,
and one run decides all. Launches are no matter: once a launch has finished, the counters of the
next stand as the first's did. A queue is run as one lane, which covers every number of workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ditron.analysis.arrays import longs, offsets
from ditron.analysis.arrivals import Arrivals, Columns, find_arrivals
from ditron.analysis.counterexample import Cycle, UnreachableWait, WaitStep
from ditron.analysis.plan_records import lanes_around, slot_record, task_record
from ditron.analysis.sync_graph import build_sync_graph
from ditron.errors import DeadlockError
from ditron.plan.tables import Longs, NotifyOp, Plan

# How many of a slot's notifying tasks a counterexample holds.
SHOWN = 4


@dataclass(frozen=True)
class DeadlockReport:
    """What was run: every task of every lane, with every wait satisfied."""

    tasks: int
    lanes: int
    waits: int
    notifies: int


def check_deadlock(plan: Plan) -> DeadlockReport:
    """Prove that every launch finishes.

    Raises:
        DeadlockError: the wait that cannot be reached, or the cycle of tasks that wait.
        PlanError: tables that mean nothing.
    """
    columns = Columns(plan)
    arrivals = find_arrivals(columns)
    _check_reachable(plan, arrivals)
    # A wait that is not exact stands in the graph as one for all increments: enough, not needed.
    graph = build_sync_graph(columns, arrivals, queues_ordered=True)
    if not graph.acyclic:
        run = _GreedyRun(columns)
        run.finish()
        if run.blocked():
            found = _find_cycle(columns, run)
            raise DeadlockError(found.text, found.where, found)
    return DeadlockReport(len(plan.tasks), len(plan.lanes), len(plan.waits), len(plan.notifies))


def _check_reachable(plan: Plan, arrivals: Arrivals) -> None:
    """A launch's increments must reach each value, and leave the counter where the next starts."""
    waits = plan.waits
    total, count = arrivals.total[waits.slot], longs(plan.slots.count)[waits.slot]
    short = np.flatnonzero((waits.value > total) | (count > total) | (waits.value > count))
    if not len(short):
        return
    row = int(short[0])
    found = find_unreachable(plan, arrivals, row)
    raise DeadlockError(found.text, found.where, found)


def find_unreachable(plan: Plan, arrivals: Arrivals, row: int) -> UnreachableWait:
    """What a wait waits for, and what comes."""
    waits = plan.waits
    task, slot = int(waits.task[row]), int(waits.slot[row])
    notifies = np.flatnonzero(plan.notifies.slot == slot)
    makers = list(dict.fromkeys(plan.notifies.task[notifies].tolist()))
    return UnreachableWait(
        lanes=lanes_around(plan, [(t, 0) for t in (task, *makers[:SHOWN])]),
        waiter=task_record(plan, task),
        slot=slot_record(plan, slot),
        value=int(waits.value[row]),
        count=int(plan.slots.count[slot]),
        total=int(arrivals.total[slot]),
        notifies=len(notifies),
        notifiers=tuple(task_record(plan, t) for t in makers[:SHOWN]),
    )


class _GreedyRun:
    """One launch, run by letting any lane go on whose next task's waits hold."""

    def __init__(self, columns: Columns) -> None:
        plan = columns.plan
        self._columns = columns
        self._lane_tasks = columns.lane_order.tolist()
        self.next: list[int] = columns.lane_start[:-1].tolist()
        self.end: list[int] = columns.lane_start[1:].tolist()
        self.value = [0] * len(plan.slots)
        self.ran = np.zeros(len(plan.tasks), np.bool_)
        self._waits = offsets(longs(plan.waits.task), len(plan.tasks)).tolist()
        self._notifies = offsets(longs(plan.notifies.task), len(plan.tasks)).tolist()
        now = plan.waits.lag == 0
        self._wait: list[tuple[int, int]] = list(
            zip(plan.waits.slot.tolist(), np.where(now, plan.waits.value, 0).tolist(), strict=True)
        )
        self._notify: list[tuple[int, int, int]] = list(
            zip(
                plan.notifies.slot.tolist(),
                plan.notifies.amount.tolist(),
                plan.notifies.op.tolist(),
                strict=True,
            )
        )
        self._asleep: dict[int, list[int]] = {}

    def finish(self) -> None:
        """Run until no lane can go on."""
        ready = list(range(len(self.next)))
        while ready:
            lane = ready.pop()
            while self.next[lane] < self.end[lane]:
                missing = self.missing(lane)
                if missing is not None:
                    self._asleep.setdefault(missing[0], []).append(lane)
                    break
                ready.extend(self._step(lane))

    def head(self, lane: int) -> int:
        """The task that a lane is at."""
        return self._lane_tasks[self.next[lane]]

    def missing(self, lane: int) -> tuple[int, int] | None:
        """Slot and value of the first wait that holds a lane back."""
        task = self.head(lane)
        for slot, value in self._wait[self._waits[task] : self._waits[task + 1]]:
            if self.value[slot] < value:
                return slot, value
        return None

    def _step(self, lane: int) -> Iterator[int]:
        """Run a lane's next task; the lanes that may go on by it."""
        task = self.head(lane)
        self.next[lane] += 1
        self.ran[task] = True
        for slot, amount, op in self._notify[self._notifies[task] : self._notifies[task + 1]]:
            old = self.value[slot]
            self.value[slot] = max(old, amount) if op == NotifyOp.SET else old + amount
            yield from self._asleep.pop(slot, ())

    def blocked(self) -> list[int]:
        """Lanes that have not finished."""
        return [i for i, (a, b) in enumerate(zip(self.next, self.end, strict=True)) if a < b]


def _find_cycle(columns: Columns, run: _GreedyRun) -> Cycle:
    """Follow from a blocked lane to the producer it waits for, until a lane comes again."""
    plan = columns.plan
    by_slot = np.argsort(plan.notifies.slot, kind="stable")
    start = offsets(longs(plan.notifies.slot)[by_slot], len(plan.slots))
    steps: list[WaitStep] = []
    tasks: list[tuple[int, int]] = []
    seen: dict[int, int] = {}
    lane = run.blocked()[0]
    while lane not in seen:
        seen[lane] = len(steps)
        missing = run.missing(lane)
        assert missing is not None, "a blocked lane waits"
        slot, value = missing
        makers = longs(plan.notifies.task)[by_slot[start[slot] : start[slot + 1]]]
        maker = _next_maker(columns, makers[~run.ran[makers]])
        task = run.head(lane)
        lane = int(columns.lane[maker])
        head = run.head(lane)
        tasks.append((task, maker))
        steps.append(
            WaitStep(
                waiter=task_record(plan, task),
                slot=slot_record(plan, slot),
                value=value,
                seen=run.value[slot],
                producer=task_record(plan, maker),
                behind=None if head == maker else task_record(plan, head),
            )
        )
    first = seen[lane]
    marked = [(t, 0) for pair in tasks[first:] for t in pair]
    return Cycle(lanes_around(plan, marked), tuple(steps[first:]))


def _next_maker(columns: Columns, makers: Longs) -> int:
    assert len(makers), "a value that all notifies reach is reached once they ran"
    return int(makers[np.argmin(columns.seq[makers])])
