"""Views, states and scalars as a user writes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import ditron as dt
from ditron.errors import (
    DTypeError,
    InputError,
    PlacementError,
    ProgramError,
    ShapeError,
)
from ditron.ir import task

S0, S1, S2, R = dt.Shard(0), dt.Shard(1), dt.Shard(2), dt.Replicate()


def wrong(value: object) -> Any:
    """Something that the types do not let pass."""
    return value


def source(p: dt.Program, name: str, shape: tuple[int, ...], place: object = R) -> dt.Value:
    return p.input(name, shape, dt.f32, wrong(place))


def test_views_are_torchs():
    with dt.Program("p", dt.Mesh(tp=2)) as p:
        x = source(p, "x", (6, 8), S1)
        heads = dt.reshape(x, (6, -1, 2), name="heads")
        assert (heads.shape, heads.placements) == ((6, 4, 2), (S1,))
        turned = dt.transpose(heads, 0, -2, name="turned")
        assert (turned.shape, turned.placements) == ((4, 6, 2), (S0,))
        first, second, rest = dt.split(turned, (1, 2, 3), dim=1, name="part")
        assert (second.name, second.shape) == ("part.1", (4, 2, 2))
        joined = dt.concat([rest, first], dim=1, name="joined")
        p.output("y", joined)
        p.output("z", dt.slice(second, 2, 1, 1, name="last"))
        p.output("parts", dt.split(turned, 4, dim=1)[1])
    x = torch.randn(6, 8)
    out = p.reference({"x": x})
    turned = x.reshape(6, 4, 2).transpose(0, 1)
    assert torch.equal(out["y"], torch.cat([turned[:, 3:], turned[:, :1]], 1))
    assert torch.equal(out["z"], turned[:, 1:3, 1:])
    assert torch.equal(out["parts"], turned[:, 4:])
    named = [op for op in p.ir.walk() if isinstance(op, task.ComputeOp)]
    names = [op.label() for op in named]
    assert names[:6] == ["heads", "turned", "part.0", "part.1", "part.2", "joined"]


def test_split_of_nothing():
    with dt.Program("p", dt.Mesh(tp=2)) as p:
        (part,) = dt.split(source(p, "x", (0, 3)), 2)
        p.output("y", part)
    assert p.reference({"x": torch.ones(0, 3)})["y"].shape == (0, 3)


def cache(tp: int = 2) -> dt.Program:
    """A cache of 8 tokens; a run writes two of them and reads all."""
    with dt.Program("cache", dt.Mesh(tp=tp)) as p:
        new = p.input("new", (2, 4), dt.bf16, S1)
        pos = p.scalar("pos", dt.i32, max=6)
        kept = p.state("kept", (8, 4), dt.bf16, S1)
        before = dt.slice(kept, 0, pos, 2, name="before")
        kept = dt.update(kept, new, at=pos, name="write")
        p.output("all", dt.relu(kept))
        p.output("was", before)
    return p


def test_state_is_taken_and_returned():
    program = cache()
    held = torch.arange(32.0).reshape(8, 4).bfloat16()
    new = -torch.ones(2, 4).bfloat16()
    out = program.reference({"new": new, "pos": 3, "kept": held})
    expected = held.clone()
    expected[3:5] = new
    assert torch.equal(out["kept"], expected)
    assert torch.equal(out["all"], expected.relu())
    assert torch.equal(out["was"], held[3:5])
    assert torch.equal(held, torch.arange(32.0).reshape(8, 4).bfloat16())
    again = program.reference({"new": new, "pos": torch.tensor(0).int(), "kept": out["kept"]})
    assert torch.equal(again["kept"][:2], new)


def test_states_are_zeros_at_first():
    out = cache().reference({"new": torch.ones(2, 4).bfloat16(), "pos": torch.tensor([6]).int()})
    assert out["kept"].sum(1).tolist() == [0, 0, 0, 0, 0, 0, 4, 4]
    exact = cache().reference({"new": torch.ones(2, 4).bfloat16(), "pos": 0}, compute=torch.float64)
    assert exact["kept"].dtype == torch.float64


@pytest.mark.parametrize(
    ("pos", "message"),
    [
        (7, 'scalar "pos" should be 0 to 6, got 7'),
        (-1, 'scalar "pos" should be 0 to 6, got -1'),
        (2**70, 'scalar "pos" should be 0 to 6, got 1180591620717411303424'),
        (1.5, 'scalar "pos" is of dtype i32, got 1.5'),
        (torch.tensor([7]), "should be 0 to 6"),
        (torch.tensor([1, 2]), 'input "pos" should have shape (1,)'),
        (torch.tensor([1.0]), 'input "pos" should have shape (1,) and dtype torch.int32'),
    ],
)
def test_scalars_are_checked(pos: torch.Tensor | float, message: str):
    if isinstance(pos, torch.Tensor) and not pos.is_floating_point():
        pos = pos.int()
    with pytest.raises(InputError) as caught:
        cache().reference({"new": torch.ones(2, 4).bfloat16(), "pos": pos})
    assert message in caught.value.message


def test_scalars_without_a_max_are_any_numbers():
    with dt.Program("p", dt.Mesh(tp=2)) as p:
        t = p.scalar("t", dt.f32)
        n = p.scalar("n", dt.i64)
        p.output("y", dt.exp(t))
        p.output("z", n * n)
    out = p.reference({"t": 0.0, "n": -3})
    assert (out["y"].tolist(), out["z"].tolist()) == ([1.0], [9])
    with pytest.raises(InputError, match='scalar "n" is of dtype i64, got 10000'):
        p.reference({"t": 0.0, "n": wrong(10**30)})
    with pytest.raises(InputError, match="missing: n, unknown: none"):
        p.reference({"t": 0.0})


def test_updates_follow_each_other():
    with dt.Program("p", dt.Mesh(dp=2, tp=2)) as p:
        x = source(p, "x", (2, 6), (R, R))
        s = p.state("s", (6, 6), dt.f32, (S0, S1))
        s = dt.update(s, x, at=1)
        s = dt.update(s, dt.relu(x), at=3)
        s = dt.update(s, dt.transpose(x, 0, 1), at=4, dim=1)
        assert s.placements == (S0, S1)
        p.output("y", s)
    x = torch.randn(2, 6)
    expected = torch.zeros(6, 6)
    expected[1:3], expected[3:5] = x, x.relu()
    expected[:, 4:] = x.T
    out = p.reference({"x": x})
    assert torch.equal(out["s"], expected)
    assert torch.equal(out["y"], expected)


def test_a_program_tells_its_states_and_scalars():
    op = next(op for op in cache().ir.walk() if isinstance(op, task.ProgramOp))
    assert [s.tensor_name.data for s in op.states] == ["kept"]
    assert [(s.tensor_name.data, s.most) for s in op.scalars] == [("pos", 6)]
    assert [s.tensor_name.data for s in op.inputs] == ["new"]
    update = next(o for o in op.walk() if isinstance(o, task.UpdateOp))
    assert task.find_state(update.result) is next(op.states)


def stale(p: dt.Program) -> dt.Value:
    state = p.state("s", (8, 4), dt.f32, R)
    dt.update(state, source(p, "v", (2, 4)), at=0)
    return dt.relu(state)


MISTAKES: list[tuple[type[ProgramError], str, Callable[[dt.Program], object]]] = [
    (
        PlacementError,
        "slice has no rule for x [shard(0)]; to mend it use all_gather(x, dim=0) or all_to_all(x",
        lambda p: dt.slice(source(p, "x", (8, 4), S0), 0, 0, 2),
    ),
    (
        ShapeError,
        "slice of x 8x4: 3 elements at 6 do not lie within its dim 0 of 8 elements",
        lambda p: dt.slice(source(p, "x", (8, 4)), 0, 6, 3),
    ),
    (
        ShapeError,
        "slice of x 8x4: 3 elements at -1 do not lie",
        lambda p: dt.slice(source(p, "x", (8, 4)), 0, -1, 3),
    ),
    (
        ShapeError,
        "slice of x 8x4: 3 elements at up to 6 do not lie within its dim 0 of 8 elements",
        lambda p: dt.slice(source(p, "x", (8, 4)), 0, p.scalar("n", dt.i32, max=6), 3),
    ),
    (
        ProgramError,
        "a place at run time is a p.scalar(name, dtype, max=...), whose max is known",
        lambda p: dt.slice(source(p, "x", (8, 4)), 0, p.scalar("n", dt.i32), 3),
    ),
    (
        ProgramError,
        "slice's start is an integer or a scalar of the program's, got 'a'",
        lambda p: dt.slice(source(p, "x", (8, 4)), 0, wrong("a"), 3),
    ),
    (
        ProgramError,
        "slice's size is an integer, got None",
        lambda p: dt.slice(source(p, "x", (8, 4)), 0, 0, wrong(None)),
    ),
    (
        ShapeError,
        "split into [4, 3] elements, but dim 0 of x has 8",
        lambda p: dt.split(source(p, "x", (8, 4)), (4, 3)),
    ),
    (
        ShapeError,
        "split takes parts of 1 or more elements, got 0",
        lambda p: dt.split(source(p, "x", (8, 4)), 0),
    ),
    (ShapeError, "concat takes at least one value", lambda _: dt.concat([])),
    (
        ShapeError,
        "concat of x 8x4 and y 8x5: all sizes but that of dim 0 must agree",
        lambda p: dt.concat([source(p, "x", (8, 4)), source(p, "y", (8, 5))]),
    ),
    (
        DTypeError,
        "concat of x f32 and y bf16: dtypes must agree",
        lambda p: dt.concat([source(p, "x", (8, 4)), p.input("y", (8, 4), dt.bf16, R)]),
    ),
    (
        PlacementError,
        "concat has no rule for x [shard(0)] and y [replicate]; to mend it use all_gather(x,",
        lambda p: dt.concat([source(p, "x", (8, 4), S0), source(p, "y", (8, 4))]),
    ),
    (
        ShapeError,
        "reshape of 32 elements to (5, -1): no size fits for -1",
        lambda p: dt.reshape(source(p, "x", (8, 4)), (5, -1)),
    ),
    (
        ShapeError,
        "reshape of x 8x4 to -1x-1: 32 elements do not make -1x-1",
        lambda p: dt.reshape(source(p, "x", (8, 4)), (-1, -1)),
    ),
    (
        PlacementError,
        "reshape of x 8x4 to 32 would move data, as it is [shard(1)]: dim 1 is cut, and is not the"
        " outermost of those that it is merged with; use all_gather(x, dim=1) first",
        lambda p: dt.reshape(source(p, "x", (8, 4), S1), (32,)),
    ),
    (
        ShapeError,
        "transpose: dim 2 is out of range, expected -2 to 1",
        lambda p: dt.transpose(source(p, "x", (8, 4)), 0, 2),
    ),
    (
        ProgramError,
        "update writes to what p.state or update returned; x is neither",
        lambda p: dt.update(x := source(p, "x", (8, 4)), x, at=0),
    ),
    (
        ShapeError,
        "update of s 8x4 with v 2x5: all sizes but that of dim 0 must agree",
        lambda p: dt.update(p.state("s", (8, 4), dt.f32, R), source(p, "v", (2, 5)), at=0),
    ),
    (
        ShapeError,
        "update of s 8x4 with v 2x4: 2 elements at 7 do not lie within its dim 0 of 8",
        lambda p: dt.update(p.state("s", (8, 4), dt.f32, R), source(p, "v", (2, 4)), at=7),
    ),
    (
        DTypeError,
        "update of s bf16 and v f32: dtypes must agree",
        lambda p: dt.update(p.state("s", (8, 4), dt.bf16, R), source(p, "v", (2, 4)), at=0),
    ),
    (
        PlacementError,
        "update has no rule for s [shard(0)] and v [shard(0)]; to mend it use all_gather(v, dim=0)",
        lambda p: dt.update(p.state("s", (8, 4), dt.f32, S0), source(p, "v", (2, 4), S0), at=0),
    ),
    (
        ProgramError,
        "what the state held before the update at ",
        stale,
    ),
    (
        PlacementError,
        'state "s" cannot be [partial(sum)]',
        lambda p: p.state("s", (8, 4), dt.f32, dt.Partial()),
    ),
    (
        ProgramError,
        'scalar "n" with a max is an integer of 0 or more, got f32 and max=3',
        lambda p: p.scalar("n", dt.f32, max=3),
    ),
    (
        ProgramError,
        "the max of scalar \"n\" is an integer, got 'a'",
        lambda p: p.scalar("n", dt.i32, max=wrong("a")),
    ),
    (
        ProgramError,
        'scalar "s": the name belongs to state "s" of ',
        lambda p: [p.state("s", (8,), dt.f32, R), p.scalar("s", dt.i32)],
    ),
]


@pytest.mark.parametrize(("kind", "message", "body"), MISTAKES, ids=[m[1][:40] for m in MISTAKES])
def test_mistakes_are_raised_at_the_users_line(
    kind: type[ProgramError], message: str, body: Callable[[dt.Program], object]
):
    with pytest.raises(ProgramError) as caught, dt.Program("p", dt.Mesh(tp=4)) as p:
        body(p)
    assert type(caught.value) is kind
    assert message in caught.value.message
    assert (caught.value.where or "").startswith(f"{__file__}:")
