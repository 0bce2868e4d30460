"""Reshape: which dimensions become which, and whether shards stay shards."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ditron.errors import PlacementError, ShapeError
from ditron.plan.moves import Move
from ditron.plan.placement import (
    Longs,
    Placements,
    Replicate,
    Scope,
    Shard,
    cutting_axes,
    local_extent,
    local_offset,
    show,
)
from ditron.plan.spec import TensorSpec, show_shape

# Stands for size 0 when dimensions are matched: it divides nothing else.
_NOTHING = 2**61 - 1


def reshape(x: TensorSpec, shape: tuple[int, ...], scope: Scope) -> TensorSpec:
    """The same elements in row-major order, where every rank's part stays a part.

    A dimension that is cut must be the outermost of those that it is merged with, and becomes the
    outermost of those it is split into.

    Raises:
        ShapeError: another number of elements.
        PlacementError: elements would have to move; the message names what mends it.
    """
    scope = scope.called("x")
    what = f"reshape of {scope.names[0]} {show_shape(x.shape)} to {show_shape(shape)}"
    if any(size < 0 for size in shape) or math.prod(shape) != math.prod(x.shape):
        message = f"{what}: {math.prod(x.shape)} elements do not make {show_shape(shape)}"
        raise ShapeError(message)
    placements = list(x.placements)
    for dim in sorted({p.dim for p in x.placements if isinstance(p, Shard)}):
        target = _becomes(what, x, shape, dim, scope)
        for axis in cutting_axes(x.placements, dim):
            placements[axis] = Shard(target)
    return replace(x, shape=shape, placements=tuple(placements))


def matching_dims(
    before: Sequence[int], after: Sequence[int]
) -> Iterator[tuple[list[int], list[int]]]:
    """Runs of dimensions with equal numbers of elements, as short as can be."""
    a = [size or _NOTHING for size in before]
    b = [size or _NOTHING for size in after]
    if math.prod(a) != math.prod(b):  # empty in ways that cannot be matched
        yield list(range(len(a))), list(range(len(b)))
        return
    i = j = 0
    while i < len(a) and j < len(b):
        ours, theirs = [i], [j]
        have, want = a[i], b[j]
        while have != want:
            if have < want:
                ours.append(ours[-1] + 1)
                have *= a[ours[-1]]
            else:
                theirs.append(theirs[-1] + 1)
                want *= b[theirs[-1]]
        i, j = ours[-1] + 1, theirs[-1] + 1
        last = i == len(a) or j == len(b)
        if last:  # what is left has size 1
            ours.extend(range(i, len(a)))
            theirs.extend(range(j, len(b)))
        yield ours, theirs
        if last:
            return


def _becomes(what: str, x: TensorSpec, shape: tuple[int, ...], dim: int, scope: Scope) -> int:
    """Which dimension one that is cut becomes.

    Raises:
        PlacementError: none whose parts are the same.
    """
    ours, theirs = next(run for run in matching_dims(x.shape, shape) if dim in run[0])
    before = ours[: ours.index(dim)]
    if any(x.shape[d] != 1 or cutting_axes(x.placements, d) for d in before):
        why = f"dim {dim} is cut, and is not the outermost of those that it is merged with"
        raise _would_move(what, x.placements, dim, why, scope)
    target = next((d for d in theirs if shape[d] != 1), theirs[0])
    inner = math.prod(x.shape[d] for d in ours if d > dim)
    inner_after = math.prod(shape[d] for d in theirs if d > target)
    axes = cutting_axes(x.placements, dim)
    if not same_parts((x.shape[dim], inner), (shape[target], inner_after), axes, scope):
        why = f"the parts of dim {dim} would not be those of dim {target}"
        raise _would_move(what, x.placements, dim, why, scope)
    return target


def same_parts(
    before: tuple[int, int], after: tuple[int, int], axes: Sequence[int], scope: Scope
) -> bool:
    """Whether ranks hold the same elements of two dimensions that axes cut.

    Args:
        before: size, and elements in each step of it.
        after: the same of the other.
        axes: the mesh axes that cut both.
        scope: has the mesh.
    """
    assert scope.mesh is not None
    count = len(scope.mesh.axes)
    placements = tuple(Shard(0) if axis in axes else Replicate() for axis in range(count))
    ranks, parts = np.arange(scope.mesh.ranks), list[tuple[Longs, Longs]]()
    for size, inner in (before, after):
        line = TensorSpec((size,), "f32", placements)
        extent = local_extent(line, scope.mesh, ranks) * inner
        offset = local_offset(line, scope.mesh, ranks) * inner
        parts.append((extent, np.where(extent > 0, offset, 0)))
    return all(np.array_equal(a, b) for a, b in zip(*parts, strict=True))


def _would_move(
    what: str, placements: Placements, dim: int, why: str, scope: Scope
) -> PlacementError:
    axis = cutting_axes(placements, dim)[-1]
    mend = Move("all_gather", axis, Shard(dim), Replicate()).call(scope.names[0], scope)
    message = f"{what} would move data, as it is {show(placements)}: {why}; use {mend} first"
    return PlacementError(message)
