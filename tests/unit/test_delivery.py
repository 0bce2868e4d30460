from collections.abc import Sequence
from dataclasses import replace

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin
from xdsl.parser import Parser

import ditron as dt
from ditron.analysis.delivery import check_delivery
from ditron.errors import DeliveryError, PlanError
from ditron.ir.core import Core, FuncOp
from ditron.ir.task import ProgramOp
from ditron.plan.placement import Placement
from ditron.plan.tables import Mode, OpKind, Role
from tests.unit.plan_builder import PlanBuilder, Touch

N = 4  # sizes of most tensors here


def program_op(p: dt.Program) -> ProgramOp:
    return next(op for op in p.ir.ops if isinstance(op, ProgramOp))


def kernels(*texts: str) -> dict[str, FuncOp]:
    """Kernels from `name(views): body`, all of 4x4 f32 tiles."""
    context = Context()
    context.load_dialect(Builtin)
    context.load_dialect(Core)
    found: dict[str, FuncOp] = {}
    for text in texts:
        text = text.replace("VIEW", "!core.view<4x4xf32>").replace("TILE", "!core.tile<4x4xf32>")
        for op in Parser(context, text).parse_module().ops:
            assert isinstance(op, FuncOp)
            found[op.kernel_name] = op
    return found


def kernel(name: str, compute: str, *, args: str = "ab") -> str:
    """A kernel that stores to its last view what `compute` makes of tiles %a, %b as %c."""
    views = ", ".join(f"%v{a}: VIEW" for a in args)
    loads = "\n".join(f"%{a} = core.load %v{a} : VIEW -> TILE" for a in args)
    store = "core.store %c, %vc : TILE, VIEW"
    return f"core.func @{name}({views}, %vc: VIEW) {{\n{loads}\n{compute}\n{store}\n}}"


TWO = ": TILE, TILE -> TILE"
ONE = ": TILE -> TILE"
DOT = kernel("dot", f"%c = core.dot %a, %b {TWO}")


def square(*placements: Placement) -> dt.Program:
    """y = a @ b of two 4 x 4 matrices."""
    with dt.Program("square", dt.Mesh(tp=1)) as p:
        a, b = (p.input(n, (N, N), dt.f32, *(placements or [dt.Replicate()])) for n in "ab")
        p.output("y", dt.matmul(a, b))
    return p


def one_tile(*inputs: str, name: str = "dot") -> PlanBuilder:
    """One call of a kernel on whole 4 x 4 buffers, on one rank."""
    b = PlanBuilder()
    box = (0, N), (0, N)
    views = [b.read(b.buffer(n, (N, N), role=Role.INPUT), 0, *box) for n in inputs]
    y = b.write(b.buffer("y", (N, N), role=Role.OUTPUT), 0, *box)
    b.task(name, b.lane(0), *views, y, kernel=name)
    return b


def refused(plan: PlanBuilder, texts: Sequence[str], program: dt.Program) -> str:
    with pytest.raises(DeliveryError) as error:
        check_delivery(plan.plan(), kernels(*texts), program_op(program))
    return error.value.message


def test_one_tile():
    report = check_delivery(one_tile("a", "b").plan(), kernels(DOT), program_op(square()))
    assert (report.tasks, report.levels, report.outputs) == (1, 1, 1)
    assert report.cells == 12  # each of a, b and y is cut in 2 x 2, so that no order is hidden


@pytest.mark.parametrize(
    "compute",
    [
        f"%c = core.dot %b, %a {TWO}",
        f"%c = core.dot %a, %b transpose_b {TWO}",
        f"%c = core.mul %a, %b {TWO}",
        f"%d = core.dot %a, %b {TWO}\n%c = core.add %d, %d {TWO}",
        f"%d = core.dot %a, %b {TWO}\n%c = core.relu %d {ONE}",
        f"%c = core.cast %a {ONE}",
    ],
)
def test_a_kernel_that_computes_something_else(compute: str):
    text = refused(one_tile("a", "b"), [kernel("dot", compute)], square())
    assert text.startswith("output 'y'[0:1, 0:1] on rank 0 (%y[0:1, 0:1] at rank 0) should hold")
    assert "it is last written by @dot[0] on rank 0 (sm lane 0, task 0), user.py:1" in text


