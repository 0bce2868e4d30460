"""Expansion: IR to tables, boxes clipped, errors at the user's line."""

from __future__ import annotations

import numpy as np
import pytest

import ditron as dt
from ditron.analysis.expand import expand
from ditron.errors import DitronError, PlanError
from ditron.plan.placement import shard_extent
from ditron.plan.tables import After, LaneOrder, Mode, NotifyOp, OpKind, Plan
from tests.unit.lowered import ag_gemm, lower, parse, plan_of

B = "!device.buffer<8x4xf32, symmetric>"
V = "!core.view<3x4xf32>"
CALLS = "engine sm in (%m = 3)"
PUT = f"device.put %a -> %b : {V} -> {V}"


def program(
    *,
    top: str = "",
    views: str = "",
    clauses: str = "",
    body: str = PUT,
    tail: str = "",
    grid: str = "engine copy in (%m = 3)",
    extent: str = "8 - %me",
) -> str:
    """Two ranks; rank r has 8 - r rows of x and y, moved by three tasks of 3 rows."""
    views = views or (
        f"%a = device.view %x[%m * 3, 0] [3, 4] : {B} -> {V}\n"
        f"%b = device.view %y[%m * 3, 0] [3, 4] at (1 - %me) : {B} -> {V}"
    )
    return f"""core.func @k(%a: {V}, %b: {V}) {{
  %t = core.load %a : {V} -> !core.tile<3x4xf32>
  core.store %t, %b : !core.tile<3x4xf32>, {V}
}}
device.program @p ranks 2 {{
%me = device.rank
%x = device.buffer "x" input[{extent}, 4] : {B}
%y = device.buffer "y" scratch[8 - %me, 4] : {B}
%s = device.signals "s" : !device.signals<4>
{top}
device.grid @g {grid} {{
{views}
{clauses}
{body}
{tail}
}}
}}"""


def made(**parts: str) -> Plan:
    return expand(parse(program(**parts)))


def boxes(plan: Plan, access: int) -> list[tuple[int, int, int]]:
    """(owner, first row, end) of one access of every task."""
    a = plan.accesses
    rows = [plan.accesses_of(t)[access] for t in range(len(plan.tasks))]
    return [(int(a.rank[r]), int(a.lo[r, 0]), int(a.hi[r, 0])) for r in rows]


def test_boxes_are_clipped_to_the_owners_extent():
    plan = made()
    # Rank 0 has 8 rows of x, but rank 1 has 7 of y: both sides are clipped to the smaller.
    assert boxes(plan, 0) == [(0, 0, 3), (0, 3, 6), (0, 6, 7), (1, 0, 3), (1, 3, 6), (1, 6, 7)]
    assert boxes(plan, 1) == [(1, 0, 3), (1, 3, 6), (1, 6, 7), (0, 0, 3), (0, 3, 6), (0, 6, 7)]
    assert plan.tasks.bytes.tolist() == [2 * 4 * 4 * rows for rows in (3, 3, 1, 3, 3, 1)]
    assert plan.buffers[0].extent.tolist() == [[8, 4], [7, 4]]


def test_a_box_past_the_end_is_empty_and_keeps_its_row():
    plan = made(extent="5 - %me * 5")
    assert boxes(plan, 0) == [(0, 0, 3), (0, 3, 5), (0, 5, 5), (1, 0, 0), (1, 0, 0), (1, 0, 0)]
    assert plan.accesses.empty.tolist() == [False] * 4 + [True] * 8
    assert len(plan.accesses) == 2 * len(plan.tasks)


def test_empty_and_masked_tasks_still_wait_and_notify():
    parts = {
        "clauses": "device.schedule where [%m ne 1]\n"
        "device.wait %s[%m, 1] ge 1 : !device.signals<4>",
        "tail": "device.notify %s[%m] at %me add 2 after put : !device.signals<4>",
        "extent": "5 - %me * 5",
    }
    plan = made(**parts)
    assert plan.waits.task.tolist() == list(range(6))
    assert plan.notifies.task.tolist() == list(range(6))
    assert plan.slots.count.tolist() == [2, 2, 2, 0] * 2
    assert [lo == hi for _, lo, hi in boxes(plan, 0)] == [False, True, True, True, True, True]


def test_a_masked_task_reads_and_writes_nothing():
    plan = made(clauses="device.schedule where [%m lt %me]")
    assert plan.accesses.empty.tolist() == [True] * 6 + [False] * 2 + [True] * 4
    assert plan.tasks.bytes.tolist() == [0, 0, 0, 96, 0, 0]


