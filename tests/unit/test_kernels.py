"""Tile kernels: what is traced, what becomes of it, and what is refused at which line."""

from __future__ import annotations

import inspect
from typing import Any

import interleaved
import pytest
import torch

import ditron as dt
from ditron.ir import core, task
from ditron.ir.locations import op_location

S0, S1, R = dt.Shard(0), dt.Shard(1), dt.Replicate()


@dt.kernel
def bias_gelu(k: Any, x: Any, b: Any, y: Any, *, block: tuple[int, int] = (64, 128)):
    i, j = k.tile(y, block)
    k.store(y, (i, j), k.gelu(k.load(x, (i, j), block) + k.load(b, (j,), block[1:])))


@dt.kernel
def scaled_product(k: Any, x: Any, w: Any, y: Any, *, scale: float = 0.5):
    i, j = k.tile(y, (16, 32))
    rows = k.load(x, (i, 0), (16, x.shape[1]))
    columns = k.load(w, (0, j), (w.shape[0], 32))
    k.store(y, (i, j), rows @ columns * scale - 1)


def funcs(p: dt.Program) -> dict[str, core.FuncOp]:
    return {f.kernel_name: f for f in p.ir.ops if isinstance(f, core.FuncOp)}


def gelu_twice(m: int = 100, n: int = 200, tp: int = 2) -> dt.Program:
    with dt.Program("p", dt.Mesh(tp=tp)) as p:
        x = p.input("x", (m, n), dt.bf16, S0)
        b = p.input("b", (n,), dt.bf16, R)
        h = dt.call(bias_gelu, x, b, out=x, name="first")
        h = dt.call(bias_gelu, h, b, out=h)
        p.output("y", dt.call(bias_gelu, h, b, out=h, block=(32, 32)))
    return p


def test_a_kernel_is_traced_to_core_ops():
    assert str(funcs(gelu_twice())["bias_gelu"]) == (
        "core.func @bias_gelu(%x: !core.view<64x128xbf16>, %b: !core.view<128xbf16>,"
        " %y: !core.view<64x128xbf16>) {\n"
        "  %0 = core.load %x : !core.view<64x128xbf16> -> !core.tile<64x128xbf16>\n"
        "  %1 = core.load %b : !core.view<128xbf16> -> !core.tile<128xbf16>\n"
        "  %2 = core.expand_dims %1 : !core.tile<128xbf16> -> !core.tile<1x128xbf16>\n"
        "  %3 = core.cast %0 : !core.tile<64x128xbf16> -> !core.tile<64x128xf32>\n"
        "  %4 = core.cast %2 : !core.tile<1x128xbf16> -> !core.tile<1x128xf32>\n"
        "  %5 = core.add %3, %4 : !core.tile<64x128xf32>, !core.tile<1x128xf32>"
        " -> !core.tile<64x128xf32>\n"
        "  %6 = core.gelu %5 : !core.tile<64x128xf32> -> !core.tile<64x128xf32>\n"
        "  %7 = core.cast %6 : !core.tile<64x128xf32> -> !core.tile<64x128xbf16>\n"
        "  core.store %7, %y : !core.tile<64x128xbf16>, !core.view<64x128xbf16>\n"
        "}"
    )


def test_equal_kernels_become_one():
    p = gelu_twice()
    assert list(funcs(p)) == ["bias_gelu", "bias_gelu_1"]
    calls = [op for op in p.ir.walk() if isinstance(op, task.CallOp)]
    assert [op.kernel_name for op in calls] == ["bias_gelu", "bias_gelu", "bias_gelu_1"]
    assert [op.label() for op in calls] == ["first", "bias_gelu", "bias_gelu_1"]
    assert all(op.cuts == ((0, 1), (1,)) for op in calls)


def test_ops_carry_the_lines_of_kernel_and_call():
    start = inspect.getsourcelines(gelu_twice)[1]
    (first, *_) = [op for op in gelu_twice().ir.walk() if isinstance(op, task.CallOp)]
    assert op_location(first) == f"{__file__}:{start + 4}"
    body = funcs(gelu_twice())["bias_gelu"].body.block
    line = inspect.getsourcelines(bias_gelu._function)[1]
    assert {op_location(op) for op in body.ops} == {f"{__file__}:{line + 3}"}


def test_a_result_is_typed_like_out():
    with dt.Program("p", dt.Mesh(tp=2)) as p:
        x = p.input("x", (48, 20), dt.bf16, S0)
        w = p.input("w", (20, 64), dt.bf16, R)
        wide = dt.like(x, shape=(48, 64), dtype=dt.f32)
        h = dt.call(scaled_product, x, w, out=wide, scale=0.25)
        assert (h.shape, h.dtype, h.placements) == ((48, 64), dt.f32, (S0,))
        p.output("y", h)
    assert funcs(p)["scaled_product"].view_types[0].dims == (16, 20)
    x, w = torch.randn(48, 20).bfloat16(), torch.randn(20, 64).bfloat16()
    inputs = {"x": x, "w": w}
    assert torch.allclose(p.reference(inputs)["y"], x.float() @ w.float() * 0.25 - 1)
    exact = p.reference(inputs, compute=torch.float64)["y"]
    assert torch.allclose(exact, x.double() @ w.double() * 0.25 - 1, rtol=1e-12)


