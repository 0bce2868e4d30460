"""Tile kernels: what is traced, what becomes of it, and what is refused at which line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import interleaved
import pytest
import torch

import ditron as dt
from ditron.errors import DTypeError, PlacementError, ProgramError, ShapeError
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


def wrong(value: object) -> Any:
    """Something that the types do not let pass."""
    return value


Body = Callable[[Any, Any, Any, Any], object]


def unit(k: Any, y: Any) -> Any:
    return k.tile(y, (4, 8))


def loaded(k: Any, x: Any, y: Any) -> Any:
    return k.load(x, unit(k, y), (4, 8))


MISTAKES: list[tuple[type[ProgramError], str, Body]] = [
    (ProgramError, "kernel f", lambda k, x, b, y: loaded(k, x, y) + "a"),
    (
        ProgramError,
        "add takes tiles and numbers, got 'a'",
        lambda k, x, b, y: loaded(k, x, y) + "a",
    ),
    (ProgramError, "neither true nor false", lambda k, x, b, y: bool(loaded(k, x, y))),
    (
        ProgramError,
        "silu takes tiles, got x 8x16 bf16: load it first",
        lambda k, x, b, y: k.silu(x),
    ),
    (ShapeError, "tile of y 8x16 bf16 takes a block of 2 sizes", lambda k, x, b, y: k.tile(y, 4)),
    (
        ShapeError,
        "takes a block of 2 sizes, got (4, 8, 1)",
        lambda k, x, b, y: k.tile(y, (4, 8, 1)),
    ),
    (ProgramError, "makes tiles of its result y, not x", lambda k, x, b, y: k.tile(x, (4, 8))),
    (ProgramError, "a kernel calls k.tile once", lambda k, x, b, y: [unit(k, y), unit(k, y)]),
    (ProgramError, "load takes one of its tensors x, b, y, got 3", lambda k, x, b, y: k.load(3)),
    (
        ProgramError,
        "y is its result, so there is nothing to load yet",
        lambda k, x, b, y: k.load(y, unit(k, y), (4, 8)),
    ),
    (
        ShapeError,
        "load of b 16 bf16 takes 1 indices",
        lambda k, x, b, y: k.load(b, unit(k, y), (8,)),
    ),
    (
        ProgramError,
        "load of x 8x16 bf16, dim 0: an index is 0 or from k.tile, got 1",
        lambda k, x, b, y: k.load(x, (1, unit(k, y)[1]), (4, 8)),
    ),
    (
        ShapeError,
        "dim 0: a block of 4 is not all 8; what no coordinate cuts is loaded whole",
        lambda k, x, b, y: k.load(x, (0, unit(k, y)[1]), (4, 8)),
    ),
    (
        ShapeError,
        "dim 0: cut into 8 / 4, but the result's dim 1 is 16 / 8; they must be cut alike",
        lambda k, x, b, y: k.load(x, unit(k, y)[::-1], (4, 8)),
    ),
    (
        ShapeError,
        "dot of <Tile 4x8 bf16> and <Tile 4x8 bf16>: it sums over 8 of the result's dim 1 of the",
        lambda k, x, b, y: k.dot(t := loaded(k, x, y), t),
    ),
    (
        ShapeError,
        "a kernel cannot sum over a dimension that its tiles cut; load it whole",
        lambda k, x, b, y: k.dot(t := loaded(k, x, y), t, transpose_b=True),
    ),
    (
        ShapeError,
        "add of <Tile 4x8 bf16> and <Tile 8x16 bf16>: 4 of the result's dim 0 does not go with 8",
        lambda k, x, b, y: loaded(k, x, y) + k.load(x),
    ),
    (
        DTypeError,
        "cast one of them first",
        lambda k, x, b, y: k.cast(loaded(k, x, y), dt.i32) + k.load(b),
    ),
    (DTypeError, "cast the tile first", lambda k, x, b, y: k.cast(loaded(k, x, y), dt.i32) * 0.5),
    (DTypeError, "it does not fit", lambda k, x, b, y: loaded(k, x, y) * 1e60),
    (DTypeError, "exp takes float tiles", lambda k, x, b, y: k.exp(k.cast(k.load(x), dt.i64))),
    (DTypeError, "no dtype of a program", lambda k, x, b, y: k.cast(k.load(x), "float")),
    (
        ProgramError,
        "it stores at its own tile: i, ... = k.tile(y, block)",
        lambda k, x, b, y: k.store(y, (0, 0), k.load(x)),
    ),
    (
        ShapeError,
        "<Tile 8x16 bf16> is not the tile 4x8 that it stores",
        lambda k, x, b, y: k.store(y, unit(k, y), k.load(x)),
    ),
    (
        ProgramError,
        "it stores to its result only, y",
        lambda k, x, b, y: k.store(x, unit(k, y), k.load(x)),
    ),
    (
        DTypeError,
        "<Tile 4x8 i32> does not go into bf16: cast it first",
        lambda k, x, b, y: k.store(y, ij := unit(k, y), k.cast(k.load(x, ij, (4, 8)), dt.i32)),
    ),
]


def called(body: Body) -> None:
    """Call a kernel with a mistake in a program that is fine otherwise."""

    @dt.kernel
    def f(k: Any, x: Any, b: Any, y: Any):
        body(k, x, b, y)

    with dt.Program("p", dt.Mesh(tp=2)) as p:
        x = p.input("x", (8, 16), dt.bf16, S0)
        b = p.input("b", (16,), dt.bf16, R)
        p.output("y", dt.call(f, x, b, out=x))


@pytest.mark.parametrize(("kind", "message", "body"), MISTAKES, ids=[m[1][:40] for m in MISTAKES])
def test_mistakes_are_raised_at_the_users_line(kind: type[ProgramError], message: str, body: Body):
    with pytest.raises(ProgramError) as caught:
        called(body)
    error = caught.value
    assert type(error) is kind
    assert message in error.message
    assert f"called at {__file__}:" in error.message
    file, _, line = (error.where or "").rpartition(":")
    assert file == __file__
    frames = [f for f in caught.traceback if str(f.path) == __file__]
    assert int(line) == frames[-1].lineno + 1  # the innermost line of the user's


CALLS: list[tuple[type[ProgramError], str, Callable[[dt.Value, dt.Value], object]]] = [
    (ProgramError, "takes 3 tensors, x, b, y", lambda x, b: dt.call(bias_gelu, x, out=x)),
    (
        ProgramError,
        "kernel bias_gelu has no option 'blocks'; it has block",
        lambda x, b: dt.call(bias_gelu, x, b, out=x, blocks=(8, 8)),
    ),
    (ProgramError, "made by @dt.kernel, got", lambda x, b: dt.call(wrong(len), x, b, out=x)),
    (
        ProgramError,
        "takes values of a program, got 3",
        lambda x, b: dt.call(bias_gelu, x, wrong(3), out=x),
    ),
    (ProgramError, "runs by dt.call(bias_gelu, ...", lambda x, b: bias_gelu(x, b)),
    (
        PlacementError,
        "call of bias_gelu has no rule for x [shard(0)] and b [shard(0)]; to mend it use",
        lambda x, b: dt.call(bias_gelu, x, b, out=x),
    ),
    (
        PlacementError,
        "makes [shard(1)], but out is [shard(0)]: give an out that lies as the operands do",
        lambda x, b: dt.call(bias_gelu, dt.all_gather(x, dim=0), b, out=x),
    ),
    (
        ShapeError,
        "load of b 8 bf16, dim 0: cut into 8 / 128, but the result's dim 1 is 16 / 128",
        lambda x, b: dt.call(bias_gelu, x, x.program.input("c", (8,), dt.bf16, R), out=x),
    ),
]


@pytest.mark.parametrize(("kind", "message", "body"), CALLS, ids=[m[1][:40] for m in CALLS])
def test_calls_that_do_not_fit(
    kind: type[ProgramError], message: str, body: Callable[[dt.Value, dt.Value], object]
):
    def write() -> None:
        with dt.Program("p", dt.Mesh(tp=2)) as p:
            x = p.input("x", (8, 16), dt.bf16, S0)
            body(x, p.input("b", (16,), dt.bf16, S0))

    with pytest.raises(ProgramError) as caught:
        write()
    assert type(caught.value) is kind
    assert message in caught.value.message
    assert (caught.value.where or "").startswith(f"{__file__}:")


def test_kernels_that_are_none():
    def lone(k: Any) -> None: ...

    with pytest.raises(ProgramError, match="should take k, its tensors with the result last"):
        dt.kernel(lone)
    with pytest.raises(ProgramError, match="should take k"):

        @dt.kernel
        def _(k: Any, x: Any, *more: Any): ...

    def nothing(k: Any, x: Any, b: Any, y: Any) -> None: ...

    with pytest.raises(ProgramError, match="kernel f never stores its result, y"):
        called(nothing)
