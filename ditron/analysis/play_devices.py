"""Play a plan on ranks that have devices of their own: every lane is a worker or an engine.

Lanes share what the machine has: ports and links (`ports.py`), a rank's memory (`memory_clock.py`),
and engines, where a plan has more lanes of a kind than the device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from ditron.analysis.arrays import longs
from ditron.analysis.memory_clock import MemoryClock
from ditron.analysis.ports import Ports
from ditron.analysis.slot_times import SlotTimes
from ditron.analysis.task_costs import TRANSFERS, Floats, TaskCosts
from ditron.plan.machine import Engine, Machine
from ditron.plan.tables import LIBRARY, LaneOrder, Longs, Plan

NO_ENGINE = Engine(lanes=1, remote_add=False)


def play_on_devices(plan: Plan, machine: Machine, costs: TaskCosts) -> tuple[Floats, Floats]:
    """Begin and end of each task, in us from the launch."""
    slots = SlotTimes(plan, machine)
    runs = find_runs(plan, costs, slots)
    player = _Player(plan, machine, costs, slots, runs)
    player.run()
    # Within a run tasks follow each other, all as much longer as the run took.
    length = np.diff(np.append(runs.first, len(runs.order)))
    took = costs.us[runs.order]
    before = np.cumsum(took) - took
    first, last = np.array(player.begin), np.array(player.end)
    alone = np.add.reduceat(took, runs.first) if len(took) else took
    longer = np.divide(last - first, alone, out=np.ones_like(alone), where=alone > 0)
    begin, end = np.zeros((2, len(plan.tasks)), np.float64)
    inside = (before - np.repeat(before[runs.first], length)) * np.repeat(longer, length)
    begin[runs.order] = np.repeat(first, length) + inside
    end[runs.order] = begin[runs.order] + took * np.repeat(longer, length)
    end[runs.order[np.cumsum(length) - 1]] = last
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
    alone = np.array([op.kind in TRANSFERS for op in plan.ops], np.bool_)[tasks.op]
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
        self._depth = machine.capabilities.fifo_depth
        engines = [machine.engines.get(name, NO_ENGINE) for name in plan.lanes.engine]
        shared = [o is LaneOrder.QUEUE for o in plan.lanes.order]
        self._lane_of = [
            lane
            for lane, engine in enumerate(engines)
            for _ in range(engine.lanes if shared[lane] else 1)
        ]
        self._rank: list[int] = plan.lanes.rank.tolist()
        self._called = [name == LIBRARY for name in plan.lanes.engine]
        self._engine, self._free = _share_engines(plan, engines, self._launch_us)
        self._engine_rate = [engine.gbytes_s for engine in engines]
        self._start_us = [engine.start_us for engine in engines]
        self._issued = [self._launch_us] * len(self._free)
        self._on_way: list[deque[float]] = [deque(maxlen=self._depth or None) for _ in engines]
        self._next: list[int] = runs.lane_start[:-1].tolist()
        self._end: list[int] = runs.lane_start[1:].tolist()
        self._set_runs(costs, runs)
        self._held = [-1] * len(self._lane_of)  # the run that a worker waits to start
        self._running = [-1] * len(self._lane_of)
        self._memory = [MemoryClock() for _ in range(plan.ranks)]
        self._due = [-1.0] * plan.ranks
        self.begin = [0.0] * len(self._head)
        self.end = [0.0] * len(self._head)
        # (time, worker that is free), (time, workers + rank) where something ends at its memory,
        # or (time, -1 - run) of a transfer that has landed.
        self._events: list[tuple[float, int]] = []

    def _set_runs(self, costs: TaskCosts, runs: Runs) -> None:
        last = np.append(runs.first[1:], len(runs.order)) - 1
        head = runs.order[runs.first]
        self._head: list[int] = head.tolist()
        self._tail: list[int] = runs.order[last].tolist()
        took = costs.us[runs.order]
        asked = costs.part[runs.order] * took
        if len(took):
            took, asked = np.add.reduceat(took, runs.first), np.add.reduceat(asked, runs.first)
        self._us: list[float] = took.tolist()
        self._part: list[float] = (asked / np.maximum(took, 1e-9)).tolist()
        self._moves: list[bool] = costs.transfer[head].tolist()
        self._payload: list[int] = costs.payload[head].tolist()
        self._source: list[int] = costs.source[head].tolist()
        self._target: list[int] = costs.target[head].tolist()

    def run(self) -> None:
        """Until nothing is left to happen."""
        workers = len(self._lane_of)
        for worker in range(workers):
            self._start(worker, self._launch_us)
        while self._events:
            time, what = heappop(self._events)
            if what < 0:
                self._signal(self._head[-1 - what], time)
            elif what < workers:
                self._finish(what, time)
            elif self._due[what - workers] == time:
                rank = what - workers
                worker = self._memory[rank].finish(time)
                self._watch(rank)
                self._finish(worker, time)

    def _finish(self, worker: int, time: float) -> None:
        """A worker is free again."""
        run, self._running[worker] = self._running[worker], -1
        if run >= 0:
            self.end[run] = time
            self._signal(self._tail[run], time)
        self._start(worker, time)

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
        elif self._part[run] > 0:
            self._stream(worker, run, begin, time)
        else:
            if self._called[lane]:  # calls of all lanes share the device's workers
                begin = max(begin, self._free[self._engine[lane]])
                self._free[self._engine[lane]] = begin + self._us[run]
            self.begin[run] = begin
            self._running[worker] = run
            heappush(self._events, (begin + self._us[run], worker))

    def _stream(self, worker: int, run: int, begin: float, time: float) -> None:
        """What reads and writes the rank's memory: at the speed that is left."""
        lane = self._lane_of[worker]
        engine, rank = self._engine[lane], self._rank[lane]
        begin = max(begin, self._issued[engine] + self._start_us[lane])
        if begin > time:
            self._held[worker] = run
            heappush(self._events, (begin, worker))
            return
        self._issued[engine] += self._start_us[lane]
        self.begin[run] = time
        self._running[worker] = run
        self._memory[rank].start(worker, self._part[run], self._us[run], time)
        self._watch(rank)

    def _watch(self, rank: int) -> None:
        self._due[rank] = self._memory[rank].next_end()
        if self._due[rank] >= 0:
            heappush(self._events, (self._due[rank], len(self._lane_of) + rank))

    def _move(self, worker: int, run: int, begin: float) -> None:
        """A transfer: the host (or the worker) issues it, then it takes its turn at the ports.

        A lane that has as many on their way as its FIFO holds waits until the oldest has landed.
        """
        lane = self._lane_of[worker]
        engine, on_way = self._engine[lane], self._on_way[lane]
        begin = max(begin, self._issued[engine] + self._start_us[lane], self._free[engine])
        if self._depth and len(on_way) == self._depth:
            begin = max(begin, on_way[0])
        self._issued[engine] += self._start_us[lane]
        free, landed = self._ports.move(
            self._source[run], self._target[run], self._payload[run], begin, self._engine_rate[lane]
        )
        self.begin[run], self.end[run] = begin, landed
        self._free[engine] = free
        if self._depth:
            on_way.append(landed)
        heappush(self._events, (landed, -1 - run))
        heappush(self._events, (free, worker))


def _share_engines(
    plan: Plan, engines: Sequence[Engine], launch_us: float
) -> tuple[list[int], list[float]]:
    """The engine of each lane, and from when on each is free: lanes beyond the last share them."""
    number: dict[tuple[int, str, int], int] = {}
    of_lane = [
        number.setdefault((rank, name, index % engine.lanes), len(number))
        for rank, name, index, engine in zip(
            plan.lanes.rank.tolist(),
            plan.lanes.engine,
            plan.lanes.index.tolist(),
            engines,
            strict=True,
        )
    ]
    return of_lane, [launch_us] * len(number)
