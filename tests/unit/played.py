"""Machines on which little costs anything, and plans whose tasks take what a test says."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np

from ditron.analysis.timeline import Timeline
from ditron.plan.machine import Costs, LinkKind, Machine, Topology, load_machine
from ditron.plan.tables import OpKind, Plan
from tests.unit.plan_builder import PlanBuilder


def device(
    kind: LinkKind = LinkKind.SWITCH,
    latency_us: float = 0,
    shared_gbytes_s: float = 0,
    columns: int = 0,
    copy_lanes: int = 8,
) -> Machine:
    """Two workers a rank; a link moves 1000 bytes a us; nothing else costs anything."""
    base = load_machine("h800x8")
    engines = {
        name: msgspec.structs.replace(engine, gbytes_s=0, start_us=0)
        for name, engine in base.engines.items()
    }
    engines["copy"] = msgspec.structs.replace(engines["copy"], lanes=copy_lanes)
    engines["sm"] = msgspec.structs.replace(engines["sm"], lanes=2)
    return msgspec.structs.replace(
        base,
        topology=Topology(kind, 1, latency_us, shared_gbytes_s, columns),
        engines=engines,
        costs=Costs(launch_us=0, task_us=0, signal_us=0, fence_us=0),
    )


def cores(number: int) -> Machine:
    base = load_machine("cpu")
    free = Costs(launch_us=0, task_us=0, signal_us=0, fence_us=0)
    return msgspec.structs.replace(base, cores=number, costs=free)


def worked(builder: PlanBuilder, us: dict[int, float], machine: Machine) -> Plan:
    """The plan, with as much memory traffic a task as takes so many us on one worker."""
    plan = builder.plan()
    size = np.zeros(len(plan.tasks), np.int64)
    for task, took in us.items():
        size[task] = round(took * machine.rates.memory_gbytes_s * 1e3 / machine.workers)
    return replace(plan, tasks=replace(plan.tasks, bytes=size))


def moved(builder: PlanBuilder, size_bytes: dict[int, int]) -> Plan:
    plan = builder.plan()
    size = np.zeros(len(plan.tasks), np.int64)
    for task, moves in size_bytes.items():
        size[task] = 2 * moves
    return replace(plan, tasks=replace(plan.tasks, bytes=size))


def spans(timeline: Timeline) -> list[tuple[int, int]]:
    """Begin and end of each task in whole us."""
    begin, end = np.rint(timeline.begin_us), np.rint(timeline.end_us)
    return [(int(b), int(e)) for b, e in zip(begin, end, strict=True)]


def transfers(builder: PlanBuilder, pairs: list[tuple[int, int]]) -> None:
    """One put of the whole buffer a pair of (from, to), each on a lane of its own."""
    x = builder.buffer("x", (8,))
    for source, target in pairs:
        lane = builder.lane(source, "copy")
        read, write = builder.read(x, source, (0, 8)), builder.write(x, target, (0, 8))
        builder.task("put", lane, read, write, kind=OpKind.PUT, deferred=True)
