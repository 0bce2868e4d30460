"""Layouts against torch.chunk, nested as DTensor nests them."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from ditron.plan.expr import Arg, evaluate
from ditron.plan.layout import Layout
from ditron.plan.placement import Mesh, Placements, Replicate, Shard
from ditron.plan.spec import TensorSpec

PLACEMENTS = st.sampled_from((Shard(0), Replicate()))


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=2),
    size=st.integers(0, 30),
    data=st.data(),
)
def test_extent_and_offset_are_those_of_nested_chunks(
    sizes: list[int], size: int, data: st.DataObject
):
    mesh = Mesh(**{f"a{i}": n for i, n in enumerate(sizes)})
    placements = tuple(data.draw(PLACEMENTS) for _ in sizes)
    layout = Layout(TensorSpec((size,), "f32", placements), mesh)
    ranks = np.arange(mesh.ranks)
    extent = np.broadcast_to(evaluate(layout.extent(0, Arg(0)), [ranks]), mesh.ranks)
    offset = np.broadcast_to(evaluate(layout.offset(0, Arg(0)), [ranks]), mesh.ranks)
    for rank in range(mesh.ranks):
        mine = _chunk(size, sizes, placements, rank)
        assert extent[rank] == len(mine) <= layout.capacity(0)
        assert not len(mine) or offset[rank] == mine[0]


def _chunk(size: int, sizes: list[int], placements: Placements, rank: int) -> torch.Tensor:
    part = torch.arange(size)
    for number, n, placement in zip(np.unravel_index(rank, sizes), sizes, placements, strict=True):
        if isinstance(placement, Shard):
            parts = torch.chunk(part, n) if len(part) else ()
            part = parts[number] if number < len(parts) else part[:0]
    return part
