"""Cut a dimension into tiles, and tiles at shard boundaries where that is wanted."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod

from ditron.plan.expr import Expr, as_expr, minimum
from ditron.plan.placement import shard_size


@dataclass(frozen=True)
class DimTiling:
    """How a grid walks one dimension.

    Attributes:
        bounds: grid bounds; one (tile), or two (shard, tile within it).
        shard: elements of a shard where tiles stop at shard boundaries, else 0.
        block: elements of a full tile, also the capacity of its views.
    """

    bounds: tuple[int, ...]
    shard: int
    block: int

    def offset(self, coords: Sequence[Expr]) -> Expr:
        """First element of the tile at these grid coordinates."""
        if self.shard:
            return coords[0] * self.shard + coords[1] * self.block
        return coords[0] * self.block

    def size(self, coords: Sequence[Expr]) -> Expr:
        """Elements of the tile, before clipping to the extent."""
        if self.shard and self.shard % self.block:
            return minimum(self.block, self.shard - coords[1] * self.block)
        return as_expr(self.block)


def tile_blocks(
    sizes: Sequence[int], tile: Sequence[int], whole: Collection[int], *, matrix: bool
) -> list[int]:
    """Elements of a tile along each dimension, of a domain of these sizes.

    `tile` is for the last two. A matrix has one of each of the dimensions before them; in others a
    tile takes as many, from the last but two outwards, as make it no larger than `tile`.
    """
    ndim = len(sizes)
    given = (1,) * max(ndim - len(tile), 0) + tuple(tile[-ndim:] if ndim else ())
    blocks = [sizes[d] if d in whole else min(given[d], sizes[d]) for d in range(ndim)]
    if not matrix:
        for d in reversed(range(max(ndim - len(tile), 0))):
            if d not in whole:
                room = prod(tile) // max(prod(blocks), 1)
                blocks[d] = max(min(room, sizes[d]), 1)
    return blocks


def tile_dim(capacity: int, block: int, shards: int = 0) -> DimTiling:
    """Tiles of `block` elements over a dimension; `shards` > 0 cuts it into that many shards first.

    There is always at least one tile, if an empty one.
    """
    if shards:
        shard = max(shard_size(capacity, shards), 1)
        block = max(min(block, shard), 1)
        return DimTiling((shards, -(-shard // block)), shard, block)
    block = max(min(block, capacity), 1)
    return DimTiling((max(-(-capacity // block), 1),), 0, block)


def group_height(tiles: tuple[int, int], tile: tuple[int, int], workers: int) -> int:
    """Rows of tiles that a product best walks together: a divisor of their number.

    `workers` neighbouring tasks run at once and share what they load: of one operand the rows of
    their tiles, of the other the columns. Walked column by column in groups of h rows of tiles,
    they cover as many columns as h rows of them need; all columns, if those are fewer. The best
    height loads least; among equals it is the lowest.

    Args:
        tiles: of the result, rows and columns of them.
        tile: rows and columns of one, in elements.
        workers: tasks that run at once.
    """
    down, across = tiles

    def loaded(height: int) -> float:
        columns = max(min(across, max(workers / height, 1)), 1)
        return min(down, workers / columns) * tile[0] + columns * tile[1]

    return min((h for h in range(1, down + 1) if down % h == 0), key=loaded, default=1)
