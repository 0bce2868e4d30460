"""Simulation: any plan on any machine, without either. A launch is predicted, nothing is computed.

The timeline is written in the form in which real runs are traced, so that both open side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ditron.analysis.timeline import Timeline, play
from ditron.plan.machine import Machine
from ditron.plan.tables import Longs, OpKind, Plan
from ditron.runtime.trace import write_trace

__all__ = ["OpTime", "op_times", "simulate", "write_timeline"]


def simulate(plan: Plan, machine: Machine) -> Timeline:
    """Play one launch of a plan on a machine."""
    return play(plan, machine)


def write_timeline(path: str | Path, plan: Plan, timeline: Timeline) -> None:
    """Write a timeline as a Chrome trace, a row a lane, times in ns.

    A transfer's slice ends where the next one of its lane begins, since slices of a row cannot
    overlap; what is still on its way then shows by the arrow to its waiter.
    """
    write_trace(path, plan, _events(plan, timeline))


def _events(plan: Plan, timeline: Timeline) -> Longs:
    """(task, begin, end) in ns of each task."""
    tasks = plan.tasks
    order = np.lexsort((tasks.seq, tasks.lane))
    begin = np.rint(timeline.begin_us * 1e3).astype(np.int64)
    end = np.rint(timeline.end_us * 1e3).astype(np.int64)
    same = tasks.lane[order[1:]] == tasks.lane[order[:-1]]
    before, after = order[:-1][same], order[1:][same]
    end[before] = np.minimum(end[before], np.maximum(begin[after], begin[before]))
    return np.stack([np.arange(len(tasks)), begin, end], axis=1)


@dataclass(frozen=True)
class OpTime:
    """When an op's tasks ran, in us: the first begin, the last end, and the busiest rank's time."""

    name: str
    kind: OpKind
    engine: str
    tasks: int
    begin_us: float
    end_us: float
    busy_us: float


def op_times(plan: Plan, timeline: Timeline) -> list[OpTime]:
    """One row an op that runs on a rank (not the host's), in program order."""
    rows: list[OpTime] = []
    for number, op in enumerate(plan.ops):
        mine = np.flatnonzero(plan.tasks.op == number)
        if op.kind in (OpKind.ACQUIRE, OpKind.RELEASE) or not len(mine):
            continue
        begin, end = timeline.begin_us[mine], timeline.end_us[mine]
        busy = np.bincount(plan.tasks.rank[mine], end - begin, plan.ranks)
        rows.append(
            OpTime(
                op.name,
                op.kind,
                op.engine,
                len(mine),
                float(begin.min()),
                float(end.max()),
                float(busy.max()),
            )
        )
    return rows
