"""Schedulers: which lane a task gets, and what that is worth on a machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ditron as dt
from ditron.analysis.list_schedule import list_schedule
from ditron.analysis.report import prove
from ditron.analysis.symbols import find_task_program, kernels
from ditron.analysis.timeline import play
from ditron.errors import OptionError
from ditron.plan.machine import load_machine
from ditron.plan.options import SCHEDULERS, Options
from ditron.plan.tables import Plan
from ditron.tools.explain import explain
from ditron.tools.loading import Source
from ditron.tools.simulate import lower
from tests.unit.lowered import ag_gemm, gemm_ar, gemm_rs, mlp
from tests.unit.plan_builder import PlanBuilder
from tests.unit.played import device, worked


def branches(parts: int, m: int = 512, k: int = 512) -> dt.Program:
    """Products that do not wait for each other, each with a few tiles."""
    with dt.Program("branches", dt.Mesh(tp=2)) as p:
        x = p.input("x", (m, k), dt.bf16, dt.Shard(1))
        for i in range(parts):
            w = p.input(f"w{i}", (k, 256), dt.bf16, dt.Shard(0))
            p.output(f"y{i}", dt.all_reduce(dt.matmul(x, w)))
    return p


def makespan(program: dt.Program, machine: str, options: Options) -> float:
    return play(lower(program.ir.clone(), machine, options), load_machine(machine)).makespan_us


def lanes(plan: Plan, op: str, rank: int = 0) -> list[int]:
    """The lane of each task of an op, in grid order."""
    mine = (plan.tasks.op == [o.name for o in plan.ops].index(op)) & (plan.tasks.rank == rank)
    return plan.lanes.index[plan.tasks.lane[mine]].tolist()


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("round-robin", [0, 1, 2, 0, 1, 2, 0, 1]),
        ("program-order", [0, 0, 0, 1, 1, 1, 2, 2]),
        ("zigzag", [0, 1, 2, 2, 1, 0, 0, 1]),
        ("queue", [0] * 8),
    ],
)
def test_lanes_by_policy(policy: str, expected: list[int]):
    with dt.Program("one", dt.Mesh(tp=1)) as p:
        x = p.input("x", (32, 4), dt.f32, dt.Replicate())
        p.output("y", dt.matmul(x, p.input("w", (4, 8), dt.f32, dt.Replicate())))
    options = Options(scheduler=policy, workers=3, tile=(4, 8), order="natural")
    plan = lower(p.ir.clone(), "cpu", options)
    assert lanes(plan, "matmul") == expected


def test_list_scheduling_by_hand():
    machine = device()
    b = PlanBuilder()
    x, y = b.buffer("x", (8,)), b.buffer("y", (8,))
    sm = b.lane(0)
    b.task("long", sm, b.read(x, 0, (0, 1)))
    b.task("short", sm, b.read(x, 0, (0, 1)), b.write(y, 0, (4, 8)))
    b.task("more", sm, b.read(x, 0, (0, 1)))
    b.task("after", sm, b.read(y, 0, (4, 8)))
    plan = worked(b, {0: 30, 1: 10, 2: 5, 3: 5}, machine)
    # The second lane is free first each time; what reads y comes after it anyway.
    assert list_schedule(plan, machine, 2).tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize("program", [ag_gemm(4, 64, 64, 32), gemm_rs(4, 64, 64, 32), mlp(4)])
@pytest.mark.parametrize("policy", SCHEDULERS)
def test_every_policy_is_proved(program: dt.Program, policy: str):
    module = program.ir.clone()
    plan = lower(module, "h800x8", Options(scheduler=policy, workers=5, tile=(8, 8)))
    prove(plan, kernels(module), find_task_program(module))


def test_branches_go_side_by_side():
    policies = ("round-robin", "critical-path")
    dealt, listed = (makespan(branches(4), "h800x8", Options(scheduler=p)) for p in policies)
    # Dealt grid by grid, all of them start at lane 0.
    assert listed < 0.95 * dealt


shapes = st.tuples(st.integers(1, 160), st.integers(1, 160), st.integers(1, 64))


@settings(deadline=None, derandomize=True, database=None, max_examples=8)
@given(
    st.sampled_from((ag_gemm, gemm_rs, gemm_ar)),
    st.integers(1, 4),
    shapes,
    st.integers(2, 9),
    st.sampled_from(("h800x8", "mi300x8", "mtia-like")),
)
def test_critical_path_is_never_worse(
    make: Callable[..., dt.Program],
    ranks: int,
    shape: tuple[int, int, int],
    workers: int,
    machine: str,
):
    program = make(ranks, *shape)
    took = [
        makespan(program, machine, Options(scheduler=p, workers=workers, tile=(16, 16)))
        for p in ("round-robin", "critical-path")
    ]
    assert took[1] <= took[0]


def test_a_queue_is_not_for_gpus():
    with pytest.raises(OptionError, match="scheduler queue is for CPU ranks"):
        dt.compile(ag_gemm(2), target="sm_90", options=dt.Options(scheduler="queue"))
    with pytest.raises(OptionError, match="scheduler is one of round-robin"):
        dt.Options(scheduler="best")


def test_lanes_of_ranks_are_used_up():
    plan = lower(branches(4).ir.clone(), "h800x8", Options(scheduler="critical-path"))
    computes = np.array([op.engine == "sm" for op in plan.ops])[plan.tasks.op]
    assert plan.lanes.index[plan.tasks.lane[computes]].max() < 132


def test_explain_compares_schedulers():
    source = Source(Path("branches.py"), branches(3))
    report = explain(source, "h800x8", Options())
    took = report.schedulers_us
    assert list(took) == list(SCHEDULERS)
    assert took["critical-path"] <= took["round-robin"]
    assert explain(source, "cpu", Options()).schedulers_us == {}
