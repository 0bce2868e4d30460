"""When signal words reach their values, in one launch that is played."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from ditron.analysis.task_costs import Floats
from ditron.plan.links import hops
from ditron.plan.machine import Machine
from ditron.plan.tables import After, Bools, NotifyOp, Plan


class SlotTimes:
    """The words of all slots: what they hold from when on, and who waits for them.

    Only waits of this launch (lag 0) count, and of the notifies only those that such a wait sees.
    `waits` and `notifies` are lists by task.
    """

    def __init__(self, plan: Plan, machine: Machine) -> None:
        now = np.flatnonzero(plan.waits.lag == 0)
        seen = np.zeros(len(plan.slots), np.bool_)
        seen[plan.waits.slot[now]] = True
        kept = np.flatnonzero(seen[plan.notifies.slot])
        self.waits_task = plan.waits.task[now]
        self.notifies_task = plan.notifies.task[kept]
        tasks = np.arange(len(plan.tasks) + 1)
        self._wait_start: list[int] = np.searchsorted(self.waits_task, tasks).tolist()
        self._notify_start: list[int] = np.searchsorted(self.notifies_task, tasks).tolist()
        self._wait_slot: list[int] = plan.waits.slot[now].tolist()
        self._wait_value: list[int] = plan.waits.value[now].tolist()
        self._notify_slot: list[int] = plan.notifies.slot[kept].tolist()
        self._amount: list[int] = plan.notifies.amount[kept].tolist()
        self._sets: list[bool] = (plan.notifies.op[kept] == NotifyOp.SET).tolist()
        self._delay: list[float] = _delays(plan, machine)[kept].tolist()
        self._values: list[list[int]] = [[] for _ in range(len(plan.slots))]
        self._times: list[list[float]] = [[] for _ in range(len(plan.slots))]
        self._asleep: dict[int, list[int]] = {}

    def ready(self, task: int, sleeper: int) -> float:
        """From when all waits of a task hold; -1 if one does not yet, and the sleeper is told."""
        values, times = self._values, self._times
        when = 0.0
        for wait in range(self._wait_start[task], self._wait_start[task + 1]):
            slot = self._wait_slot[wait]
            at = bisect_left(values[slot], self._wait_value[wait])
            if at == len(values[slot]):
                self._asleep.setdefault(slot, []).append(sleeper)
                return -1.0
            when = max(when, times[slot][at])
        return when

    def send(self, task: int, time: float) -> list[int]:
        """A task's notifies at a time; the sleepers that may look again."""
        woken: list[int] = []
        for notify in range(self._notify_start[task], self._notify_start[task + 1]):
            slot = self._notify_slot[notify]
            values, times = self._values[slot], self._times[slot]
            value, last = (values[-1], times[-1]) if values else (0, 0.0)
            amount = self._amount[notify]
            values.append(max(value, amount) if self._sets[notify] else value + amount)
            times.append(max(last, time + self._delay[notify]))
            if slot in self._asleep:
                woken += self._asleep.pop(slot)
        return woken


def _delays(plan: Plan, machine: Machine) -> Floats:
    """From each notify until its waiter goes on, in us."""
    notifies, costs, topology = plan.notifies, machine.costs, machine.topology
    sender, waiter = plan.tasks.rank[notifies.task], plan.slots.rank[notifies.slot]
    fenced: Bools = notifies.after >= After.FENCE
    node = machine.ranks_a_node
    delay = hops(topology, sender, waiter).astype(np.float64) * topology.latency_us
    fence = np.where(fenced, costs.fence_us, 0.0)
    if topology.network is not None:
        far = sender // node != waiter // node
        delay = np.where(far, topology.network.latency_us, delay)
        fence = np.where(fenced & far, topology.network.fence_us, fence)
    return costs.signal_us + delay + fence
