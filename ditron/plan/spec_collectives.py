"""What each collective makes of a tensor; each works over one mesh axis, in each of its groups.

All but `broadcast` and `shift` leave the global tensor as it is. On a tensor whose placements are
not inferred yet they tell the shape alone.
"""

from __future__ import annotations

from dataclasses import replace

from ditron.errors import MeshError, PlacementError, ShapeError
from ditron.plan.moves import Move, check_move
from ditron.plan.placement import (
    Mesh,
    Partial,
    Placement,
    Replicate,
    Scope,
    Shard,
    cutting_axes,
    shard_extent,
    show,
)
from ditron.plan.spec import TensorSpec, show_shape


def all_gather(x: TensorSpec, dim: int, axis: str, scope: Scope) -> TensorSpec:
    """S(dim) -> R."""
    return _moved("all_gather", x, axis, scope, Shard(dim), Replicate())


def reduce_scatter(x: TensorSpec, dim: int, axis: str, scope: Scope) -> TensorSpec:
    """P -> S(dim)."""
    return _moved("reduce_scatter", x, axis, scope, Partial(), Shard(dim))


def all_reduce(x: TensorSpec, axis: str, scope: Scope) -> TensorSpec:
    """P -> R."""
    return _moved("all_reduce", x, axis, scope, Partial(), Replicate())


def all_to_all(
    x: TensorSpec, split_dim: int, concat_dim: int, axis: str, scope: Scope
) -> TensorSpec:
    """S(concat_dim) -> S(split_dim)."""
    if split_dim == concat_dim:
        message = f"all_to_all: split_dim and concat_dim are both {split_dim}; nothing would move"
        raise ShapeError(message)
    return _moved("all_to_all", x, axis, scope, Shard(concat_dim), Shard(split_dim))


def shard(x: TensorSpec, dim: int, axis: str, scope: Scope) -> TensorSpec:
    """R -> S(dim), without communication."""
    return _moved("shard", x, axis, scope, Replicate(), Shard(dim))


def broadcast(x: TensorSpec, dim: int, root: int, axis: str, scope: Scope) -> TensorSpec:
    """S(dim) -> R: the root's shard on every rank, so the result is as large as that."""
    scope, call = scope.called("x"), f"broadcast(root={root})"
    mesh, index = _mesh(scope), _axis_index(scope, axis)
    n = mesh.size(axis)
    if not 0 <= root < n:
        message = f"{call}: {axis} has {n} ranks, so root is 0 to {n - 1}"
        raise MeshError(message)
    result = _moved("broadcast", x, axis, scope, Shard(dim), Replicate(), call)
    if x.placements and cutting_axes(x.placements, dim) != (index,):
        message = (
            f"{call}: {scope.names[0]} is {show(x.placements)}, so its dim {dim} is cut by another"
            f" axis too; redistribute it first, to be cut by {axis} alone"
        )
        raise PlacementError(message)
    size = int(shard_extent(x.shape[dim], n, root))
    return replace(result, shape=(*x.shape[:dim], size, *x.shape[dim + 1 :]))


def shift(x: TensorSpec, dim: int, by: int, axis: str, scope: Scope) -> TensorSpec:
    """Rank r's shard of `dim` goes to rank r + by of its group, round the end to the first."""
    scope, call = scope.called("x"), f"shift(by={by})"
    result = _moved("shift", x, axis, scope, Shard(dim), Shard(dim), call)
    mesh, index = _mesh(scope), _axis_index(scope, axis)
    cuts = cutting_axes(x.placements, dim) or (index,)
    parts = 1
    for cut in cuts:
        parts *= mesh.sizes[cut]
    if x.shape[dim] % parts:
        message = (
            f"{call} needs equal shards, but {scope.names[0]}'s dim {dim} of {x.shape[dim]} is cut"
            f" into {parts}; make it a multiple of {parts}"
        )
        raise ShapeError(message)
    return result


def _moved(
    kind: str,
    x: TensorSpec,
    axis: str,
    scope: Scope,
    before: Placement,
    after: Placement,
    call: str = "",
) -> TensorSpec:
    scope = scope.called("x")
    move = Move(kind, _axis_index(scope, axis), before, after)
    for placement in (before, after):
        if isinstance(placement, Shard) and not 0 <= placement.dim < len(x.shape):
            message = (
                f"{kind} over dim {placement.dim}, but {scope.names[0]} is {show_shape(x.shape)},"
                f" so dims are 0 to {len(x.shape) - 1}"
            )
            raise ShapeError(message)
    if not x.placements:
        return x
    check_move(move, x.placements, call or _call(move), scope)
    return replace(x, placements=move.of(x.placements))


def _call(move: Move) -> str:
    """The move in messages: `all_gather(dim=0)`."""
    if move.kind == "all_to_all":
        return move.call("", Scope()).replace("(, ", "(")
    return move.kind if move.dim is None else f"{move.kind}(dim={move.dim})"


def _mesh(scope: Scope) -> Mesh:
    assert scope.mesh is not None
    return scope.mesh


def _axis_index(scope: Scope, axis: str) -> int:
    return _mesh(scope).index(axis)
