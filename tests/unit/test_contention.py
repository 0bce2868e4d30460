"""What tasks of a played plan share: memory, engines, FIFOs and the links of a grid."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

import ditron as dt
from ditron.analysis.memory_clock import MemoryClock
from ditron.analysis.symbols import task_program
from ditron.analysis.timeline import play
from ditron.passes.choices import Chooser
from ditron.plan.links import along, grid_share, hops, route
from ditron.plan.machine import LinkKind, Machine, Rates, load_machine
from ditron.plan.options import Options
from ditron.plan.tables import OpKind
from ditron.tools.simulate import lower
from tests.unit.lowered import ag_gemm
from tests.unit.plan_builder import PlanBuilder
from tests.unit.played import device, moved, spans, transfers, worked


def of_memory(machine: Machine) -> Machine:
    """A memory of 2000 bytes a us, for two workers."""
    rates = Rates(machine.rates.matrix_tflops, 2, machine.rates.operand_gbytes_s)
    return msgspec.structs.replace(machine, rates=rates)


def test_a_memory_clock_serves_all_alike():
    clock = MemoryClock()
    clock.start(7, 1.0, 10.0, 0.0)
    assert clock.next_end() == 10
    clock.start(8, 1.0, 2.0, 4.0)  # both at half the speed
    assert clock.next_end() == 8
    assert clock.finish(8.0) == 8
    assert clock.next_end() == 12
    assert clock.finish(12.0) == 7
    assert clock.next_end() == -1
    clock.start(9, 0.25, 3.0, 20.0)  # less than there is: at full speed
    clock.start(7, 0.75, 1.0, 20.0)
    assert clock.next_end() == 21


def test_copies_within_a_rank_share_its_memory():
    b = PlanBuilder(ranks=2)
    transfers(b, [(0, 0), (0, 0), (1, 1)])
    plan = moved(b, {0: 10_000, 1: 30_000, 2: 10_000})
    # Alone 10, 30 and 10 us; the first two take turns until the shorter one ends.
    assert spans(play(plan, of_memory(device()))) == [(0, 20), (0, 40), (0, 10)]


def test_copies_slow_down_what_streams_and_not_products():
    machine = of_memory(device())
    b = PlanBuilder()
    x = b.buffer("x", (8,))
    for _ in range(2):
        b.task("f", b.lane(0), b.read(x, 0, (0, 8)))
    transfers(b, [(0, 0)])
    plan = worked(b, {0: 10, 1: 10}, machine)
    plan.tasks.bytes[2] = 2 * 10_000
    # Workers ask for half the memory each, the copy for all of it.
    assert spans(play(plan, machine)) == [(0, 20), (0, 20), (0, 20)]
    plan.tasks.flops[0] = round(10 * 1e6 * machine.rates.matrix_tflops["f32"] / machine.workers)
    plan.tasks.flops[1] = plan.tasks.flops[0]
    plan.tasks.bytes[:2] = 0
    assert spans(play(plan, machine)) == [(0, 10), (0, 10), (0, 10)]


def test_a_task_of_a_run_takes_its_part_of_what_the_run_took():
    machine = of_memory(device())
    b = PlanBuilder()
    x = b.buffer("x", (8,))
    one, two = b.lane(0), b.lane(0)
    for lane in (one, one, two):
        b.task("f", lane, b.read(x, 0, (0, 8)))
    transfers(b, [(0, 0)])
    plan = worked(b, {0: 4, 1: 12, 2: 16}, machine)
    plan.tasks.bytes[3] = 2 * 16_000
    assert spans(play(plan, machine)) == [(0, 8), (8, 32), (0, 32), (0, 32)]


def test_lanes_beyond_the_last_engine_share_engines():
    b = PlanBuilder(ranks=4)
    transfers(b, [(0, 1), (0, 2), (0, 3)])
    plan = moved(b, dict.fromkeys(range(3), 10000))
    mesh = device(LinkKind.MESH, latency_us=1, copy_lanes=2)
    assert spans(play(plan, mesh)) == [(0, 11), (0, 11), (10, 21)]


def test_more_lanes_than_workers_are_slower():
    b, machine = PlanBuilder(), device()
    x = b.buffer("x", (8,))
    for _ in range(4):
        b.task("f", b.lane(0), b.read(x, 0, (0, 8)))
    assert spans(play(worked(b, dict.fromkeys(range(4), 10.0), machine), machine)) == [(0, 20)] * 4


@pytest.mark.parametrize(("depth", "ends"), [(0, [5, 6, 7, 8]), (1, [5, 10, 15, 20])])
def test_a_fifo_holds_so_many_transfers(depth: int, ends: list[int]):
    machine = device(latency_us=4)
    capabilities = msgspec.structs.replace(machine.capabilities, fifo_depth=depth)
    machine = msgspec.structs.replace(machine, capabilities=capabilities)
    b = PlanBuilder(ranks=2)
    x, lane = b.buffer("x", (8,)), b.lane(0, "copy")
    for _ in range(4):
        touches = b.read(x, 0, (0, 8)), b.write(x, 1, (0, 8))
        b.task("put", lane, *touches, kind=OpKind.PUT, deferred=True)
    plan = moved(b, dict.fromkeys(range(4), 1000))
    assert [end for _, end in spans(play(plan, machine))] == ends


def test_links_of_a_grid_are_held_along_the_way():
    grid = device(LinkKind.GRID, latency_us=2, columns=3)
    assert route(grid.topology, 0, 5) == [(0, 1), (1, 2), (2, 5)]
    assert route(grid.topology, 5, 0) == [(5, 4), (4, 3), (3, 0)]
    assert hops(
        grid.topology, np.array([0, 4, 4], np.int32), np.array([5, 4, 3], np.int32)
    ).tolist() == [3, 0, 1]
    b = PlanBuilder(ranks=6)
    transfers(b, [(0, 5), (1, 2), (3, 4)])
    plan = moved(b, dict.fromkeys(range(3), 10_000))
    # The second wants the link from 1 to 2 that the first holds; the third is on its own.
    assert [end for _, end in spans(play(plan, grid))] == [16, 22, 12]


def test_what_a_grid_gives_each_rank():
    machine = load_machine("mtia-like")
    assert grid_share(machine, 64, 1) == 1
    # 224 links, 5.25 hops on average.
    assert grid_share(machine, 64, 63) == pytest.approx(224 / (64 * 5.25))


def test_nodes_of_hierarchical_algorithms_come_from_the_machine():
    plan = lower(ag_gemm(16).ir.clone(), "h800x8x2", Options(algorithm="hierarchical"))
    puts = np.array([op.kind is OpKind.PUT for op in plan.ops])[plan.tasks.op]
    first = np.searchsorted(plan.accesses.task, np.flatnonzero(puts))
    source, target = plan.accesses.rank[first], plan.accesses.rank[first + 1]
    far = source // 8 != target // 8
    assert np.count_nonzero(far) == 16  # each shard crosses once
    assert len(far) == 16 + 16 * 2 * 7


def test_a_mesh_axis_has_its_own_nodes():
    machine = load_machine("h800x8x2")
    assert [along(machine, stride).ranks_a_node for stride in (1, 2, 8, 16)] == [8, 4, 1, 1]
    assert along(load_machine("h800x8"), 4).ranks_a_node == 8


def test_between_nodes_hierarchical_is_chosen():
    program = ag_gemm(16, 8192, 16384, 4096, dt.bf16)
    chooser = Chooser(task_program(program.ir.clone()), load_machine("h800x8x2"), Options())
    chooser.run()
    assert chooser.asked[0].answers[0].candidate.algorithm == "hierarchical"


def test_a_thousand_ranks():
    b = PlanBuilder(ranks=1024)
    transfers(b, [(rank, (rank + 8) % 1024) for rank in range(1024)])
    plan = moved(b, dict.fromkeys(range(1024), 50_000_000))
    timeline = play(plan, load_machine("h800x8x128"))
    # Launch 8, the issue of a copy 2.5, 50 MB at 50 GB/s, and 6 on the way.
    assert timeline.end_us == pytest.approx(8 + 2.5 + 1000 + 6)
