"""What collectives need and make, also on meshes with several axes."""

from __future__ import annotations

import pytest

from ditron.errors import MeshError, PlacementError, ProgramError, ShapeError
from ditron.plan import spec_collectives as rules
from ditron.plan.placement import Mesh, Partial, Placement, Placements, Replicate, Scope, Shard
from ditron.plan.spec import TensorSpec

S0, S1, R, P = Shard(0), Shard(1), Replicate(), Partial()
ONE, TWO = Scope(Mesh(tp=4)), Scope(Mesh(dp=2, tp=4))


def tensor(*placements: Placement, shape: tuple[int, ...] = (16, 8)) -> TensorSpec:
    return TensorSpec(shape, "f32", placements)


def refusal(kind: str, x: TensorSpec, *args: object, scope: Scope = ONE) -> ProgramError:
    with pytest.raises(ProgramError) as caught:
        getattr(rules, kind)(x, *args, scope)
    return caught.value


def test_results():
    assert rules.all_gather(tensor(S1), 1, "tp", ONE) == tensor(R)
    assert rules.reduce_scatter(tensor(P), 0, "tp", ONE) == tensor(S0)
    assert rules.all_reduce(tensor(P), "tp", ONE) == tensor(R)
    assert rules.all_to_all(tensor(S1), 0, 1, "tp", ONE) == tensor(S0)
    assert rules.shard(tensor(R), 1, "tp", ONE) == tensor(S1)
    assert rules.shift(tensor(S1), 1, -3, "tp", ONE) == tensor(S1)


@pytest.mark.parametrize(
    ("size", "root", "kept"), [(16, 1, 4), (10, 2, 3), (10, 3, 1), (5, 3, 0), (0, 0, 0)]
)
def test_a_broadcast_is_as_large_as_the_roots_shard(size: int, root: int, kept: int):
    result = rules.broadcast(tensor(S0, shape=(size, 8)), 0, root, "tp", ONE)
    assert result == tensor(R, shape=(kept, 8))


def test_unplaced_tensors_have_their_shapes():
    x = tensor()
    assert rules.all_to_all(x, 0, 1, "tp", ONE) == x
    assert rules.broadcast(x, 0, 1, "tp", ONE) == tensor(shape=(4, 8))
    assert "needs equal shards" in refusal("shift", tensor(shape=(6, 8)), 0, 1, "tp").message


@pytest.mark.parametrize(
    ("kind", "args", "before", "after"),
    [
        ("all_gather", (0, "tp"), (S0, S0), (S0, R)),
        ("all_gather", (1, "dp"), (S1, S0), (R, S0)),
        ("reduce_scatter", (0, "tp"), (S0, P), (S0, S0)),
        ("reduce_scatter", (1, "dp"), (P, S0), (S1, S0)),
        ("all_reduce", ("dp",), (P, P), (R, P)),
        ("all_to_all", (0, 1, "tp"), (S0, S1), (S0, S0)),
        ("shard", (1, "tp"), (R, R), (R, S1)),
        ("shift", (0, 1, "dp"), (S0, S0), (S0, S0)),
        ("broadcast", (0, 1, "dp"), (S0, P), (R, P)),
    ],
)
def test_over_one_axis_of_two(
    kind: str, args: tuple[object, ...], before: Placements, after: Placements
):
    assert getattr(rules, kind)(tensor(*before), *args, TWO).placements == after


@pytest.mark.parametrize(
    ("kind", "have", "advice"),
    [
        (
            "all_gather",
            S1,
            "needs x shard(0), but it is shard(1): all_gather(x, dim=1) makes it whole",
        ),
        ("all_gather", P, "all_reduce(x) or reduce_scatter(x, dim=...) sums it"),
        ("all_gather", R, "whole on every rank already, so leave this collective out"),
        (
            "reduce_scatter",
            S1,
            "it is shard(1): all_to_all(x, split_dim=0, concat_dim=1) makes it shard(0)",
        ),
        ("reduce_scatter", S0, "x lies as wanted already, so leave this collective out"),
        ("reduce_scatter", R, "x is whole on every rank already; shard(x, dim=0) keeps a part"),
        (
            "shard",
            S0,
            "shard(dim=0) needs x replicate, but it is shard(0): x lies as wanted already",
        ),
        ("shard", S1, "all_to_all(x, split_dim=0, concat_dim=1) makes it shard(0)"),
        ("shard", P, "all_reduce(x) or reduce_scatter"),
    ],
)
def test_what_one_dim_needs(kind: str, have: Placement, advice: str):
    error = refusal(kind, tensor(have), 0, "tp")
    assert isinstance(error, PlacementError)
    assert advice in error.message


