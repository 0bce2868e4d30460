"""Play a plan on ranks that are processes: each takes turns between its lanes, all share cores.

A rank that can run gets a core for a slice of time, then the next in line; one that waits gives its
core away. Source: the round robin that a fair scheduler comes to for equal processes.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

import numpy as np

from ditron.analysis.slot_times import SlotTimes
from ditron.analysis.task_costs import Floats, TaskCosts
from ditron.plan.machine import Machine
from ditron.plan.tables import OpKind, Plan

SLICE_US = 3000.0
"""What a Linux process gets before others have their turn."""


def play_on_cores(plan: Plan, machine: Machine, costs: TaskCosts) -> tuple[Floats, Floats]:
    """Begin and end of each task, in us from the launch."""
    player = _Player(plan, machine, costs.us)
    player.run()
    return np.array(player.begin), np.array(player.end)


class _Player:
    """The event loop; a rank is idle, in line for a core, or on one."""

    def __init__(self, plan: Plan, machine: Machine, us: Floats) -> None:
        self._slots = SlotTimes(plan, machine)
        self._us: list[float] = us.tolist()
        self._lanes = [lane.tolist() for lane in plan.lane_tasks()]
        self._at = [0] * len(self._lanes)
        self._of_rank = _lanes_of_ranks(plan)
        self._task = [-1] * plan.ranks  # what a rank is at, and which lane that is of
        self._lane = [-1] * plan.ranks
        self._left = [0.0] * plan.ranks
        self._queued = [False] * plan.ranks
        self._line: deque[int] = deque()
        self._free = machine.cores
        self._launch_us = machine.costs.launch_us
        self.begin = [0.0] * len(us)
        self.end = [0.0] * len(us)
        # (time, rank): its slice or task ends; (time, -1 - rank): it looks again.
        self._events: list[tuple[float, int]] = []

    def run(self) -> None:
        """Until nothing is left to happen."""
        for rank in range(len(self._of_rank)):
            self._want_core(rank)
        self._dispatch(self._launch_us)
        while self._events:
            time, what = heappop(self._events)
            if what < 0:
                self._want_core(-1 - what)
            else:
                self._step(what, time)
            self._dispatch(time)

    def _want_core(self, rank: int) -> None:
        if not self._queued[rank]:
            self._queued[rank] = True
            self._line.append(rank)

    def _dispatch(self, time: float) -> None:
        """Give free cores to those in line; one that finds nothing to do leaves it again."""
        while self._free and self._line:
            rank = self._line.popleft()
            if self._task[rank] < 0 and not self._pick(rank, time):
                self._queued[rank] = False
                continue
            self._free -= 1
            self._run_slice(rank, time)

    def _run_slice(self, rank: int, time: float) -> None:
        piece = min(self._left[rank], SLICE_US)
        self._left[rank] -= piece
        heappush(self._events, (time + piece, rank))

    def _step(self, rank: int, time: float) -> None:
        """A slice or task is over: others have their turn."""
        self._free += 1
        task = self._task[rank]
        if self._left[rank] <= 0:
            self.end[task] = time
            self._at[self._lane[rank]] += 1
            self._task[rank] = -1
            for other in self._slots.send(task, time):
                # By then the signal is there to be seen.
                heappush(self._events, (time, -1 - other))
        self._line.append(rank)

    def _pick(self, rank: int, time: float) -> bool:
        """The first lane whose next task can run; transfers come first."""
        later = float("inf")
        for lane in self._of_rank[rank]:
            if self._at[lane] == len(self._lanes[lane]):
                continue
            task = self._lanes[lane][self._at[lane]]
            ready = self._slots.ready(task, rank)
            if ready > time:
                later = min(later, ready)
            elif ready >= 0:
                self._task[rank], self._lane[rank] = task, lane
                self._left[rank] = self._us[task]
                self.begin[task] = time
                return True
        if later < float("inf"):
            heappush(self._events, (later, -1 - rank))
        return False


def _lanes_of_ranks(plan: Plan) -> list[list[int]]:
    """Each rank's lanes in the order in which its process looks at them: transfers first."""
    computes = np.zeros(len(plan.lanes), np.bool_)
    calls = np.array([op.kind is OpKind.CALL for op in plan.ops], np.bool_)
    computes[plan.tasks.lane[calls[plan.tasks.op]]] = True
    lanes: list[list[int]] = [[] for _ in range(plan.ranks)]
    for lane in sorted(range(len(plan.lanes)), key=lambda i: bool(computes[i])):
        lanes[int(plan.lanes.rank[lane])].append(lane)
    return lanes
