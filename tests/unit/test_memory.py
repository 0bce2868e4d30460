"""plan-memory: what is alive together lies apart, and what is not shares bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.dialects.builtin import f32

import ditron as dt
from ditron.analysis.deadlock import check_deadlock
from ditron.analysis.expand import expand
from ditron.analysis.liveness import Lifetime, lifetimes
from ditron.analysis.pairing import pair
from ditron.analysis.slots import needed
from ditron.analysis.symbols import device_program
from ditron.errors import OptionError
from ditron.ir import device
from ditron.passes.plan_memory import PlanMemoryPass, place
from ditron.plan.tables import Memory, Role
from tests.unit.lowered import PROGRAMS, lower, mlp, plan_of

BUFFER = device.BufferOp("b", Role.SCRATCH, [1], device.BufferType.get([1], f32, Memory.LOCAL))


@st.composite
def lives(draw: st.DrawFn) -> tuple[list[Lifetime], list[int]]:
    """Lifetimes and sizes in bytes."""
    found: list[Lifetime] = []
    for _ in range(draw(st.integers(0, 12))):
        first, last = sorted(draw(st.tuples(st.integers(0, 9), st.integers(0, 9))))
        unused = draw(st.integers(0, 9)) == 0
        private = draw(st.integers(0, 3)) > 0
        found.append(Lifetime(BUFFER, -1 if unused else first, -1 if unused else last, private))
    return found, [draw(st.integers(1, 8)) * 256 for _ in found]


def overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Whether two (offset, size) share bytes."""
    return a[0] < b[0] + b[1] and b[0] < a[0] + a[1]


@given(lives(), st.booleans())
@settings(max_examples=300, deadline=None)
def test_buffers_alive_together_lie_apart(case: tuple[list[Lifetime], list[int]], reuse: bool):
    buffers, sizes = case
    offsets = place(buffers, sizes, reuse=reuse)
    assert len(offsets) == len(buffers)
    placed = list(zip(offsets, sizes, strict=True))
    for i, mine in enumerate(placed):
        assert mine[0] >= 0
        for j in range(i):
            if not reuse or buffers[i].meets(buffers[j]):
                assert not overlap(mine, placed[j])
    total = max((o + s for o, s in placed), default=0)
    assert total <= sum(sizes)
    if not reuse:
        assert total == sum(sizes)


@given(lives())
@settings(max_examples=100, deadline=None)
def test_only_scratch_that_no_peer_touches_is_shared(case: tuple[list[Lifetime], list[int]]):
    buffers, sizes = case
    placed = list(zip(place(buffers, sizes, reuse=True), sizes, strict=True))
    for i, mine in enumerate(placed):
        for j in range(i):
            if overlap(mine, placed[j]):
                assert buffers[i].private
                assert buffers[j].private


def test_lifetimes_in_a_row_need_the_largest_two():
    buffers = [Lifetime(BUFFER, i, i + 1, private=True) for i in range(6)]
    offsets = place(buffers, [512, 256, 512, 256, 512, 256], reuse=True)
    assert max(o + s for o, s in zip(offsets, [512, 256] * 3, strict=True)) == 768


@pytest.mark.parametrize("ranks", [1, 3])
def test_reuse_lowers_the_heap_of_four_layers(ranks: int):
    program = mlp(ranks, layers=4)
    lean = plan_of(program, dt.Options(algorithm="mesh-push"))
    full = plan_of(program, dt.Options(algorithm="mesh-push", reuse_memory=False))
    padded = [-(-b.size_bytes // 256) * 256 for b in full.buffers]
    assert full.heap_bytes == sum(padded)
    assert lean.heap_bytes < full.heap_bytes
    # The products and activations of one layer at most are alive.
    private = [b for b in full.buffers if b.role is Role.SCRATCH and b.memory is Memory.LOCAL]
    saved = sum(-(-b.size_bytes // 256) * 256 for b in private) * 3 // 4
    assert lean.heap_bytes <= full.heap_bytes - saved


@pytest.mark.parametrize("name", PROGRAMS)
def test_offsets_of_programs(name: str):
    options = dt.Options(algorithm="mesh-push", tile=(2, 3), fusion=False)
    module = lower(PROGRAMS[name](3), options, "plan-memory")
    plan, lived = expand(module), lifetimes(device_program(module))
    for i, a in enumerate(plan.buffers):
        assert a.offset_bytes % 256 == 0
        assert a.offset_bytes + a.size_bytes <= plan.heap_bytes
        for j, b in enumerate(plan.buffers[:i]):
            if lived[i].meets(lived[j]):
                assert not overlap((a.offset_bytes, a.size_bytes), (b.offset_bytes, b.size_bytes))


def test_hosts_and_peers_keep_their_bytes():
    module = lower(mlp(2, layers=2), dt.Options(algorithm="mesh-push"), "plan-memory")
    for life in lifetimes(device_program(module)):
        role, memory = life.buffer.role.data, life.buffer.result.type.memory.data
        if role != Role.SCRATCH:
            assert not life.private
        if life.private:
            assert all(
                view.operation.at is None
                for view in life.buffer.result.uses
                if isinstance(view.operation, device.ViewOp)
            )
        if memory == Memory.LOCAL and role == Role.SCRATCH:
            assert life.private


def test_alignment():
    module = lower(mlp(2), dt.Options(), "order-tiles")
    PlanMemoryPass(align=64).apply(Context(), module)
    assert {b.offset_bytes % 64 for b in expand(module).buffers} == {0}
    assert expand(module).heap_bytes % 64 == 0


def test_a_reused_buffer_may_be_written_by_columns_in_any_order():
    with dt.Program("p", dt.Mesh(tp=3)) as p:
        x = p.input("x", (4, 6), dt.f32, dt.Replicate())
        z = p.input("z", (4, 6), dt.f32, dt.Shard(1))
        p.output("a", dt.silu(dt.relu(x)))
        p.output("b", dt.relu(dt.all_gather(z, dim=1)))
    options = dt.Options(algorithm="mesh-pull", fusion=False)
    check_deadlock(plan_of(p, options))


def test_reuse_ties_no_tiles_of_one_grid_together():
    with dt.Program("p", dt.Mesh(tp=1)) as p:
        x = p.input("x", (4, 4), dt.f32, dt.Replicate())
        p.output("y", dt.silu(dt.silu(dt.silu(dt.silu(x)))))
    plan = plan_of(p, dt.Options(fusion=False, tile=(2, 2), workers=2), "schedule-tasks")
    pairing = needed(plan, pair(plan))
    op = pairing.groups.op
    assert (op[pairing.before] != op[pairing.after])[pairing.lag == 0].all()


@pytest.mark.parametrize("align", [0, -1])
def test_a_wrong_alignment_is_refused(align: int):
    module = lower(mlp(1), until="order-tiles")
    with pytest.raises(OptionError):
        PlanMemoryPass(align=align).apply(Context(), module)