def test_fused_kernels_are_held_against_the_whole_expression():
    with dt.Program("fused", dt.Mesh(tp=1)) as p:
        a, b = (p.input(n, (N, N), dt.f32, dt.Replicate()) for n in "ab")
        p.output("y", dt.silu(a) * b - a)
    body = f"%d = core.silu %a {ONE}\n%e = core.mul %d, %b {TWO}\n%c = core.sub %e, %a {TWO}"
    plan = one_tile("a", "b", name="fused")
    check_delivery(plan.plan(), kernels(kernel("fused", body)), program_op(p))
    wrong = body.replace("core.silu", "core.gelu")
    assert "something else" in refused(plan, [kernel("fused", wrong)], p)


def test_a_sum_may_be_split_and_reordered():
    """Split-K: two halves of K in two tasks, added up by a third in the other order."""
    with dt.Program("split", dt.Mesh(tp=1)) as p:
        a = p.input("a", (N, 2 * N), dt.f32, dt.Replicate())
        b = p.input("b", (2 * N, N), dt.f32, dt.Replicate())
        p.output("y", dt.matmul(a, b))
    plan = PlanBuilder()
    x, w = (plan.buffer(n, s, role=Role.INPUT) for n, s in (("a", (N, 2 * N)), ("b", (2 * N, N))))
    y = plan.buffer("y", (N, N), role=Role.OUTPUT)
    halves = [plan.buffer(f"h{i}", (N, N)) for i in range(2)]
    lane, all_ = plan.lane(0), (0, N)
    for i, half in enumerate(halves):
        k = (i * N, i * N + N)
        touches = (
            plan.read(x, 0, all_, k),
            plan.read(w, 0, k, all_),
            plan.write(half, 0, all_, all_),
        )
        plan.task("dot", lane, *touches, kernel="dot")
    reads = [plan.read(h, 0, all_, all_) for h in reversed(halves)]
    plan.task("sum", lane, *reads, plan.write(y, 0, all_, all_), kernel="sum")
    texts = [DOT, kernel("sum", f"%c = core.add %a, %b {TWO}")]
    check_delivery(plan.plan(), kernels(*texts), program_op(p))
    plan.replace(2, touches=(reads[0], reads[0], plan.write(y, 0, all_, all_)))
    refused(plan, texts, p)


