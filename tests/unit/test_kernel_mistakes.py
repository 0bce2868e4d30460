"""Mistakes in tile kernels and their calls: each is named at the user's line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import ditron as dt
from ditron.errors import DTypeError, PlacementError, ProgramError, ShapeError

S0, R = dt.Shard(0), dt.Replicate()


@dt.kernel
def bias_gelu(k: Any, x: Any, b: Any, y: Any, *, block: tuple[int, int] = (64, 128)):
    i, j = k.tile(y, block)
    k.store(y, (i, j), k.gelu(k.load(x, (i, j), block) + k.load(b, (j,), block[1:])))


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
        "it stores a tile of 4 of the result's dim 0 x 8 of the result's dim 1, got one of 8 x 16",
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
