"""Paths from one placement to another."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ditron.errors import PlacementError
from ditron.plan.moves import Move, moves, shortest_path
from ditron.plan.placement import (
    Mesh,
    Partial,
    Placement,
    Placements,
    Replicate,
    Scope,
    Shard,
)
from tests.unit.mesh_run import Layout, meshes, placements

S0, S1, R, P = Shard(0), Shard(1), Replicate(), Partial()
ONE, TWO = Mesh(tp=4), Mesh(dp=2, tp=4)


def path(have: Placements, goal: Placements, mesh: Mesh, shape: tuple[int, ...] = (16, 16)) -> str:
    """Moves as a user would write them."""
    steps = shortest_path(Layout(shape, have), goal, mesh)
    return " ".join(step.call("x", Scope(mesh)) for step in steps)


@pytest.mark.parametrize(
    ("have", "goal", "moved"),
    [
        (R, R, ""),
        (P, P, ""),
        (S1, R, "all_gather(x, dim=1)"),
        (P, R, "all_reduce(x)"),
        (P, S1, "reduce_scatter(x, dim=1)"),
        (S0, S1, "all_to_all(x, split_dim=1, concat_dim=0)"),
        (R, S0, "shard(x, dim=0)"),
    ],
)
def test_one_axis_takes_one_move(have: Placement, goal: Placement, moved: str):
    assert path((have,), (goal,), ONE) == moved


@pytest.mark.parametrize(
    ("have", "goal", "moved"),
    [
        ((S0, S0), (S0, R), 'all_gather(x, dim=0, axis="tp")'),
        ((R, R), (S0, S0), 'shard(x, dim=0, axis="dp") shard(x, dim=0, axis="tp")'),
        (
            (S0, S0),
            (R, S0),
            'all_gather(x, dim=0, axis="tp") all_gather(x, dim=0, axis="dp")'
            ' shard(x, dim=0, axis="tp")',
        ),
        # A sum is scattered on the outer axis first: inner parts lie within outer ones.
        (
            (P, P),
            (S0, S0),
            'reduce_scatter(x, dim=0, axis="dp") reduce_scatter(x, dim=0, axis="tp")',
        ),
        # Cut first, so that less is gathered.
        ((S0, R), (R, S1), 'shard(x, dim=1, axis="tp") all_gather(x, dim=0, axis="dp")'),
        # Gather last.
        ((S0, P), (R, R), 'all_reduce(x, axis="tp") all_gather(x, dim=0, axis="dp")'),
    ],
)
def test_two_axes(have: Placements, goal: Placements, moved: str):
    assert path(have, goal, TWO) == moved


@settings(deadline=None)
@given(st.data(), meshes(3), st.tuples(st.integers(0, 9), st.integers(0, 9)))
def test_every_path_is_made_of_moves(data: st.DataObject, mesh: Mesh, shape: tuple[int, int]):
    at, goal = data.draw(placements(2, mesh)), data.draw(placements(2, mesh))
    assume(all(g != P or a == P for a, g in zip(at, goal, strict=True)))
    for move in shortest_path(Layout(shape, at), goal, mesh):
        assert move in moves(at, move.axis, 2)
        at = move.of(at)
    assert at == goal


def test_nothing_makes_sums():
    for have, other in product((S0, R), (P, R, S0)):
        with pytest.raises(PlacementError, match="only a computation leaves sums"):
            path((have, other), (P, other), TWO)


def test_moves():
    assert list(moves((S0, S0), 0, 2)) == []
    assert list(moves((R, S0), 0, 2)) == [Move("shard", 0, R, S1)]
    assert [m.kind for m in moves((P,), 0, 1)] == ["all_reduce", "reduce_scatter"]
    assert Move("all_to_all", 0, S0, S1).dim == 0
    assert Move("all_reduce", 0, P, R).dim is None
