"""List scheduling: a lane for each compute task of a plan that has no signals yet.

Tasks are taken in the order in which they run, ranks side by side. Each goes to the lane on which
it can start first, as the cost model says; of those that are free in time for its data, to the one
that was free last, so that lanes free earlier are left to tasks whose data is there already.

Source: list scheduling with insertion by best fit (Graham, "Bounds on Multiprocessing Timing
Anomalies", 1969).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import replace

import numpy as np

from ditron.analysis.arrays import longs
from ditron.analysis.pairing import Pairing, pair
from ditron.analysis.task_costs import Floats, TaskCosts, task_costs
from ditron.plan.cost import US_PER_GB_S, near_link
from ditron.plan.machine import Machine
from ditron.plan.tables import LaneOrder, Longs, Plan

LAST = 1 << 30


def list_schedule(plan: Plan, machine: Machine, workers: int) -> Longs:
    """The lane of each task [T]; tasks of other engines keep theirs."""
    computes = np.array([op.engine == "sm" for op in plan.ops], np.bool_)[plan.tasks.op]
    data = _Data(plan, _all_pairs(plan), machine)
    us: list[float] = _durations(plan, machine, task_costs(plan, machine)).tolist()
    free: list[list[tuple[float, int]]] = [
        [(0.0, lane) for lane in range(workers)] for _ in range(plan.ranks)
    ]
    others = [0.0] * len(plan.lanes)
    lane = longs(plan.lanes.index)[plan.tasks.lane]
    own: list[int] = plan.tasks.lane.tolist()
    ranks: list[int] = plan.tasks.rank.tolist()
    order: list[int] = np.lexsort((plan.tasks.rank, plan.tasks.seq, plan.tasks.op)).tolist()
    is_compute: list[bool] = computes.tolist()
    for task in order:
        ready = data.ready(task)
        if is_compute[task]:
            lanes = free[ranks[task]]
            was_free, lane[task] = lanes.pop(_pick(lanes, ready))
            end = max(was_free, ready) + us[task]
            insort(lanes, (end, int(lane[task])))
        else:
            end = others[own[task]] = max(others[own[task]], ready) + us[task]
        data.done(task, end)
    return lane


def _pick(lanes: list[tuple[float, int]], ready: float) -> int:
    """Which of the lanes, sorted by when they are free, a task takes whose data is there then."""
    behind = bisect_right(lanes, (ready, LAST))
    return bisect_left(lanes, (lanes[behind - 1][0], -1)) if behind else 0


def _all_pairs(plan: Plan) -> Pairing:
    """Who waits for whom within a launch, whatever the lanes: as if all of them were queues."""
    queues = (LaneOrder.QUEUE,) * len(plan.lanes)
    pairing = pair(replace(plan, lanes=replace(plan.lanes, order=queues)))
    return pairing.only(pairing.lag == 0)


def _durations(plan: Plan, machine: Machine, costs: TaskCosts) -> Floats:
    """Of each task by itself, transfers at the rate of a link."""
    link = near_link(machine, plan.ranks, 1)
    moving = costs.payload / (link.gbytes_s * US_PER_GB_S)
    return np.where(costs.transfer, moving, costs.us)


class _Data:
    """When what a task reads is there, group by group of tasks with equal boxes."""

    def __init__(self, plan: Plan, pairing: Pairing, machine: Machine) -> None:
        groups = pairing.groups
        of = np.repeat(np.arange(len(groups)), np.diff(groups.start))
        by_task = np.argsort(groups.tasks, kind="stable")
        self._groups: list[int] = of[by_task].tolist()
        tasks = np.arange(len(plan.tasks) + 1)
        self._first: list[int] = np.searchsorted(groups.tasks[by_task], tasks).tolist()
        edges = np.argsort(pairing.after, kind="stable")
        self._before: list[int] = pairing.before[edges].tolist()
        numbers = np.arange(len(groups) + 1)
        self._edge: list[int] = np.searchsorted(pairing.after[edges], numbers).tolist()
        far = groups.rank[pairing.before[edges]] != groups.rank[pairing.after[edges]]
        signal = machine.costs.signal_us + far * machine.topology.latency_us
        self._signal: list[float] = signal.tolist()
        self._end = [0.0] * len(groups)
        self._ready = [-1.0] * len(groups)

    def ready(self, task: int) -> float:
        """When the last thing that a task waits for is there."""
        mine = self._groups[self._first[task] : self._first[task + 1]]
        return max((self._group_ready(group) for group in mine), default=0.0)

    def done(self, task: int, end: float) -> None:
        """A task ends."""
        for group in self._groups[self._first[task] : self._first[task + 1]]:
            self._end[group] = max(self._end[group], end)

    def _group_ready(self, group: int) -> float:
        if self._ready[group] < 0:
            edges = range(self._edge[group], self._edge[group + 1])
            ends = (self._end[self._before[e]] + self._signal[e] for e in edges)
            self._ready[group] = max(ends, default=0.0)
        return self._ready[group]