def test_a_wait_covers_a_range_of_slots():
    wait = "device.wait %s[1, %m] ge 3 lag 1 when %me eq 1 : !device.signals<4>"
    plan = made(clauses=wait)
    # Tasks 0, 1, 2 of rank 1 wait for 0, 1, 2 slots from its slot 1 on; its slots begin at 4.
    assert plan.waits.task.tolist() == [4, 5, 5]
    assert plan.waits.slot.tolist() == [5, 5, 6]
    assert plan.waits.value.tolist() == [3, 3, 3]
    assert plan.waits.lag.tolist() == [1, 1, 1]
    assert [plan.describe_slot(s) for s in (1, 6)] == ["%s[1] at rank 0", "%s[2] at rank 1"]


def test_notifies():
    plan = made(tail="device.notify %s[%m] at (1 - %me) set 5 after fence : !device.signals<4>")
    assert plan.notifies.slot.tolist() == [4, 5, 6, 0, 1, 2]
    assert plan.notifies.op.tolist() == [NotifyOp.SET] * 6
    assert plan.notifies.after.tolist() == [After.FENCE] * 6


def test_lanes_run_by_keys_then_by_coordinates():
    plan = made(clauses="device.schedule lane [%m mod 2] order [2 - %m]")
    assert [len(lane) for lane in plan.lane_tasks()] == [2, 1, 2, 1]
    assert plan.lane_tasks()[0].tolist() == [2, 0]
    assert plan.lanes.index.tolist() == [0, 1, 0, 1]
    assert plan.lanes.rank.tolist() == [0, 0, 1, 1]
    assert plan.lanes.fifo.all()
    assert made(clauses="device.schedule order [0]").lane_tasks()[0].tolist() == [0, 1, 2]


def test_queues_are_lanes_of_their_own():
    plan = made(grid="engine sm queue in (%m = 3)")
    assert plan.lanes.order == (LaneOrder.QUEUE,) * 2


def test_a_call_reads_and_writes_what_its_kernel_does():
    views = (
        f"%a = device.view %x[%m * 3, 0] [3, 4] : {B} -> {V}\n"
        f"%b = device.view %y[%m * 3, 0] [3, 4] : {B} -> {V}"
    )
    plan = made(
        views=views, body=f"device.call @k(%a, %b) : {V}, {V}", grid="engine sm in (%m = 3)"
    )
    assert plan.ops[0].kind is OpKind.CALL
    assert plan.ops[0].kernel == "k"
    assert plan.accesses.mode.tolist() == [Mode.READ, Mode.WRITE] * 6


def test_grids_with_no_dimension_and_no_task():
    whole = f"device.acquire %x : {B}"
    assert len(made(body=whole, views=" ", grid="engine host in ()").tasks) == 2
    plan = made(grid="engine copy in (%m = 0)")
    assert (len(plan.tasks), len(plan.accesses)) == (0, 0)
    assert [op.name for op in plan.ops] == ["g"]


def test_an_acquire_writes_the_whole_extent():
    plan = made(body=f"device.acquire %x : {B}", views=" ", grid="engine host in ()")
    assert boxes(plan, 0) == [(0, 0, 8), (1, 0, 7)]
    assert plan.accesses.mode.tolist() == [Mode.WRITE] * 2


def test_a_table_is_looked_up():
    top = "%q = device.table dense<[[2, 0], [1, 3]]> : tensor<2x2xi32>[%me, 1]"
    plan = made(top=top, tail="device.notify %s[%q] at %me add 1 after put : !device.signals<4>")
    assert plan.notifies.slot.tolist() == [0] * 3 + [7] * 3


@pytest.mark.parametrize("m", [0, 1, 3, 997])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_ragged_shards(m: int, ranks: int):
    plan = plan_of(ag_gemm(ranks, m, 5, 3), dt.Options(tile=(64, 2)), "schedule-tasks")
    extents = {b.name: b.extent for b in plan.buffers}
    rows = [int(shard_extent(m, ranks, r)) for r in range(ranks)]
    assert extents["x"][:, 0].tolist() == rows
    assert extents["y"][:, 0].tolist() == [m] * ranks
    accesses, tasks = plan.accesses, plan.tasks
    # Each rank's tiles write each element of its y once.
    for rank in range(ranks):
        seen = np.zeros(extents["y"][rank], np.int64)
        for task in np.flatnonzero(tasks.rank == rank).tolist():
            row = [r for r in plan.accesses_of(task) if accesses.mode[r] & Mode.WRITE]
            if plan.ops[tasks.op[task]].kind is OpKind.CALL:
                lo, hi = accesses.lo[row[0]], accesses.hi[row[0]]
                seen[lo[0] : hi[0], lo[1] : hi[1]] += 1
        assert (seen == 1).all()


