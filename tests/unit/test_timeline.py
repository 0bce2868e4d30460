"""The timeline engine: lanes, signals, links and cores, on plans by hand and by the compiler."""

from __future__ import annotations

import json
from pathlib import Path
from time import process_time

import msgspec
import numpy as np
import pytest

import ditron as dt
from benchmarks.proofs import ag_gemm_plan
from ditron.analysis.timeline import play
from ditron.backends.simulate import op_times, write_timeline
from ditron.plan.machine import Costs, LinkKind, load_machine
from ditron.plan.options import Options
from ditron.plan.tables import LaneOrder
from ditron.tools.simulate import lower
from tests.unit.lowered import ag_gemm, gemm_ar, gemm_rs, mlp
from tests.unit.plan_builder import PlanBuilder, Wait
from tests.unit.played import cores, device, moved, spans, transfers, worked


def test_a_lane_runs_in_order_and_lanes_side_by_side():
    b, machine = PlanBuilder(), device()
    x = b.buffer("x", (8,))
    one, two = b.lane(0), b.lane(0)
    for lane in (one, one, two):
        b.task("f", lane, b.read(x, 0, (0, 8)))
    plan = worked(b, {0: 10, 1: 20, 2: 15}, machine)
    assert spans(play(plan, machine)) == [(0, 10), (10, 30), (0, 15)]


def test_a_wait_holds_until_the_signal_and_what_it_costs():
    machine = device()
    machine = msgspec.structs.replace(machine, costs=Costs(5, 0, 3, 0))
    b = PlanBuilder(ranks=2)
    x = b.buffer("x", (8,))
    ready = b.slot(rank=1)
    b.task("f", b.lane(0), b.read(x, 0, (0, 8)), notify=[ready])
    b.task("f", b.lane(0), b.read(x, 0, (0, 8)), notify=[ready])
    b.task("g", b.lane(1), b.read(x, 1, (0, 8)), wait=[ready])
    plan = worked(b, {0: 10, 1: 20, 2: 7}, machine)
    # A launch takes 5, a signal 3; the waiter needs both notifies.
    assert spans(play(plan, machine)) == [(5, 15), (5, 25), (28, 35)]
    assert play(plan, machine).makespan_us == pytest.approx(35, abs=0.1)


def test_a_credit_holds_in_the_steady_state():
    b, machine = PlanBuilder(ranks=2), device()
    x = b.buffer("x", (8,))
    free = b.slot(rank=0)
    b.task("f", b.lane(0), b.read(x, 0, (0, 8)), wait=[Wait(free, lag=1)])
    b.task("g", b.lane(1), b.read(x, 1, (0, 8)), notify=[free])
    plan = worked(b, {0: 10, 1: 20}, machine)
    assert spans(play(plan, machine)) == [(0, 10), (0, 20)]


def test_workers_share_a_queue():
    b, machine = PlanBuilder(), device()
    x = b.buffer("x", (8,))
    queue = b.lane(0, order=LaneOrder.QUEUE)
    for _ in range(5):
        b.task("f", queue, b.read(x, 0, (0, 8)))
    plan = worked(b, {0: 10, 1: 4, 2: 4, 3: 4, 4: 4}, machine)
    assert spans(play(plan, machine)) == [(0, 10), (0, 4), (4, 8), (8, 12), (10, 14)]


def test_ports_of_a_switch_are_shared():
    b = PlanBuilder(ranks=4)
    transfers(b, [(0, 1), (0, 2), (3, 2), (1, 3)])
    plan = moved(b, {0: 10_000, 1: 10_000, 2: 10_000, 3: 10_000})
    # 0 sends one after the other; 2 receives from 0 when 3 has begun; 1 -> 3 is on its own.
    assert [end for _, end in spans(play(plan, device()))] == [10, 20, 30, 10]


def test_links_of_a_mesh_are_not():
    b = PlanBuilder(ranks=3)
    transfers(b, [(0, 1), (0, 2), (0, 1)])
    plan = moved(b, {0: 10_000, 1: 10_000, 2: 10_000})
    machine = device(LinkKind.MESH, latency_us=4)
    assert [end for _, end in spans(play(plan, machine))] == [14, 14, 24]