PLACES = [
    (S0, R, S0),
    (S1, S0, S1),
    (R, R, R),
    (S0, R, S0),
    (R, R, S1),  # each rank makes its own shard
    (S1, R, S1),
]


@pytest.mark.parametrize("places", PLACES, ids=str)
@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("fusion", [None, False])
def test_every_placement_computes_what_the_reference_says(
    places: tuple[Any, Any, Any], ranks: int, fusion: bool | None
):
    with dt.Program("p", dt.Mesh(tp=ranks)) as p:
        x = p.input("x", (37, 50), dt.f32, places[0])
        b = p.input("b", (50,), dt.f32, places[1])
        h = dt.call(bias_gelu, x, b, out=dt.like(x, placements=places[2]), block=(8, 16))
        p.output("y", dt.call(bias_gelu, h, b, out=h, block=(8, 16)))
    inputs = {"x": torch.randn(37, 50), "b": torch.randn(50)}
    with dt.compile(p, options=dt.Options(fusion=fusion)) as exe:
        assert exe.report.delivery is not None
        assert len([op for op in exe.plan.ops if op.kind == "call"]) == (1 if fusion is None else 2)
        (outputs,) = interleaved.run(exe, p.mesh, inputs, seed=ranks)
    assert torch.allclose(outputs["y"], p.reference(inputs)["y"], atol=1e-6)


def test_a_kernel_melts_into_the_matmul_before_it():
    with dt.Program("p", dt.Mesh(tp=2)) as p:
        x = p.input("x", (40, 24), dt.bf16, S0)
        w = p.input("w", (24, 60), dt.bf16, S1)
        b = p.input("b", (60,), dt.bf16, S0)
        h = dt.matmul(dt.all_gather(x, dim=0), w)
        p.output("y", dt.call(bias_gelu, h, b, out=h))
    with dt.compile(p) as exe:
        calls = [op.name for op in exe.plan.ops if op.kind == "call"]
        assert len(calls) == 1
        assert "torch.mm(" in exe.kernels
        assert "gelu(" in exe.kernels


def test_three_dimensions_and_a_whole_one():
    @dt.kernel
    def shifted(k: Any, x: Any, s: Any, y: Any):
        i, j, n = k.tile(y, (1, 4, 8))
        row = k.load(s, (0, 0, n), (1, 1, 8))
        k.store(y, (i, j, n), k.load(x, (i, j, n), (1, 4, 8)) - row)

    with dt.Program("p", dt.Mesh(tp=2)) as p:
        x = p.input("x", (3, 10, 12), dt.i32, S1)
        s = p.input("s", (1, 1, 12), dt.i32, R)
        p.output("y", dt.call(shifted, x, s, out=x))
    inputs = {
        "x": torch.arange(360, dtype=torch.int32).reshape(3, 10, 12),
        "s": torch.arange(12, dtype=torch.int32).reshape(1, 1, 12),
    }
    with dt.compile(p) as exe:
        (outputs,) = interleaved.run(exe, p.mesh, inputs)
    got = outputs["y"]
    assert torch.equal(got, inputs["x"] - inputs["s"])
    assert torch.equal(got, p.reference(inputs)["y"])


def test_numbers_are_rounded_to_the_tiles_dtype():
    @dt.kernel
    def poly(k: Any, x: Any, y: Any):
        (i,) = k.tile(y, (4,))
        t = k.load(x, (i,), (4,))
        k.store(y, (i,), -(2 * t - 0.1) * (1 - t))

    with dt.Program("p", dt.Mesh(tp=1)) as p:
        x = p.input("x", (9,), dt.f32, R)
        p.output("y", dt.call(poly, x, out=x))
    x = torch.linspace(-1, 1, 9)
    with dt.compile(p) as exe:
        assert torch.equal(exe.run({"x": x})["y"], (0 - (2 * x - 0.1)) * (1 - x))


def test_names_are_made_fit_for_symbols():
    def write(k: Any, x: Any, y: Any) -> None:
        k.store(y, i := k.tile(y, (8,)), k.load(x, i, (8,)) + 1)

    write.__name__ = "<naïve>"
    with dt.Program("p", dt.Mesh(tp=2)) as p:
        x = p.input("x", (12,), dt.f32, S0)
        p.output("y", dt.call(dt.kernel(write), x, out=x))
    assert list(funcs(p)) == ["na_ve"]