WRONG = {
    "notify-slot": (
        {"tail": "device.notify %s[%m + 2] at %me add 1 after put : !device.signals<4>"},
        "a slot of %s is 4, expected 0 to 3",
    ),
    "wait-slot": (
        {"clauses": "device.wait %s[%m, 3] ge 1 : !device.signals<4>"},
        "a slot of %s is 4, expected 0 to 3",
    ),
    "negative-slot": (
        {"clauses": "device.wait %s[%m - 1, 1] ge 1 : !device.signals<4>"},
        "a slot of %s is -1, expected 0 to 3",
    ),
    "notify-rank": (
        {"tail": "device.notify %s[0] at %me + 1 add 1 after put : !device.signals<4>"},
        "the rank of a notify is 2, expected 0 to 1",
    ),
    "table": (
        {"top": "%q = device.table dense<[1]> : tensor<1xi32>[%me]"},
        "index 0 of device.table is 1, expected 0 to 0",
    ),
    "peer": (
        {
            "views": f"%a = device.view %x[0, 0] [3, 4] : {B} -> {V}\n"
            f"%b = device.view %y[0, 0] [3, 4] at (%me - 1) : {B} -> {V}"
        },
        "a view's peer is -1, expected 0 to 1",
    ),
    "capacity": (
        {
            "views": f"%a = device.view %x[0, 0] [3 + %m, 4] : {B} -> {V}\n"
            f"%b = device.view %y[0, 0] [3, 4] : {B} -> {V}"
        },
        "a box of (4, 4) is over its view's capacity (3, 4)",
    ),
    "offset": (
        {
            "views": f"%a = device.view %x[0 - %m, 0] [3, 4] : {B} -> {V}\n"
            f"%b = device.view %y[0, 0] [3, 4] : {B} -> {V}"
        },
        "a box starts before its buffer",
    ),
    "extent": (
        {"top": f'%z = device.buffer "z" input[8 + %me, 4] : {B}'},
        "a size of z is over !device.buffer<8x4xf32, symmetric>",
    ),
}


@pytest.mark.parametrize(("parts", "message"), WRONG.values(), ids=WRONG)
def test_what_is_out_of_range_is_an_error_at_its_line(parts: dict[str, str], message: str):
    text = program(**parts)
    with pytest.raises(DitronError) as caught:
        expand(parse(text))
    assert isinstance(caught.value, PlanError)
    assert caught.value.message == message
    assert caught.value.where is not None
    name, line = caught.value.where.split(":")[:2]
    assert name == "test.mlir"
    assert any(text.splitlines()[int(line) - 1] in part for part in parts.values())


UNCHECKED = {
    "lane": ({"clauses": "device.schedule lane [%m - 1]"}, "lane"),
    "too few views": ({"body": f"device.call @k(%a) : {V}", "grid": CALLS}, "@k takes 2 views"),
    "too many views": (
        {"body": f"device.call @k(%a, %b, %b) : {V}, {V}, {V}", "grid": CALLS},
        "@k takes 2 views",
    ),
    "other views": (
        {
            "views": f"%a = device.view %x[0, 0] [2, 4] : {B} -> !core.view<2x4xf32>\n"
            f"%b = device.view %y[0, 0] [3, 4] : {B} -> {V}",
            "body": f"device.call @k(%a, %b) : !core.view<2x4xf32>, {V}",
            "grid": CALLS,
        },
        "view<2x4xf32>",
    ),
}


@pytest.mark.parametrize(("parts", "message"), UNCHECKED.values(), ids=UNCHECKED)
def test_what_has_no_meaning_is_refused(parts: dict[str, str], message: str):
    with pytest.raises(PlanError) as caught:
        made(**parts)
    assert message in caught.value.message


def test_a_module_without_a_device_program():
    with pytest.raises(PlanError, match="run lower-task-to-device first"):
        expand(ag_gemm(2).ir)


def test_collectives_must_be_decomposed():
    module = lower(ag_gemm(2), until="lower-task-to-device")
    with pytest.raises(PlanError, match="run decompose-collectives first") as caught:
        expand(module)
    assert caught.value.where is not None
    assert "lowered.py:" in caught.value.where


def test_the_users_line_is_in_every_op():
    plan = plan_of(ag_gemm(2), until="schedule-tasks")
    assert {op.location.rsplit(":", 1)[0].rsplit("/", 1)[-1] for op in plan.ops} == {"lowered.py"}


def test_what_a_kernel_picks_is_what_it_moves():
    with dt.Program("p", dt.Mesh(tp=1)) as p:
        ids = p.input("ids", (4,), dt.i64, dt.Replicate())
        table = p.weight("table", (1000, 64), dt.f32, dt.Replicate())
        cache = p.state("cache", (512, 64), dt.f32, dt.Replicate())
        at = p.scalar("at", dt.i32, max=500)
        rows = dt.embedding(ids, table, name="rows")
        p.output("y", dt.update(cache, rows, at=at, name="write"))
    with dt.compile(p, options=dt.Options(fusion=False)) as exe:
        plan = exe.plan
    rows_bytes = 4 * 64 * 4
    moved = {
        op.name: int(plan.tasks.bytes[plan.tasks.op == number].sum())
        for number, op in enumerate(plan.ops)
    }
    assert moved["rows"] == 4 * 8 + 2 * rows_bytes
    assert moved["write"] == 4 + 2 * rows_bytes
