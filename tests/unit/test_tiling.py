"""Tiles cover a dimension once, and shards as torch.chunk cuts them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ditron.plan.expr import Arg, evaluate
from ditron.plan.tiling import group_height, tile_dim


def covered(capacity: int, block: int, shards: int) -> list[int]:
    """How often the tiles of a dimension touch each of its elements."""
    tiling = tile_dim(capacity, block, shards)
    coords = [Arg(i) for i in range(len(tiling.bounds))]
    grid = np.indices(tiling.bounds)
    offsets = np.broadcast_to(evaluate(tiling.offset(coords), list(grid)), tiling.bounds)
    sizes = np.broadcast_to(evaluate(tiling.size(coords), list(grid)), tiling.bounds)
    assert (sizes <= tiling.block).all()
    touched = [0] * capacity
    for at, size in zip(offsets.flat, sizes.flat, strict=True):
        # Boxes are clipped to the extent.
        for i in range(min(int(at), capacity), min(int(at + size), capacity)):
            touched[i] += 1
    return touched


@given(st.integers(0, 40), st.integers(1, 50), st.integers(0, 5))
def test_tiles_cover_every_element_once(capacity: int, block: int, shards: int):
    assert covered(capacity, block, shards) == [1] * capacity


@given(st.integers(0, 40), st.integers(1, 9), st.integers(1, 5))
def test_a_cut_tile_lies_in_one_shard(capacity: int, block: int, shards: int):
    tiling = tile_dim(capacity, block, shards)
    assert tiling.bounds[0] == shards
    for shard, tile in np.ndindex(*tiling.bounds):
        at = int(evaluate(tiling.offset([Arg(0), Arg(1)]), [np.array(shard), np.array(tile)]))
        size = int(evaluate(tiling.size([Arg(0), Arg(1)]), [np.array(shard), np.array(tile)]))
        assert shard * tiling.shard <= at
        assert at + size <= (shard + 1) * tiling.shard


@pytest.mark.parametrize(
    ("capacity", "block", "shards", "bounds", "size"),
    [
        (8, 3, 0, (3,), 3),
        (8, 100, 0, (1,), 8),
        (0, 4, 0, (1,), 1),  # one tile, if an empty one
        (8, 2, 4, (4, 1), 2),
        (10, 2, 4, (4, 2), 2),  # shards of 3: tiles of 2 and 1
        (0, 2, 4, (4, 1), 1),
    ],
)
def test_bounds(capacity: int, block: int, shards: int, bounds: tuple[int, ...], size: int):
    tiling = tile_dim(capacity, block, shards)
    assert (tiling.bounds, tiling.block) == (bounds, size)


@pytest.mark.parametrize(
    ("tiles", "height"),
    [
        ((64, 26), 16),  # 132 workers: 16 rows of 128 and 8.25 columns of 256
        ((64, 6), 1),  # all six columns at once, however they are walked
        ((63, 16), 21),  # only what divides the rows
        ((61, 26), 1),
        ((1, 26), 1),
    ],
)
def test_rows_that_are_walked_together(tiles: tuple[int, int], height: int) -> None:
    assert group_height(tiles, (128, 256), 132) == height
