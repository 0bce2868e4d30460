"""How tensors lie on a mesh.

Placements are PyTorch DTensor's, one per mesh axis: `Shard(dim)` cuts a dimension like
`torch.chunk`, `Replicate()` is the whole tensor on every rank, `Partial()` is a term of a sum. A
dimension that several axes cut is cut by the first of them, then each part by the next.

What operations make of placements is in `placement_table.py`, how to get from one placement to
another in `moves.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ditron.errors import MeshError, PlacementError
from ditron.plan.callsite import user_line
from ditron.plan.limits import MAX_RANKS


@dataclass(frozen=True)
class Shard:
    """Rank r of the axis holds elements [r x q, (r + 1) x q) of `dim`, q = ceil(size / n)."""

    dim: int

    def __post_init__(self) -> None:
        if type(self.dim) is not int:
            message = f"Shard takes the index of a dimension, got {self.dim!r}"
            raise PlacementError(message, user_line())

    def __str__(self) -> str:
        return f"shard({self.dim})"


@dataclass(frozen=True)
class Replicate:
    """Every rank of the axis holds the whole tensor."""

    def __str__(self) -> str:
        return "replicate"


@dataclass(frozen=True)
class Partial:
    """Every rank of the axis holds a term; the tensor is their sum."""

    reduce_op: str = "sum"

    def __post_init__(self) -> None:
        if self.reduce_op != "sum":
            message = f'Partial knows "sum" only, got {self.reduce_op!r}'
            raise PlacementError(message, user_line())

    def __str__(self) -> str:
        return "partial(sum)"


Placement = Shard | Replicate | Partial
Placements = tuple[Placement, ...]
Longs = npt.NDArray[np.int64]


def show(placements: Sequence[Placement]) -> str:
    """`[shard(0), replicate]`, as the IR prints them."""
    return f"[{', '.join(map(str, placements))}]"


@dataclass(frozen=True, init=False)
class Mesh:
    """Ranks in a grid with named axes, row-major: `Mesh(dp=2, tp=4)` has rank dp * 4 + tp."""

    axes: tuple[str, ...]
    sizes: tuple[int, ...]

    def __init__(self, **axes: int) -> None:
        if not axes:
            message = "a mesh has at least one axis, as in Mesh(tp=4)"
            raise MeshError(message, user_line())
        for axis, size in axes.items():
            if type(size) is not int or size < 1:
                message = f"mesh axis {axis!r} needs a size of at least 1, got {size!r}"
                raise MeshError(message, user_line())
            if not (axis.isascii() and axis.isidentifier()):
                message = f"a mesh axis is named by letters, digits and '_', got {axis!r}"
                raise MeshError(message, user_line())
        if prod(axes.values()) > MAX_RANKS:
            message = f"a mesh has at most {MAX_RANKS} ranks, got {prod(axes.values())}"
            raise MeshError(message, user_line())
        object.__setattr__(self, "axes", tuple(axes))
        object.__setattr__(self, "sizes", tuple(axes.values()))

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return int(np.prod(self.sizes, dtype=np.int64))

    def size(self, axis: str) -> int:
        """The number of ranks along one axis."""
        return self.sizes[self.index(axis)]

    def index(self, axis: str) -> int:
        """The position of an axis.

        Raises:
            MeshError: the mesh has no such axis.
        """
        if axis not in self.axes:
            message = f"{self} has no axis {axis!r}; it has {', '.join(self.axes)}"
            raise MeshError(message)
        return self.axes.index(axis)

    def stride(self, axis: str) -> int:
        """How far apart neighbours along an axis are in rank numbers."""
        return int(np.prod(self.sizes[self.index(axis) + 1 :], dtype=np.int64))

    def coordinate(self, axis: str, rank: npt.ArrayLike) -> Longs:
        """Where a rank, or each of an array of ranks, stands along an axis."""
        return np.asarray(rank, np.int64) // self.stride(axis) % self.size(axis)

    def __repr__(self) -> str:
        return f"Mesh({', '.join(f'{a}={s}' for a, s in zip(self.axes, self.sizes, strict=True))})"


def shard_size(size: int, n: int) -> int:
    """Elements of a full shard: ceil(size / n), as `torch.chunk` cuts."""
    return -(-size // n)


def shard_extent(size: int, n: int, r: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Elements that rank r of n holds: the last ranks hold fewer, or none. `r` may be an array."""
    q = shard_size(size, n)
    return np.clip(size - np.asarray(r, np.int64) * q, 0, q)


class Placed(Protocol):
    """A global shape and a placement per mesh axis, as `TensorSpec` has them."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def placements(self) -> Placements: ...


def local_offset(tensor: Placed, mesh: Mesh, rank: npt.ArrayLike) -> Longs:
    """Where a rank's part begins in the global tensor, `[*ranks, D]`; `rank` may be an array.

    An empty part begins at the end of the part that was cut.
    """
    return _local_box(tensor, mesh, rank)[0]


def local_extent(tensor: Placed, mesh: Mesh, rank: npt.ArrayLike) -> Longs:
    """The shape of a rank's part, `[*ranks, D]`; `rank` may be an array."""
    return _local_box(tensor, mesh, rank)[1]


def local_capacity(tensor: Placed, mesh: Mesh) -> tuple[int, ...]:
    """The most that any rank holds of each dimension."""
    capacity = list(tensor.shape)
    for axis, placement in zip(mesh.axes, tensor.placements, strict=True):
        if isinstance(placement, Shard):
            capacity[placement.dim] = shard_size(capacity[placement.dim], mesh.size(axis))
    return tuple(capacity)


def _local_box(tensor: Placed, mesh: Mesh, rank: npt.ArrayLike) -> tuple[Longs, Longs]:
    ranks = np.asarray(rank, np.int64)
    extent = np.broadcast_to(np.array(tensor.shape, np.int64), (*ranks.shape, len(tensor.shape)))
    offset, extent = np.zeros_like(extent), extent.copy()
    for axis, placement in zip(mesh.axes, tensor.placements, strict=True):
        if isinstance(placement, Shard):
            size = extent[..., placement.dim].copy()
            full = -(-size // mesh.size(axis))
            start = np.minimum(mesh.coordinate(axis, ranks) * full, size)
            offset[..., placement.dim] += start
            extent[..., placement.dim] = np.minimum(full, size - start)
    return offset, extent


def cutting_axes(placements: Sequence[Placement], dim: int) -> tuple[int, ...]:
    """The indices of the mesh axes that cut a dimension, outermost first."""
    return tuple(axis for axis, placement in enumerate(placements) if placement == Shard(dim))


@dataclass(frozen=True)
class Scope:
    """What rules and messages about an operation need to know.

    Attributes:
        mesh: the program's mesh, where it is known.
        names: what messages call the operands, where the user named them.
    """

    mesh: Mesh | None = None
    names: tuple[str, ...] = ()

    def called(self, *names: str) -> Scope:
        """With these names where there are none."""
        return self if self.names else Scope(self.mesh, names)

    def first(self, count: int) -> Scope:
        """Of the first operands alone."""
        return Scope(self.mesh, self.names[:count])

    def over(self, axis: int) -> str:
        """`, axis="tp"` where a call has to say it: on a mesh with several axes."""
        if self.mesh is None or len(self.mesh.axes) == 1:
            return ""
        return f', axis="{self.mesh.axes[axis]}"'
