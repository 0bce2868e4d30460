"""Placements and meshes: shards against torch's chunks, local parts against DTensor's own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.tensor import Replicate as TorchReplicate
from torch.distributed.tensor import Shard as TorchShard
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset

from ditron.errors import MeshError, PlacementError
from ditron.plan.placement import (
    Mesh,
    Partial,
    Placement,
    Placements,
    Replicate,
    Shard,
    cutting_axes,
    local_capacity,
    local_extent,
    local_offset,
    shard_extent,
    shard_size,
    show,
)

S0, S1, R, P = Shard(0), Shard(1), Replicate(), Partial()
SIZES = st.integers(0, 40)
RANKS = st.integers(1, 9)


@settings(deadline=None)
@given(SIZES, RANKS)
def test_shards_are_torch_chunks(size: int, n: int):
    chunks = [len(c) for c in torch.arange(size).chunk(n)] if size else []
    chunks += [0] * (n - len(chunks))  # torch leaves empty chunks out
    assert shard_extent(size, n, np.arange(n)).tolist() == chunks
    assert [int(shard_extent(size, n, r)) for r in range(n)] == chunks
    assert shard_size(size, n) == max(chunks)


@dataclass(frozen=True)
class Tensor:
    shape: tuple[int, ...]
    placements: Placements


@st.composite
def placed(draw: st.DrawFn) -> tuple[Tensor, Mesh]:
    """A tensor with 1 to 3 dimensions on a mesh of 1 to 3 axes."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    mesh = Mesh(**{f"a{i}": size for i, size in enumerate(sizes)})
    shape = draw(st.lists(st.integers(0, 23), min_size=1, max_size=3))
    choices: list[Placement] = [R, P, *(Shard(d) for d in range(len(shape)))]
    placements = [draw(st.sampled_from(choices)) for _ in sizes]
    return Tensor(tuple(shape), tuple(placements)), mesh


@settings(deadline=None)
@given(placed())
def test_local_parts_are_dtensors(case: tuple[Tensor, Mesh]):
    tensor, mesh = case
    theirs = [
        TorchShard(p.dim) if isinstance(p, Shard) else TorchReplicate() for p in tensor.placements
    ]
    ranks = np.arange(mesh.ranks)
    extents, offsets = local_extent(tensor, mesh, ranks), local_offset(tensor, mesh, ranks)
    for rank in range(mesh.ranks):
        coordinate = [int(mesh.coordinate(axis, rank)) for axis in mesh.axes]
        extent, offset = _compute_local_shape_and_global_offset(
            tensor.shape, mesh.sizes, lambda i, at=coordinate: at[i], theirs
        )
        assert tuple(extents[rank]) == tuple(local_extent(tensor, mesh, rank)) == extent
        for mine, there, size in zip(offsets[rank], offset, extent, strict=True):
            assert mine == there or size == 0
    assert local_capacity(tensor, mesh) == tuple(extents.max(axis=0))


@settings(deadline=None)
@given(placed())
def test_parts_tile_the_tensor(case: tuple[Tensor, Mesh]):
    tensor, mesh = case
    ranks = np.arange(mesh.ranks)
    counts = np.zeros(tensor.shape, int)
    for offset, extent in zip(
        local_offset(tensor, mesh, ranks), local_extent(tensor, mesh, ranks), strict=True
    ):
        assert (offset >= 0).all()
        assert (offset + extent <= tensor.shape).all()
        counts[tuple(slice(o, o + e) for o, e in zip(offset, extent, strict=True))] += 1
    copies = [
        n for n, p in zip(mesh.sizes, tensor.placements, strict=True) if not isinstance(p, Shard)
    ]
    assert (counts == np.prod(copies, dtype=int)).all()


def test_one_dim_on_two_axes_nests_as_chunks_of_chunks():
    tensor, mesh = Tensor((11, 2), (S0, S0)), Mesh(dp=2, tp=4)
    outer = torch.arange(11).chunk(2)
    inner = [list(c) for part in outer for c in part.chunk(4)]
    extents = local_extent(tensor, mesh, np.arange(8))
    assert extents[:, 0].tolist() == [2, 2, 2, 0, 2, 2, 1, 0]
    assert [len(c) for c in inner] == [e for e in extents[:, 0] if e]
    assert local_offset(tensor, mesh, [0, 3, 4, 6, 7])[:, 0].tolist() == [0, 6, 6, 10, 11]
    assert local_capacity(tensor, mesh) == (2, 2)
    assert cutting_axes(tensor.placements, 0) == (0, 1)


def test_mesh():
    mesh = Mesh(dp=2, tp=4)
    assert mesh.axes == ("dp", "tp")
    assert (mesh.ranks, mesh.size("tp"), mesh.index("tp")) == (8, 4, 1)
    assert (mesh.stride("dp"), mesh.stride("tp")) == (4, 1)
    assert mesh.coordinate("dp", np.arange(8)).tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert mesh.coordinate("tp", np.arange(8)).tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert repr(mesh) == "Mesh(dp=2, tp=4)"
    assert mesh == Mesh(dp=2, tp=4) != Mesh(tp=4, dp=2)
    with pytest.raises(MeshError, match="has no axis 'pp'; it has dp, tp"):
        mesh.size("pp")


def test_bad_values_are_refused_at_the_users_line():
    with pytest.raises(MeshError, match=r"test_placement.py:\d+: a mesh has at least one axis"):
        Mesh()
    with pytest.raises(MeshError, match=r"test_placement.py:\d+: .*'tp' needs a size .* got 0"):
        Mesh(tp=0)
    with pytest.raises(PlacementError, match=r"test_placement.py:\d+: Shard takes the index"):
        Shard("rows")  # pyright: ignore[reportArgumentType]
    with pytest.raises(PlacementError, match=r'test_placement.py:\d+: Partial knows "sum" only'):
        Partial("max")
    assert show((S0, R, P)) == "[shard(0), replicate, partial(sum)]"
