"""fuse-tiles: one kernel instead of two, and the same numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from xdsl.context import Context

import ditron as dt
from ditron.analysis.expand import expand
from ditron.ir import core, device, task
from ditron.passes.fuse_tiles import FuseTilesPass
from ditron.plan.dtypes import DType
from ditron.plan.tables import Role
from tests.unit.lowered import find, lower, run

F32, R = dt.f32, dt.Replicate()
SHAPE = (6, 5)


def gated(p: dt.Program) -> None:
    x = p.input("x", (6, 4), F32, R)
    a, b = (p.weight(n, (4, 5), F32, dt.Shard(1)) for n in "ab")
    p.output("y", dt.silu(dt.matmul(x, a)) * dt.matmul(x, b))


def chain(p: dt.Program) -> None:
    x = p.input("x", SHAPE, F32, dt.Shard(0))
    p.output("y", dt.exp(dt.relu(dt.gelu(dt.silu(x)))))


def twice(p: dt.Program) -> None:
    """One tile, read twice by its one user."""
    h = dt.silu(p.input("x", SHAPE, F32, dt.Shard(0)))
    p.output("y", h * h)


def bias(p: dt.Program) -> None:
    """A row for every row of the product."""
    x, w = p.input("x", (6, 4), F32, dt.Shard(0)), p.weight("w", (4, 5), F32, R)
    b = p.weight("b", (1, 5), F32, R)
    p.output("y", dt.relu(dt.matmul(x, w) + b))


def row(p: dt.Program) -> None:
    """What is made has one row, what reads it has many: each tile makes it."""
    x, b = p.input("x", SHAPE, F32, R), p.input("b", (1, 5), F32, R)
    p.output("y", x - dt.exp(b))


def shared(p: dt.Program) -> None:
    """Two readers: it stays."""
    h = dt.silu(p.input("x", SHAPE, F32, dt.Shard(0)))
    p.output("y", dt.relu(h))
    p.output("z", dt.exp(h))


def both(p: dt.Program) -> None:
    """It is an output, and read."""
    h = dt.silu(p.input("x", SHAPE, F32, dt.Shard(0)))
    p.output("z", h)
    p.output("y", dt.relu(h))


def summed(p: dt.Program) -> None:
    """A collective between."""
    x, w = p.input("x", (6, 4), F32, dt.Shard(1)), p.weight("w", (4, 5), F32, dt.Shard(0))
    h = dt.matmul(x, w) + dt.matmul(x, w)
    p.output("y", dt.exp(dt.silu(dt.reduce_scatter(h, 0))))


def product(p: dt.Program) -> None:
    """A product of a product sums over whole rows, which is little work here."""
    x, w = p.input("x", (6, 6), F32, R), p.weight("w", (6, 6), F32, R)
    p.output("y", dt.matmul(dt.matmul(x, w), w))


def blocks(p: dt.Program) -> None:
    """Two column blocks of one product, multiplied."""
    x, w = p.input("x", (5, 4), F32, R), p.weight("w", (4, 14), F32, R)
    both = dt.matmul(x, w)
    p.output("y", dt.silu(dt.slice(both, 1, 0, 7)) * dt.slice(both, 1, 7, 7))


def normed(p: dt.Program) -> None:
    """A norm of rows goes into the product of them."""
    x, g = p.input("x", (5, 6), F32, R), p.weight("g", (6,), F32, R)
    w = p.weight("w", (6, 7), F32, R)
    p.output("y", dt.matmul(dt.rms_norm(x, g), w))


def heads(p: dt.Program) -> None:
    """Some heads of many, each normed and turned, where they are multiplied."""
    x = p.input("x", (6, 4, 4), F32, dt.Shard(0))
    angles = p.input("cos", (1, 1, 4), F32, R), p.input("sin", (1, 1, 4), F32, R)
    turned = dt.rope(dt.rms_norm(x, p.weight("g", (4,), F32, R)), *angles)
    p.output("y", dt.matmul(turned, p.weight("v", (4, 3), F32, R)))


PROGRAMS: dict[str, tuple[Callable[[dt.Program], None], int]] = {
    # program, grids that are left
    "gated": (gated, 1),
    "chain": (chain, 1),
    "twice": (twice, 1),
    "bias": (bias, 1),
    "row": (row, 1),
    "shared": (shared, 3),
    "both": (both, 2),
    "product": (product, 1),
    "blocks": (blocks, 1),
    "normed": (normed, 1),
    "heads": (heads, 1),
}


def program(write: Callable[[dt.Program], None], ranks: int) -> dt.Program:
    with dt.Program("p", dt.Mesh(tp=ranks)) as p:
        write(p)
    return p


def data(p: dt.Program) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    found = {op.tensor_name.data: task.spec_of(op.result) for op in _inputs(p)}
    return {n: torch.randn(t.shape, generator=generator) for n, t in found.items()}


def _inputs(p: dt.Program) -> list[task.SourceOp]:
    return [op for op in p.ir.walk() if isinstance(op, task.SourceOp)]


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_fused_and_unfused_compute_the_same(name: str, ranks: int):
    p = program(PROGRAMS[name][0], ranks)
    inputs = data(p)
    outputs = [
        run(p, dt.Options(fusion=fusion, tile=(4, 3)), inputs, seed=ranks)
        for fusion in (None, False)
    ]
    assert outputs[0].keys() == outputs[1].keys()
    for key, fused in outputs[0].items():
        # float32 throughout, so there is no rounding to save; torch multiplies blocks of other
        # widths in another order.
        if name == "blocks":
            torch.testing.assert_close(fused, outputs[1][key], rtol=1e-6, atol=1e-7)
        else:
            assert torch.equal(fused, outputs[1][key]), key


@pytest.mark.parametrize("name", PROGRAMS)
def test_how_much_is_fused(name: str):
    write, grids = PROGRAMS[name]
    module = lower(program(write, 2), dt.Options(tile=(4, 3)), "fuse-tiles")
    assert len(find(module, "device.grid")) == grids
    assert len(find(module, "core.func")) == grids
    # Nothing is left that nobody needs.
    for buffer in find(module, "device.buffer"):
        assert buffer.results[0].uses
    for op in module.walk():
        if isinstance(op, core.LoadOp | core.BinaryOp | core.UnaryOp | core.CastOp):
            assert op.results[0].uses, op


def test_a_box_is_loaded_once():
    module = lower(program(gated, 2), until="fuse-tiles")
    (call,) = find(module, "device.call")
    assert len(call.operands) == 4  # x, a, b, y
    assert len(find(module, "core.load")) == 3
    assert len(find(module, "core.store")) == 1


def test_collectives_are_not_crossed():
    module = lower(program(summed, 2), until="fuse-tiles")
    (collective,) = find(module, "device.collective")
    grids = find(module, "device.grid")
    block = collective.parent_block()
    assert block is not None
    order = list(block.ops)
    places = [order.index(g) for g in grids]
    assert [p < order.index(collective) for p in places] == [True, False]
    inputs = data(p := program(summed, 3))
    one, other = (run(p, dt.Options(fusion=f, tile=(2, 3)), inputs) for f in (None, False))
    assert all(torch.allclose(one[k], other[k], rtol=1e-6) for k in one)


def test_half_precision_is_rounded_once():
    with dt.Program("p", dt.Mesh(tp=1)) as p:
        x, w = p.input("x", (8, 64), dt.bf16, R), p.weight("w", (64, 8), dt.bf16, R)
        p.output("y", dt.silu(dt.matmul(x, w)))
    inputs = {n: t.bfloat16() for n, t in data(p).items()}
    inputs["w"] = inputs["w"] / 8
    fused = run(p, dt.Options(), inputs)["y", 0]
    exact = torch.nn.functional.silu(inputs["x"].double() @ inputs["w"].double())
    unfused = run(p, dt.Options(fusion=False), inputs)["y", 0]
    assert torch.equal(fused, exact.bfloat16())
    assert (fused - exact).abs().max() <= (unfused - exact).abs().max()


@pytest.mark.parametrize("dtype", [dt.i32, dt.i64, dt.bool])
def test_casts_to_integers_stay(dtype: DType):
    with dt.Program("p", dt.Mesh(tp=1)) as p:
        x = p.input("x", (4,), F32, R)
        p.output("y", dt.cast(dt.cast(x, dtype), F32))
    inputs = {"x": torch.tensor([0.5, 1.75, -2.5, 3.0])}
    fused, unfused = (run(p, dt.Options(fusion=f), inputs)["y", 0] for f in (None, False))
    assert torch.equal(fused, unfused)


def test_only_scratch_disappears():
    p = program(both, 2)
    before = expand(lower(p, until="lower-task-to-device"))
    after = expand(lower(p, until="fuse-tiles"))
    kept = {b.name for b in before.buffers if b.role is not Role.SCRATCH}
    assert kept <= {b.name for b in after.buffers}


def test_a_second_time_changes_nothing():
    module = lower(program(gated, 2), until="fuse-tiles")
    text = str(module)
    FuseTilesPass().apply(Context(), module)
    assert str(module) == text


def test_grids_with_signals_are_left_alone():
    module = lower(program(chain, 2), dt.Options(fusion=False))
    grids = len(find(module, "device.grid"))
    assert any(isinstance(op, device.ScheduleOp) for op in module.walk())
    FuseTilesPass().apply(Context(), module)
    assert len(find(module, "device.grid")) == grids
