"""What hosts enqueue, as plain data: from the plan, before anything runs."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest

import ditron as dt
from ditron.errors import OptionError, PlanError
from ditron.executable import Executable
from ditron.plan.launches import (
    HostCall,
    LaunchKind,
    beside_still_peers,
    plan_launches,
)
from ditron.plan.strips import strips
from ditron.plan.tables import Plan
from ditron.tools.host_report import launch_report
from tests.unit.lowered import ag_gemm, gemm_rs

OPTIONS = dt.Options(algorithm="mesh-pull", tile=(2, 4), workers=2, transport="copy-engine")


SHARD, PLACE = "%x[0:4, 0:4]", "%all_gather[4:8, 0:4]"


def compiled(program: dt.Program, options: dt.Options = OPTIONS) -> Executable:
    return dt.compile(program, target="sm_90", options=options)


def calls(exe: Executable, rank: int) -> list[HostCall]:
    assert exe.launches is not None
    return list(exe.launches.of_rank(rank).rows())


def test_the_host_program_of_an_ag_gemm():
    exe = compiled(ag_gemm(2))
    assert exe.launches is not None
    rank, *_ = "\n".join(launch_report(exe.plan, exe.launches)).split("\nhost of rank 1")
    lines = [re.sub(" {2,}", "  ", line) for line in rank.splitlines() if "event" not in line]
    assert [line.partition("  ")[2] for line in lines[3:] if line] == [
        "3  flag  %all_gather_pull_ready[0] at rank 1 set  @acquire_x",
        f"2  copy  {SHARD} at rank 0 -> %all_gather[0:4, 0:4] at rank 0, 64 bytes  @all_gather_own",
        "5  flag  %matmul_ready[0] at rank 0 set  @all_gather_own",
        "1  stream-wait  %all_gather_pull_ready[0] at rank 0 ge 1  @all_gather_pull",
        f"1  copy  {SHARD} at rank 1 -> {PLACE} at rank 0, 64 bytes  @all_gather_pull",
        "4  flag  %matmul_ready[1] at rank 0 set  @all_gather_pull",
        "4  flag  %matmul_ready[2] at rank 1 set  @all_gather_pull",
        "0  kernel  2 programs  @matmul",
        "0  stream-wait  %matmul_ready[2] at rank 0 ge 1  @release_x",
    ]


CASES = [
    (ag_gemm(3), "mesh-push"),
    (ag_gemm(3), "ring"),
    (ag_gemm(4, m=7), "mesh-pull"),
    (gemm_rs(3), "mesh-push"),
]


@pytest.mark.parametrize(("program", "algorithm"), CASES)
def test_streams_keep_what_the_plan_orders(program: dt.Program, algorithm: str):
    """Run the calls of all ranks in host order, each when its stream and its waits allow."""
    exe = compiled(program, dt.Options(algorithm=algorithm, tile=(2, 4), transport="copy-engine"))
    plan = exe.plan
    flags = np.zeros(len(plan.slots), np.int64)
    for rank in range(plan.ranks):
        rows = calls(exe, rank)
        seen: dict[int, set[int]] = {}
        for row in rows:
            done = seen.setdefault(row.stream, set())
            if row.kind is LaunchKind.EVENT:
                done |= seen.get(row.behind, set())
            elif row.kind is LaunchKind.FLAG:
                # The copy whose end a flag tells is behind it.
                moved = not plan.accesses.empty[plan.accesses_of(row.task)].any()
                if plan.ops[row.op].engine == "copy" and moved:
                    assert row.task in done
                flags[row.slot] += 1
            elif row.kind is LaunchKind.COPY:
                done.add(row.task)
        assert all(seen[0] >= tasks for tasks in seen.values()), "a launch ends with all its copies"
    driven = np.array([op.engine in ("copy", "host") for op in plan.ops])
    wanted = np.bincount(
        plan.notifies.slot[driven[plan.tasks.op[plan.notifies.task]]], minlength=len(flags)
    )
    assert (flags == wanted).all()
    assert (plan.slots.count[flags > 0] == 1).all()


def test_without_driven_engines_every_grid_is_a_kernel():
    plan = compiled(ag_gemm(2)).plan
    rows = list(plan_launches(plan).of_rank(0).rows())
    kernels = [plan.ops[r.op].name for r in rows if r.kind is LaunchKind.KERNEL]
    assert kernels == [op.name for op in plan.ops]
    assert {r.stream for r in rows if r.kind is LaunchKind.KERNEL} == {0, 1}


def test_a_rank_beside_still_peers_gets_what_their_hosts_send():
    exe = compiled(ag_gemm(3), dt.Options(algorithm="mesh-push", transport="copy-engine"))
    assert exe.launches is not None
    rows = list(beside_still_peers(exe.plan, exe.launches, 1).rows())
    moved = [r for r in rows if r.kind is LaunchKind.COPY]
    targets = [_target(exe.plan, r.task) for r in moved]
    assert [t for t in targets if t == 1] == [1, 1, 1]  # its own, and one from each peer
    assert all(r.rank == 1 for r in rows)
    sides = {r.stream for r in rows} - {0}
    assert {r.stream for r in rows if r.behind == 0} == sides
    assert {r.behind for r in rows if r.kind is LaunchKind.EVENT and r.stream == 0} == sides


def test_a_kernel_that_waits_for_a_peers_kernel_is_refused():
    exe = dt.compile(ag_gemm(3), target="sm_90", options=dt.Options(algorithm="mesh-in-place"))
    assert exe.launches is not None
    with pytest.raises(PlanError, match=r"@matmul.* waits for %matmul_ready.* never comes"):
        beside_still_peers(exe.plan, exe.launches, 0)


def _target(plan: Plan, task: int) -> int:
    return int(plan.accesses.rank[plan.accesses_of(task)[-1]])


@pytest.mark.parametrize(("m", "n", "dim"), [(6, 8, 0), (6, 8, 1), (7, 5, 1)])
def test_strips_move_exactly_the_box(m: int, n: int, dim: int):
    with dt.Program("gather", dt.Mesh(tp=2)) as p:
        x = p.input("x", (m, n), dt.f32, dt.Shard(dim))
        p.output("y", dt.silu(dt.all_gather(x, dim=dim)))
    exe = compiled(p, dt.Options(algorithm="mesh-pull", transport="copy-engine", chunk_bytes=16))
    plan = exe.plan
    for row in calls(exe, 0):
        if row.kind is LaunchKind.COPY:
            ends = [_bytes_of(plan, access) for access in plan.accesses_of(row.task)]
            moved = [
                (s.source + i * s.source_pitch + b, s.target + i * s.target_pitch + b)
                for s in strips(plan, row.task)
                for i, b in product(range(s.height), range(s.width))
            ]
            assert sorted(moved) == sorted(zip(*ends, strict=True))


def _bytes_of(plan: Plan, access: int) -> list[int]:
    """Every byte of a box, row-major, within its buffer."""
    buffer = plan.buffers[int(plan.accesses.buffer[access])]
    places = 4 * np.arange(np.prod(buffer.capacity)).reshape(buffer.capacity)
    lo, hi = plan.accesses.lo[access], plan.accesses.hi[access]
    box = places[tuple(slice(a, b) for a, b in zip(lo, hi, strict=True))][: len(places)]
    return (box.reshape(-1, 1) + np.arange(4)).reshape(-1).tolist()


def test_a_target_without_the_transport_says_which_it_has():
    with pytest.raises(OptionError, match="target cpu has no transport 'copy-engine'; there is"):
        dt.compile(ag_gemm(2), options=dt.Options(transport="copy-engine"))
    with pytest.raises(OptionError, match="gfx942 has no transport 'copy-engine'; there is peer"):
        dt.compile(ag_gemm(2), target="gfx942", options=dt.Options(transport="copy-engine"))


def test_reading_in_place_is_refused_with_a_remedy():
    options = dt.Options(algorithm="mesh-in-place", transport="copy-engine")
    with pytest.raises(OptionError, match="choose a push"):
        compiled(ag_gemm(2), options)
