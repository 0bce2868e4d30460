"""Play a plan on ranks that have devices of their own: every lane is a worker or an engine."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from ditron.analysis.arrays import longs
from ditron.analysis.ports import Ports
from ditron.analysis.slot_times import SlotTimes
from ditron.analysis.task_costs import Floats, TaskCosts
from ditron.plan.machine import Engine, Machine
from ditron.plan.tables import LaneOrder, Longs, Plan

NO_ENGINE = Engine(lanes=1, remote_add=False)


def play_on_devices(plan: Plan, machine: Machine, costs: TaskCosts) -> tuple[Floats, Floats]:
    """Begin and end of each task, in us from the launch."""
    slots = SlotTimes(plan, machine)
    runs = find_runs(plan, costs, slots)
    player = _Player(plan, machine, costs, slots, runs)
    player.run()
    begin = np.zeros(len(plan.tasks), np.float64)
    length = np.diff(np.append(runs.first, len(runs.order)))
    before = np.cumsum(costs.us[runs.order]) - costs.us[runs.order]
    inside = before - np.repeat(before[runs.first], length)
    begin[runs.order] = np.repeat(np.array(player.begin), length) + inside
    end = begin + costs.us
    moved = np.flatnonzero(costs.transfer[runs.order[runs.first]])
    end[runs.order[runs.first[moved]]] = np.array(player.landed)[moved]
    return begin, end


@dataclass(frozen=True)
class Runs:
    """Tasks of a lane that nothing interrupts: only the first waits, only the last notifies.

    `order` [T] has the tasks lane by lane; run i starts at `first[i]` in it; runs of lane l are
    `lane_start[l]` to `lane_start[l + 1]`.
    """

    order: Longs
    first: Longs
    lane_start: Longs


def find_runs(plan: Plan, costs: TaskCosts, slots: SlotTimes) -> Runs:
    """Cut lanes into runs; transfers, and tasks of queues, are runs of their own."""
    tasks = plan.tasks
    order = longs(np.lexsort((tasks.seq, tasks.lane)))
    alone = costs.transfer.copy()
    queue = np.array([o is LaneOrder.QUEUE for o in plan.lanes.order], np.bool_)
    if queue.any():
        alone |= queue[tasks.lane]
    starts, ends = alone.copy(), alone.copy()
    starts[slots.waits_task] = True
    ends[slots.notifies_task] = True
    lane = tasks.lane[order]
    new = starts[order]
    new[1:] |= ends[order[:-1]] | (lane[1:] != lane[:-1])
    if len(new):
        new[0] = True
    first = longs(np.flatnonzero(new))
    lane_start = np.searchsorted(lane[first], np.arange(len(plan.lanes) + 1))
    return Runs(order, first, longs(lane_start))


class _Player:
    """The event loop. A worker runs one lane, or is one of those that share a queue."""

    def __init__(
        self, plan: Plan, machine: Machine, costs: TaskCosts, slots: SlotTimes, runs: Runs
    ) -> None:
        self._slots, self._ports = slots, Ports(machine, plan.ranks)
        self._launch_us = machine.costs.launch_us
        engines = [machine.engines.get(name, NO_ENGINE) for name in plan.lanes.engine]
        shared = [o is LaneOrder.QUEUE for o in plan.lanes.order]
        self._lane_of = [
            lane
            for lane, engine in enumerate(engines)
            for _ in range(engine.lanes if shared[lane] else 1)
        ]
        self._engines = engines
        self._next: list[int] = runs.lane_start[:-1].tolist()
        self._end: list[int] = runs.lane_start[1:].tolist()
        last = np.append(runs.first[1:], len(runs.order)) - 1
        head = runs.order[runs.first]
        self._head: list[int] = head.tolist()
        self._tail: list[int] = runs.order[last].tolist()
        took = costs.us[runs.order]
        self._us: list[float] = (np.add.reduceat(took, runs.first) if len(took) else took).tolist()
        self._moves: list[bool] = costs.transfer[head].tolist()
        self._payload: list[int] = costs.payload[head].tolist()
        self._source: list[int] = costs.source[head].tolist()
        self._target: list[int] = costs.target[head].tolist()
        self._held = [-1] * len(self._lane_of)  # the run that a worker waits to start
        self._running = [-1] * len(self._lane_of)
        self._issued = [self._launch_us] * len(plan.lanes)
        self.begin = [0.0] * len(self._head)
        self.landed = [0.0] * len(self._head)
        # (time, worker that is free), or (time, -1 - run) of a transfer that has landed.
        self._events: list[tuple[float, int]] = []

    def run(self) -> None:
        """Until nothing is left to happen."""
        for worker in range(len(self._lane_of)):
            self._start(worker, self._launch_us)
        while self._events:
            time, what = heappop(self._events)
            if what < 0:
                self._signal(self._head[-1 - what], time)
                continue
            run, self._running[what] = self._running[what], -1
            if run >= 0:
                self._signal(self._tail[run], time)
            self._start(what, time)

    def _signal(self, task: int, time: float) -> None:
        for worker in self._slots.send(task, time):
            self._start(worker, time)

    def _start(self, worker: int, time: float) -> None:
        lane, run = self._lane_of[worker], self._held[worker]
        if run < 0:
            run = self._next[lane]
            if run == self._end[lane]:
                return
            self._next[lane] += 1
        ready = self._slots.ready(self._head[run], worker)
        if ready < 0:
            self._held[worker] = run
            return
        self._held[worker] = -1
        begin = max(time, ready)
        if self._moves[run]:
            self._move(worker, run, begin)
            return
        self.begin[run] = begin
        self._running[worker] = run
        heappush(self._events, (begin + self._us[run], worker))

    def _move(self, worker: int, run: int, begin: float) -> None:
        """A transfer: the host (or the worker) issues it, then it takes its turn at the ports."""
        lane = self._lane_of[worker]
        engine = self._engines[lane]
        begin = max(begin, self._issued[lane] + engine.start_us)
        self._issued[lane] += engine.start_us
        free, landed = self._ports.move(
            self._source[run], self._target[run], self._payload[run], begin, engine.gbytes_s
        )
        self.begin[run], self.landed[run] = begin, landed
        heappush(self._events, (landed, -1 - run))
        heappush(self._events, (free, worker))
