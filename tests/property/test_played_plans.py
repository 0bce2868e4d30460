"""Random plans in which nothing is shared: played as a recurrence says, and never slower on better
machines.

Where lanes share ports or memory neither need hold: first come first served has anomalies.
"""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ditron.analysis.timeline import play
from ditron.plan.machine import Costs, LinkKind, Machine
from ditron.plan.tables import OpKind, Plan
from tests.unit.plan_builder import PlanBuilder
from tests.unit.played import device

RANKS = 3


def machine(
    gbytes_s: float, latency_us: float, signal_us: float, memory_gbytes_s: float
) -> Machine:
    """A link and a copy engine for each peer, and no contention for memory that is fast enough."""
    base = device(LinkKind.MESH, latency_us)
    return msgspec.structs.replace(
        base,
        topology=msgspec.structs.replace(base.topology, gbytes_s=gbytes_s),
        costs=Costs(1, 0.5, signal_us, 0),
        rates=msgspec.structs.replace(base.rates, memory_gbytes_s=memory_gbytes_s),
    )


def draw(rng: random.Random) -> Plan:
    """Tasks that wait for earlier ones, on two workers a rank and a copy lane for each pair."""
    b = PlanBuilder(ranks=RANKS)
    x = b.buffer("x", (8,))
    workers = [b.lane(rank) for rank in range(RANKS) for _ in range(2)]
    copies = {b.lane(a, "copy"): (a, c) for a in range(RANKS) for c in range(RANKS) if a != c}
    size: list[int] = []
    for number in range(rng.randint(1, 14)):
        lane = rng.choice([*workers, *copies])
        wait = [s for s in range(len(b.slots)) if rng.random() < 0.3]
        source, target = copies.get(lane, (b.lanes[lane][0],) * 2)
        notify = [b.slot(rng.randrange(RANKS))] if rng.random() < 0.6 else []
        moves = lane in copies
        kind, touch = (OpKind.PUT, b.write(x, target, (0, 8))) if moves else (OpKind.CALL, None)
        touches = [b.read(x, source, (0, 8)), *([touch] if touch else [])]
        b.task(f"t{number}", lane, *touches, wait=wait, notify=notify, kind=kind, deferred=moves)
        size.append(rng.randrange(1, 40_000))
    plan = b.plan()
    return replace(plan, tasks=replace(plan.tasks, bytes=np.array(size)))


def recurrence(plan: Plan, on: Machine) -> list[float]:
    """The end of each task: after its lane's one before it and the signals that it waits for."""
    free = [on.costs.launch_us] * len(plan.lanes)
    seen: dict[int, float] = {}
    ends: list[float] = []
    for task in range(len(plan.tasks)):  # in the order in which they were drawn
        lane, rank = int(plan.tasks.lane[task]), int(plan.tasks.rank[task])
        waits = (plan.waits.slot[w] for w in plan.waits_of(task))
        begin = max([free[lane], *(seen[int(slot)] for slot in waits)])
        if plan.ops[int(plan.tasks.op[task])].kind is OpKind.PUT:
            free[lane] = begin + plan.tasks.bytes[task] // 2 / (on.topology.gbytes_s * 1e3)
            ends.append(free[lane] + on.topology.latency_us)
        else:
            rate = on.rates.memory_gbytes_s * 1e3 / on.workers
            free[lane] = begin + plan.tasks.bytes[task] / rate + on.costs.task_us
            ends.append(free[lane])
        for n in plan.notifies_of(task):
            slot = int(plan.notifies.slot[n])
            far = on.topology.latency_us if plan.slots.rank[slot] != rank else 0.0
            seen[slot] = ends[-1] + far + on.costs.signal_us
    return ends


@settings(deadline=None, derandomize=True, database=None, max_examples=150)
@given(st.randoms(use_true_random=False), st.integers(0, 3))
def test_what_shares_nothing_follows_a_recurrence(rng: random.Random, worse: int):
    plan, figures = draw(rng), [2.0, 3.0, 1.5, 4.0]
    one = machine(*figures)
    timeline = play(plan, one)
    assert timeline.end_us == pytest.approx(recurrence(plan, one))
    assert (timeline.begin_us <= timeline.end_us).all()
    # A slower link, more latency, dearer signals or a slower memory: no task ends sooner.
    figures[worse] *= 0.5 if worse in (0, 3) else 2
    assert (play(plan, machine(*figures)).end_us >= timeline.end_us - 1e-9).all()
