"""The timeline engine: plays one launch of a plan on a machine.

Lanes run their tasks in order, each as soon as its waits hold; transfers share ports and links,
first come first served, and ranks that are processes share cores in turn. Credits of earlier
launches (waits with a lag) hold from the start, as in a steady state. `plan/cost.py` prices what a
task takes by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ditron.analysis.play_cores import play_on_cores
from ditron.analysis.play_devices import play_on_devices
from ditron.analysis.task_costs import Floats, task_costs
from ditron.plan.cost import is_serial
from ditron.plan.machine import Machine
from ditron.plan.tables import OpKind, Plan


@dataclass(frozen=True)
class Timeline:
    """When each task ran, us from the launch: `begin_us`, `end_us` [T] (a transfer's: landed)."""

    begin_us: Floats
    end_us: Floats

    @property
    def makespan_us(self) -> float:
        """From the launch to the end of the last task."""
        return float(self.end_us.max(initial=0.0))

    def busy_us(self, plan: Plan) -> dict[str, float]:
        """By engine: how long its tasks ran on the busiest rank, all lanes together."""
        took = self.end_us - self.begin_us
        engines = sorted({op.engine for op in plan.ops if op.engine != "host"})
        of_task = np.array([op.engine for op in plan.ops])[plan.tasks.op]
        return {
            engine: float(
                np.bincount(plan.tasks.rank, took * (of_task == engine), plan.ranks).max(initial=0)
            )
            for engine in engines
        }


def play(plan: Plan, machine: Machine) -> Timeline:
    """Play one launch.

    Args:
        plan: free of deadlock (`check_deadlock`); tasks that never run end at 0.
        machine: whose engines, links and cores are shared.
    """
    costs = task_costs(plan, machine)
    player = play_on_cores if is_serial(machine) else play_on_devices
    begin, end = player(plan, machine, costs)
    hosted = np.array([op.kind in (OpKind.ACQUIRE, OpKind.RELEASE) for op in plan.ops], np.bool_)
    end = np.where(hosted[plan.tasks.op], begin, end)
    return Timeline(begin, end)