def gather(rows: int = 5, ranks: int = 2) -> tuple[dt.Program, PlanBuilder]:
    """y = all_gather(x): each rank copies its shard and puts it to the others."""
    with dt.Program("gather", dt.Mesh(tp=ranks)) as p:
        x = p.input("x", (rows, N), dt.f32, dt.Shard(0))
        p.output("y", dt.all_gather(x, dim=0))
    plan, q = PlanBuilder(ranks=ranks), -(-rows // ranks)
    sizes = [max(0, min(q, rows - r * q)) for r in range(ranks)]
    x_ = plan.buffer("x", (q, N), role=Role.INPUT, extent=[(s, N) for s in sizes])
    y_ = plan.buffer("y", (rows, N), role=Role.OUTPUT)
    for r, size in enumerate(sizes):
        lane = plan.lane(r)
        for to in range(ranks):
            touches = plan.read(x_, r, (0, size), (0, N)), _rows(plan, y_, to, r * q, size)
            plan.task("put", lane, *touches, kind=OpKind.PUT)
    return p, plan


def _rows(plan: PlanBuilder, buffer: int, rank: int, lo: int, size: int) -> Touch:
    return plan.write(buffer, rank, (lo, lo + size), (0, N))


@pytest.mark.parametrize("rows", [0, 1, 3, 5, 6])
def test_a_gather_of_uneven_shards(rows: int):
    p, plan = gather(rows, ranks=3)
    check_delivery(plan.plan(), {}, program_op(p))


def test_an_output_that_nobody_writes():
    p, plan = gather()
    plan.replace(1, touches=())
    text = refused(plan, [], p)
    assert text == "output 'y': nobody has written %y[0:1, 0:1] at rank 1"


def test_data_at_the_wrong_place_is_recognised():
    p, plan = gather()
    read = plan.tasks[3].touches[0]
    plan.replace(1, touches=(*plan.tasks[1].touches[:1], _rows(plan, 1, 1, 2, 3)))
    plan.replace(3, touches=(read, _rows(plan, 1, 1, 0, 2)))
    text = refused(plan, [], p)
    assert "should hold the all_gather of" in text
    assert "but holds what belongs in the all_gather of" in text
    assert "at [3:" in text


def test_a_read_of_memory_that_nobody_wrote():
    with dt.Program("twice", dt.Mesh(tp=1)) as p:
        x = p.input("a", (N, N), dt.f32, dt.Replicate())
        p.output("y", dt.relu(x))
    plan = one_tile("a", name="relu")
    scratch = plan.buffer("s", (N, N))
    box = (0, N), (0, N)
    plan.replace(0, touches=(plan.read(scratch, 0, *box), plan.write(1, 0, *box)))
    relu = kernel("relu", f"%c = core.relu %a {ONE}", args="a")
    text = refused(plan, [relu], p)
    assert "@relu[0] on rank 0 (sm lane 0, task 0) reads %s[0:4, 0:4] at rank 0" in text
    assert "nobody has written %s[0:1, 0:1] at rank 0: an uninitialised read" in text


def test_garbage_may_be_moved_but_not_delivered():
    p, plan = gather(rows=4)
    scratch = plan.buffer("s", (2, N))
    whole = (0, 2), (0, N)
    plan.task(
        "move", 0, plan.read(scratch, 0, *whole), plan.write(scratch, 1, *whole), kind=OpKind.PUT
    )
    check_delivery(plan.plan(), {}, program_op(p))
    plan.task("put", 0, plan.read(scratch, 0, *whole), _rows(plan, 1, 0, 0, 2), kind=OpKind.PUT)
    assert "nobody has written %y[0:1, 0:1] at rank 0" in refused(plan, [], p)


def reduction() -> tuple[dt.Program, PlanBuilder]:
    """y = all_reduce(a @ b) on two ranks, by adding puts into zeros that a matmul wrote."""
    with dt.Program("reduce", dt.Mesh(tp=2)) as p:
        a = p.input("a", (N, 2 * N), dt.f32, dt.Shard(1))
        b = p.input("b", (2 * N, N), dt.f32, dt.Shard(0))
        p.output("y", dt.all_reduce(dt.matmul(a, b)))
    plan = PlanBuilder(ranks=2)
    names = [("a", Role.INPUT), ("b", Role.INPUT), ("h", Role.SCRATCH), ("y", Role.OUTPUT)]
    a_, b_, h, y = (plan.buffer(n, (N, N), role=role) for n, role in names)
    box = (0, N), (0, N)
    done = [plan.slot(r) for r in range(2)]
    lanes = [plan.lane(r) for r in range(2)]
    for r, lane in enumerate(lanes):
        reads = plan.read(a_, r, *box), plan.read(b_, r, *box)
        plan.task("dot", lane, *reads, plan.write(h, r, *box), kernel="dot", notify=done)
    for r, lane in enumerate(lanes):
        reads = plan.read(h, 0, *box), plan.read(h, 1, *box)
        plan.task("sum", lane, *reads, plan.write(y, r, *box), kernel="sum", wait=[done[r]])
    return p, plan


SUM = kernel("sum", f"%c = core.add %a, %b {TWO}")


def test_a_reduction_over_ranks():
    p, plan = reduction()
    check_delivery(plan.plan(), kernels(DOT, SUM), program_op(p))


@pytest.mark.parametrize(
    ("compute", "words"),
    [
        (f"%c = core.cast %a {ONE}", "only the term of rank 0"),
        (f"%d = core.add %a, %b {TWO}\n%c = core.add %d, %b {TWO}", "the term of rank 1 twice"),
        (f"%c = core.sub %b, %b {TWO}", "zeros"),
    ],
)
def test_a_reduction_that_leaves_out_or_repeats_a_term(compute: str, words: str):
    p, plan = reduction()
    assert words in refused(plan, [DOT, kernel("sum", compute)], p)


def test_adding_transfers_count_each_contribution_once():
    p, plan = reduction()
    box = (0, N), (0, N)
    for r in range(2):
        own, other = plan.read(2, r, *box), plan.read(2, 1 - r, *box)
        plan.replace(2 + r, touches=(own, plan.write(3, r, *box)), kind=OpKind.COPY)
        lane = plan.tasks[2 + r].lane
        plan.task("more", lane, other, plan.add(3, r, *box), kind=OpKind.GET)
    check_delivery(plan.plan(), kernels(DOT), program_op(p))
    plan.task("again", 0, plan.read(2, 1, *box), plan.add(3, 0, *box), kind=OpKind.GET)
    assert "the term of rank 1 twice" in refused(plan, [DOT], p)


def test_partial_outputs_may_lie_in_any_terms():
    with dt.Program("terms", dt.Mesh(tp=2)) as p:
        a = p.input("a", (N, 2 * N), dt.f32, dt.Shard(1))
        b = p.input("b", (2 * N, N), dt.f32, dt.Shard(0))
        p.output("y", dt.matmul(a, b))
    _, plan = reduction()
    box = (0, N), (0, N)
    for r in range(2):
        touches = plan.read(2, r, *box), plan.write(3, r, *box)
        plan.replace(2 + r, touches=touches, kind=OpKind.COPY, kernel="")
    check_delivery(plan.plan(), kernels(DOT), program_op(p))
    plan.replace(3, touches=(plan.read(2, 0, *box), plan.write(3, 1, *box)))
    assert "do not add up" in refused(plan, [DOT], p)


def test_what_shares_bytes_is_lost():
    plan = one_tile("a", "b")
    for row, offset in ((0, 0), (1, 64)):
        plan.buffers[row] = replace(plan.buffers[row], offset_bytes=offset)
    a, b, y = plan.tasks[0].touches
    kept = plan.buffer("kept", (N, N), offset=256)
    scratch = plan.buffer("s", (N, N), offset=256 + 16)
    whole, top = ((0, N), (0, N)), ((0, 2), (0, N))
    plan.tasks.clear()
    plan.task("keep", 0, a, plan.write(kept, 0, *whole), kind=OpKind.COPY)
    plan.task("dot", 0, plan.read(kept, 0, *whole), b, y, kernel="dot")
    move = plan.read(b.buffer, 0, *top), plan.write(scratch, 0, *top)
    plan.task("move", 0, *move, kind=OpKind.COPY)
    check_delivery(plan.plan(), kernels(DOT), program_op(square()))
    plan.task("dot", 0, plan.read(kept, 0, *whole), b, y, kernel="dot")
    text = refused(plan, [DOT], square())
    assert "a buffer in the same bytes has overwritten %kept[1:4, 0:1] at rank 0" in text


def test_an_input_stays_for_further_launches():
    plan = one_tile("a", "b")
    for row, offset in ((0, 0), (1, 64)):
        plan.buffers[row] = replace(plan.buffers[row], offset_bytes=offset)
    scratch = plan.write(plan.buffer("s", (N, N), offset=16), 0, (0, 2), (0, N))
    b = plan.tasks[0].touches[1].buffer
    plan.task("move", 0, plan.read(b, 0, (0, 2), (0, N)), scratch, kind=OpKind.COPY)
    text = refused(plan, [DOT], square())
    assert "'a' is to stay for further launches, but this one overwrites %a[1:4, 0:1]" in text


def test_an_empty_sum_is_zero():
    with dt.Program("empty", dt.Mesh(tp=1)) as p:
        a = p.input("a", (N, 0), dt.f32, dt.Replicate())
        b = p.input("b", (0, N), dt.f32, dt.Replicate())
        p.output("y", dt.matmul(a, b))
    plan = PlanBuilder()
    a_ = plan.buffer("a", (N, 1), role=Role.INPUT, extent=[(N, 0)])
    b_ = plan.buffer("b", (1, N), role=Role.INPUT, extent=[(0, N)])
    y = plan.buffer("y", (N, N), role=Role.OUTPUT)
    touches = plan.read(a_, 0, (0, N), (0, 0)), plan.read(b_, 0, (0, 0), (0, N))
    plan.task("dot", plan.lane(0), *touches, plan.write(y, 0, (0, N), (0, N)), kernel="dot")
    check_delivery(plan.plan(), kernels(DOT), program_op(p))
    plan.tasks.clear()
    assert "nobody has written" in refused(plan, [DOT], p)


def test_views_that_do_not_fit_each_other():
    plan = one_tile("a", "b")
    a, b, y = plan.tasks[0].touches
    plan.replace(0, touches=(Touch(Mode.READ, a.buffer, 0, ((0, 4), (0, 3))), b, y))
    text = refused(plan, [DOT], square())
    assert "needs as much of dim 1 of %a[0:4, 0:3] at rank 0 as of dim 0 of %b" in text


def test_what_cannot_be_compared_is_a_plan_error():
    program = program_op(square())
    with pytest.raises(PlanError, match="no buffer for input 'b'"):
        check_delivery(one_tile("a").plan(), {}, program)
    with pytest.raises(PlanError, match="calls kernel 'dot'"):
        check_delivery(one_tile("a", "b").plan(), {}, program)
    plan = one_tile("a", "b")
    plan.buffer("z", (N, N), role=Role.OUTPUT)
    with pytest.raises(PlanError, match="output buffers y, z, the program outputs y"):
        check_delivery(plan.plan(), kernels(DOT), program)
    wide = one_tile("a", "b")
    wide.buffers.clear()
    for name, role in (("a", Role.INPUT), ("b", Role.INPUT), ("y", Role.OUTPUT)):
        wide.buffer(name, (N, 5), role=role)
    with pytest.raises(PlanError, match=r"sizes \[\[4, 5\]\] on the ranks"):
        check_delivery(wide.plan(), kernels(DOT), program)


@pytest.mark.parametrize("between", ["i32", "bool"])
def test_a_cast_that_cuts_off_is_not_one_that_rounds(between: str):
    with dt.Program("cut", dt.Mesh(tp=1)) as p:
        a = p.input("a", (N, N), dt.f32, dt.Replicate())
        p.output("y", dt.cast(dt.cast(a, {"i32": dt.i32, "bool": dt.bool}[between]), dt.f32))
    whole = f"!core.tile<4x4x{between if between == 'i32' else 'i1'}>"
    there, back = f"core.cast %a : TILE -> {whole}", f"core.cast %b : {whole} -> TILE"
    plan, body = one_tile("a", name="cut"), f"%b = {there}\n%c = {back}"
    check_delivery(plan.plan(), kernels(kernel("cut", body, args="a")), program_op(p))
    rounds = body.replace(whole, "!core.tile<4x4xf16>")
    assert "but holds" in refused(plan, [kernel("cut", rounds, args="a")], p)