def test_all_of_pcie_is_shared():
    b = PlanBuilder(ranks=4)
    transfers(b, [(0, 1), (2, 3)])
    plan = moved(b, {0: 10_000, 1: 10_000})
    machine = device(LinkKind.PCIE, shared_gbytes_s=0.5)
    assert [end for _, end in spans(play(plan, machine))] == [10, 30]


def test_ranks_share_cores():
    x_bytes = {0: 9000.0, 1: 9000.0, 2: 9000.0}
    b = PlanBuilder(ranks=3)
    x = b.buffer("x", (8,))
    for rank in range(3):
        b.task("f", b.lane(rank), b.read(x, rank, (0, 8)))
    ends = {}
    for number in (1, 2, 3):
        machine = cores(number)
        ends[number] = play(worked(b, x_bytes, machine), machine).end_us
    assert ends[3].max() == pytest.approx(9000, rel=0.01)
    assert ends[1].max() == pytest.approx(27000, rel=0.01)
    # Turns of 3 ms: nobody is done long before the others.
    assert ends[1].min() > 20000
    assert ends[2].max() == pytest.approx(15000, rel=0.01)


def test_a_rank_that_waits_gives_its_core_away():
    b, machine = PlanBuilder(ranks=2), cores(1)
    x = b.buffer("x", (8,))
    ready = b.slot(rank=0)
    b.task("late", b.lane(0), b.read(x, 0, (0, 8)), wait=[ready])
    b.task("early", b.lane(1), b.read(x, 1, (0, 8)), notify=[ready])
    plan = worked(b, {0: 10, 1: 20}, machine)
    assert spans(play(plan, machine)) == [(20, 30), (0, 20)]


PROGRAMS = [ag_gemm(4), gemm_rs(4), gemm_ar(3), mlp(4)]


@pytest.mark.parametrize("machine", ["cpu", "h800x8", "mi300x8", "l20x8-pcie", "h800x8x2"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_compiled_programs_end(program: dt.Program, machine: str):
    described = load_machine(machine)
    plan = lower(program.ir.clone(), machine, Options())
    timeline = play(plan, described)
    assert (timeline.begin_us <= timeline.end_us).all()
    assert (timeline.end_us >= described.costs.launch_us).all()
    assert np.isfinite(timeline.makespan_us)
    again = play(plan, described)
    assert (again.begin_us == timeline.begin_us).all()
    for op in op_times(plan, timeline):
        assert described.costs.launch_us <= op.begin_us <= op.end_us <= timeline.makespan_us


def test_waits_come_after_what_they_wait_for():
    plan = lower(ag_gemm(4, m=64, n=64, k=32).ir.clone(), "h800x8", Options(tile=(8, 8)))
    timeline = play(plan, load_machine("h800x8"))
    now = np.flatnonzero(plan.waits.lag == 0)
    assert len(now)
    for wait in now:
        senders = plan.notifies.task[plan.notifies.slot == plan.waits.slot[wait]]
        enough = np.sort(timeline.end_us[senders])[plan.waits.value[wait] - 1]
        assert timeline.begin_us[plan.waits.task[wait]] >= enough - 1e-9


def test_a_timeline_is_written_as_a_trace(tmp_path: Path):
    plan = lower(ag_gemm(2, m=64).ir.clone(), "h800x8", Options(algorithm="mesh-push"))
    write_timeline(tmp_path / "t.json", plan, play(plan, load_machine("h800x8")))
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    assert len(slices) == len(plan.tasks)
    assert all(e["dur"] >= 0 for e in slices)
    assert any(e["ph"] == "s" for e in events)


def test_many_tasks_are_played_fast():
    plan = ag_gemm_plan(30_000, 8, 132)
    for machine in ("h800x8", "cpu"):
        start = process_time()
        play(plan, load_machine(machine))
        assert process_time() - start < 3


def test_the_tiles_of_a_thin_product_read_no_faster_than_memory():
    with dt.Program("p", dt.Mesh(tp=1)) as p:
        x = p.input("x", (1, 4096), dt.bf16, dt.Replicate())
        w = p.weight("w", (4096, 24576), dt.bf16, dt.Replicate())
        p.output("y", dt.matmul(x, w, name="y"))
    machine = load_machine("h200")
    plan = lower(p.ir.clone(), "h200", Options(library=False))
    us = 2 * 4096 * 24576 / (machine.rates.memory_gbytes_s * 1e3)
    assert us < play(plan, machine).makespan_us - machine.costs.launch_us < 1.15 * us
