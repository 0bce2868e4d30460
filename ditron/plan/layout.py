"""Where the local part of a tensor lies, as index expressions of the rank.

One dimension may be sharded on two mesh axes; the second then cuts the shards of the first, as in
DTensor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ditron.plan.expr import Expr, as_expr, maximum, minimum
from ditron.plan.placement import Mesh, Shard, shard_size
from ditron.plan.spec import TensorSpec


def axis_stride(mesh: Mesh, axis: int) -> int:
    """How far apart neighbours along a mesh axis are numbered."""
    return int(np.prod(mesh.sizes[axis + 1 :], dtype=np.int64))


def axis_coordinate(mesh: Mesh, axis: int, rank: Expr) -> Expr:
    """A rank's number along a mesh axis."""
    if len(mesh.sizes) == 1:
        return rank
    return (rank // axis_stride(mesh, axis)) % mesh.sizes[axis]


@dataclass(frozen=True)
class Layout:
    """The local part of a tensor on each rank of a mesh."""

    spec: TensorSpec
    mesh: Mesh

    def axes(self, dim: int) -> tuple[int, ...]:
        """The mesh axes that cut a dimension, the first one first."""
        return tuple(i for i, p in enumerate(self.spec.placements) if p == Shard(dim))

    def capacity(self, dim: int) -> int:
        """The most elements that any rank holds of a dimension."""
        size = self.spec.shape[dim]
        for axis in self.axes(dim):
            size = shard_size(size, self.mesh.sizes[axis])
        return size

    def capacities(self) -> list[int]:
        """The capacity of each dimension."""
        return [self.capacity(d) for d in range(len(self.spec.shape))]

    def extent(self, dim: int, rank: Expr) -> Expr:
        """Elements that a rank holds of a dimension."""
        return self._cut(dim, rank)[1]

    def offset(self, dim: int, rank: Expr) -> Expr:
        """The first element of a dimension that a rank holds."""
        return self._cut(dim, rank)[0]

    def _cut(self, dim: int, rank: Expr) -> tuple[Expr, Expr]:
        offset, extent = as_expr(0), as_expr(self.spec.shape[dim])
        even = True
        size = self.spec.shape[dim]
        for axis in self.axes(dim):
            ranks, number = self.mesh.sizes[axis], axis_coordinate(self.mesh, axis, rank)
            # Shards of an uneven shard differ from rank to rank; the others are plain numbers.
            shard = as_expr(shard_size(size, ranks)) if even else (extent + (ranks - 1)) // ranks
            even = even and size % ranks == 0
            size = shard_size(size, ranks)
            offset = offset + number * shard
            rest = maximum(extent - number * shard, 0)
            extent = as_expr(size) if even else minimum(rest, shard)
        return offset, extent