@pytest.mark.parametrize(
    ("error", "kind", "x", "args", "message"),
    [
        (
            PlacementError,
            "all_reduce",
            tensor(R),
            ("tp",),
            "all_reduce needs x partial(sum), but it is replicate: x is whole",
        ),
        (
            PlacementError,
            "all_to_all",
            tensor(R),
            (0, 1, "tp"),
            "all_to_all(split_dim=0, concat_dim=1) needs x shard(1), but it is replicate: x",
        ),
        (ShapeError, "all_to_all", tensor(S0), (0, 0, "tp"), "split_dim and concat_dim are both 0"),
        (
            ShapeError,
            "all_to_all",
            tensor(S0),
            (2, 0, "tp"),
            "all_to_all over dim 2, but x is 16x8, so dims are 0 to 1",
        ),
        (
            PlacementError,
            "broadcast",
            tensor(R),
            (0, 1, "tp"),
            "broadcast(root=1) needs x shard(0), but it is replicate: x is whole on every",
        ),
        (
            MeshError,
            "broadcast",
            tensor(S0),
            (0, 4, "tp"),
            "broadcast(root=4): tp has 4 ranks, so root is 0 to 3",
        ),
        (MeshError, "broadcast", tensor(S0), (0, -1, "tp"), "root is 0 to 3"),
        (
            PlacementError,
            "shift",
            tensor(P),
            (0, 1, "tp"),
            "shift(by=1) needs x shard(0), but it is partial(sum): all_reduce(x) or",
        ),
        (
            ShapeError,
            "shift",
            tensor(S0, shape=(6, 8)),
            (0, 1, "tp"),
            "x's dim 0 of 6 is cut into 4; make it a multiple of 4",
        ),
        (MeshError, "all_gather", tensor(S0), (0, "dp"), "Mesh(tp=4) has no axis 'dp'; it has tp"),
    ],
)
def test_refusals(
    error: type[ProgramError], kind: str, x: TensorSpec, args: tuple[object, ...], message: str
):
    caught = refusal(kind, x, *args)
    assert type(caught) is error
    assert message in caught.message


@pytest.mark.parametrize(
    ("kind", "x", "args", "message"),
    [
        (
            "all_gather",
            tensor(S0, S0),
            (0, "dp"),
            "all_gather(dim=0): x is [shard(0), shard(0)], so its dim 0 is cut once more",
        ),
        ("reduce_scatter", tensor(P, S0), (0, "dp"), 'use all_gather(x, dim=0, axis="tp") first'),
        ("shard", tensor(R, S1), (1, "dp"), 'use all_gather(x, dim=1, axis="tp") first'),
        ("all_to_all", tensor(S1, S0), (0, 1, "dp"), 'use all_gather(x, dim=0, axis="tp") first'),
        (
            "all_gather",
            tensor(R, S1),
            (0, "tp"),
            'needs x shard(0) on tp, but it is shard(1): all_gather(x, dim=1, axis="tp") makes it',
        ),
        (
            "broadcast",
            tensor(S0, S0),
            (0, 1, "tp"),
            "cut by another axis too; redistribute it first, to be cut by tp alone",
        ),
        ("shift", tensor(S0, S0, shape=(12, 8)), (0, 1, "dp"), "dim 0 of 12 is cut into 8"),
    ],
)
def test_refusals_on_two_axes(kind: str, x: TensorSpec, args: tuple[object, ...], message: str):
    assert message in refusal(kind, x, *args, scope=TWO).message
