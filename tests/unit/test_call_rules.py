"""Placements of kernel calls on meshes with several axes."""

from __future__ import annotations

import pytest

from ditron.errors import PlacementError
from ditron.plan.calls import call
from ditron.plan.placement import Mesh, Placement, Replicate, Scope, Shard
from ditron.plan.spec import TensorSpec

S0, S1, R = Shard(0), Shard(1), Replicate()
MESH = Scope(Mesh(dp=2, tp=2), ("x",))


def tensor(*placements: Placement) -> TensorSpec:
    return TensorSpec((8, 4), "f32", placements)


@pytest.mark.parametrize(
    ("x", "out"),
    [((S0, S1), (S0, S1)), ((R, R), (S0, S0)), ((S0, R), (S0, S0)), ((R, S1), (S0, S1))],
)
def test_each_rank_makes_its_part(x: tuple[Placement, ...], out: tuple[Placement, ...]):
    assert call("k", [tensor(*x)], tensor(*out), [(0, 1)], MESH) == tensor(*out)


def test_what_a_rank_does_not_hold_is_refused():
    with pytest.raises(PlacementError) as caught:
        call("k", [tensor(R, S0)], tensor(S0, S0), [(0, 1)], MESH)
    assert 'to mend it use all_gather(x, dim=0, axis="tp")' in caught.value.message
    with pytest.raises(
        PlacementError, match=r"call of k has no rule for x \[shard\(1\), shard\(0\)"
    ):
        call("k", [tensor(S1, S0)], tensor(R, R), [(0, None)], MESH)
