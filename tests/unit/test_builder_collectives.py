"""Collectives as a user writes them: dimensions, roots, the axis that is meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import ditron as dt
from ditron.errors import MeshError, PlacementError, ProgramError, ShapeError
from ditron.plan.placement import Placements

S0, S1, R, P = dt.Shard(0), dt.Shard(1), dt.Replicate(), dt.Partial()


def wrong(value: object) -> Any:
    """Something that the types do not let pass."""
    return value


def source(p: dt.Program, *placements: object, shape: tuple[int, ...] = (16, 8)) -> dt.Value:
    return p.input("x", shape, dt.f32, wrong(placements))


def test_every_collective():
    with dt.Program("p", dt.Mesh(tp=4)) as p:
        x = source(p, S0)
        heads = dt.all_to_all(x, split_dim=-1, concat_dim=0, name="to_heads")
        assert (heads.placements, heads.name) == ((S1,), "to_heads")
        assert dt.all_to_all(heads, 0, 1, "tp").placements == (S0,)
        assert dt.shift(heads, by=-1, name="on").placements == (S1,)
        root = dt.broadcast(x, root=1, name="root")
        assert (root.shape, root.placements) == ((4, 8), (R,))
        assert dt.broadcast(heads, 3).shape == (16, 2)
        assert dt.shard(root, dim=1, name="cut").placements == (S1,)
        p.output("y", root)
    text = str(p)
    assert 'task.all_to_all %x split 1 concat 0 axis "tp" name "to_heads"' in text
    assert 'task.shift %to_heads dim 1 by -1 axis "tp" name "on"' in text
    assert 'task.broadcast %x dim 0 root 1 axis "tp" name "root"' in text
    assert 'task.shard %root dim 1 axis "tp" name "cut"' in text


PLAIN: list[tuple[Placements, Callable[[dt.Value], dt.Value], Placements]] = [
    ((S0, S1), lambda x: dt.all_gather(x, 1), (S0, R)),
    ((S0, S0), lambda x: dt.all_gather(x, 0, "tp"), (S0, R)),
    ((R, R), lambda x: dt.shard(x, 0, axis="dp"), (S0, R)),
    ((S1, R), lambda x: dt.shard(x, 0), (S1, S0)),
    ((R, S0), lambda x: dt.all_to_all(x, 1, 0), (R, S1)),
    ((R, S0), lambda x: dt.shift(x, 1), (R, S0)),
    ((S1, R), lambda x: dt.broadcast(x, 0), (R, R)),
]


@pytest.mark.parametrize(("before", "op", "after"), PLAIN)
def test_the_axis_is_the_only_one_that_fits(
    before: Placements, op: Callable[[dt.Value], dt.Value], after: Placements
):
    with dt.Program("p", dt.Mesh(dp=2, tp=2)) as p:
        y = op(source(p, *before))
        assert y.placements == after
        p.output("y", y)


def test_sums_on_two_axes():
    with dt.Program("p", dt.Mesh(dp=2, tp=2)) as p:
        x = source(p, S1, S1)
        w = p.weight("w", (8, 6), dt.f32, (S0, S0))
        y = x @ w
        assert y.placements == (P, P)
        half = dt.reduce_scatter(y, 0, axis="dp")
        assert half.placements == (S0, P)
        assert dt.all_reduce(half).placements == (S0, R)
        p.output("y", dt.reduce_scatter(half, dim=0))
        p.output("z", dt.cast(dt.all_reduce(dt.all_reduce(y, "tp")), dt.bf16))


def test_redistribute():
    with dt.Program("p", dt.Mesh(dp=2, tp=2)) as p:
        x = source(p, S0, S0)
        y = dt.redistribute(x, (R, S1), name="layers.0.move")
        assert y.placements == (R, S1)
        assert y.name == "layers.0.move"
        assert dt.redistribute(y, [R, S1], name="none") is y
        p.output("y", y)
    assert [op.name for op in p.ir.walk()][3:-1] == ["task.all_to_all", "task.all_gather"]
    assert str(p).count('name "layers.0.move"') == 2
    with dt.Program("p", dt.Mesh(tp=2)) as p:
        p.output("y", dt.redistribute(source(p, R), S1))
    assert "task.shard %x dim 1" in str(p)


MISTAKES: list[tuple[type[ProgramError], str, Placements, Callable[[dt.Value], object]]] = [
    (
        MeshError,
        "all_gather(dim=0) could work over dp or tp of Mesh(dp=2, tp=2), as the tensor is"
        " [shard(0), shard(0)]; name one with axis=",
        (S0, S0),
        lambda x: dt.all_gather(x, 0),
    ),
    (MeshError, "shift could work over dp or tp", (S0, S1), lambda x: dt.shift(x, 1)),
    (MeshError, "shard(dim=1) could work over dp or tp", (R, R), lambda x: dt.shard(x, 1)),
    (
        PlacementError,
        "all_gather(dim=0) needs x shard(0) on tp, but it is shard(1): all_gather(x, dim=1, "
        'axis="tp") makes it whole',
        (R, S1),
        lambda x: dt.all_gather(x, 0),
    ),
    (
        PlacementError,
        "all_reduce needs x partial(sum) on dp, but it is replicate: x is whole on every rank",
        (R, R),
        dt.all_reduce,
    ),
    (
        PlacementError,
        "its dim 0 is cut once more within each part on dp; use all_gather(x, dim=0,"
        ' axis="tp") first, or redistribute(x, ...)',
        (S0, S0),
        lambda x: dt.all_gather(x, 0, axis="dp"),
    ),
    (MeshError, "Mesh(dp=2, tp=2) has no axis 'pp'", (S0, R), lambda x: dt.all_gather(x, 0, "pp")),
    (MeshError, "has no axis 0; it has dp, tp", (S0, R), lambda x: dt.shift(x, 1, wrong(0))),
    (ShapeError, "all_to_all: dim 2 is out of range", (S0, R), lambda x: dt.all_to_all(x, 2, 0)),
    (MeshError, "broadcast(root=2): dp has 2 ranks", (S0, R), lambda x: dt.broadcast(x, 2)),
    (
        ProgramError,
        "broadcast's root is an integer, got 0.5",
        (S0, R),
        lambda x: dt.broadcast(x, wrong(0.5)),
    ),
    (ProgramError, "shift's by is an integer, got 'a'", (S0, R), lambda x: dt.shift(x, wrong("a"))),
    (ProgramError, "shard takes values of a program", (S0, R), lambda _: dt.shard(wrong(0), 0)),
    (
        PlacementError,
        "nothing makes [partial(sum), replicate] of [shard(0), replicate]: only a computation",
        (S0, R),
        lambda x: dt.redistribute(x, (P, R)),
    ),
    (
        PlacementError,
        "redistribute needs one placement per axis of Mesh(dp=2, tp=2): 2, got 1",
        (S0, R),
        lambda x: dt.redistribute(x, R),
    ),
    (
        PlacementError,
        'to mend it use all_gather(x, dim=0, axis="tp") or',
        (R, S0),
        lambda x: x @ x.program.input("w", (8, 8), dt.f32, (R, S1)),
    ),
]


@pytest.mark.parametrize(
    ("kind", "message", "placements", "op"), MISTAKES, ids=[m[1][:40] for m in MISTAKES]
)
def test_mistakes_are_raised_at_the_users_line(
    kind: type[ProgramError],
    message: str,
    placements: Placements,
    op: Callable[[dt.Value], object],
):
    with pytest.raises(ProgramError) as caught, dt.Program("p", dt.Mesh(dp=2, tp=2)) as p:
        op(source(p, *placements))
    assert type(caught.value) is kind
    assert message in caught.value.message
    assert (caught.value.where or "").startswith(f"{__file__}:")


def test_bare_placements_need_one_axis():
    with (
        pytest.raises(
            PlacementError, match=r"one placement per axis of Mesh\(dp=2, tp=2\): 2, got"
        ),
        dt.Program("p", dt.Mesh(dp=2, tp=2)) as p,
    ):
        p.input("x", (4,), dt.f32, S0)
