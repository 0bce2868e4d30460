"""Collectives: a tensor placed otherwise over one mesh axis.

S is Shard, R Replicate, P Partial. `axis` may be left out where the mesh has one axis, or where the
tensor lies on only one as the collective needs it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ditron.builder.arguments import as_axis, as_dim, as_index, as_placements, at_user_line
from ditron.builder.value import Value, admit, emit
from ditron.ir import task
from ditron.plan.moves import shortest_path
from ditron.plan.placement import Partial, Placement, Replicate, Shard


@at_user_line()
def all_gather(x: Value, dim: int, axis: str | None = None, *, name: str | None = None) -> Value:
    """S(dim) -> R: every rank of the mesh axis gets the whole of `dim`."""
    args = admit("all_gather", name, x=x)
    at = as_dim(dim, len(x.shape), "all_gather")
    over = _axis(axis, x, f"all_gather(dim={at})", Shard(at))
    return emit(x, task.AllGatherOp(x.ssa, at, over, **args))


@at_user_line()
def reduce_scatter(
    x: Value, dim: int, axis: str | None = None, *, name: str | None = None
) -> Value:
    """P -> S(dim): partial sums are added, each rank of the mesh axis keeps its part of `dim`."""
    args = admit("reduce_scatter", name, x=x)
    at = as_dim(dim, len(x.shape), "reduce_scatter")
    over = _axis(axis, x, f"reduce_scatter(dim={at})", Partial())
    return emit(x, task.ReduceScatterOp(x.ssa, at, over, **args))


@at_user_line()
def all_reduce(x: Value, axis: str | None = None, *, name: str | None = None) -> Value:
    """P -> R: partial sums are added on every rank of the mesh axis."""
    args = admit("all_reduce", name, x=x)
    over = _axis(axis, x, "all_reduce", Partial())
    return emit(x, task.AllReduceOp(x.ssa, over, **args))


@at_user_line()
def all_to_all(
    x: Value, split_dim: int, concat_dim: int, axis: str | None = None, *, name: str | None = None
) -> Value:
    """S(concat_dim) -> S(split_dim): each rank of the mesh axis sends a block to each other.

    Sequence parallel to head parallel is `all_to_all(x, split_dim=heads, concat_dim=sequence)`.
    """
    args = admit("all_to_all", name, x=x)
    split = as_dim(split_dim, len(x.shape), "all_to_all")
    concat = as_dim(concat_dim, len(x.shape), "all_to_all")
    over = _axis(axis, x, "all_to_all", Shard(concat))
    return emit(x, task.AllToAllOp(x.ssa, split, concat, over, **args))


@at_user_line()
def broadcast(x: Value, root: int, axis: str | None = None, *, name: str | None = None) -> Value:
    """S(d) -> R: the shard of rank `root` of the mesh axis, on every rank.

    The result is as large as that shard, so its dimension d is smaller than x's.
    """
    args = admit("broadcast", name, x=x)
    over = _axis(axis, x, "broadcast", Shard)
    at, root = _cut_dim(x, over), as_index(root, "broadcast's root")
    return emit(x, task.BroadcastOp(x.ssa, at, root, over, **args))


@at_user_line()
def shift(x: Value, by: int, axis: str | None = None, *, name: str | None = None) -> Value:
    """S(d) -> S(d): rank r's shard goes to rank r + `by` of the mesh axis, round the end.

    It is torch.roll by whole shards, which must be equal.
    """
    args = admit("shift", name, x=x)
    over = _axis(axis, x, "shift", Shard)
    at, by = _cut_dim(x, over), as_index(by, "shift's by")
    return emit(x, task.ShiftOp(x.ssa, at, by, over, **args))


@at_user_line()
def shard(x: Value, dim: int, axis: str | None = None, *, name: str | None = None) -> Value:
    """R -> S(dim): each rank of the mesh axis keeps its part; nothing is sent."""
    args = admit("shard", name, x=x)
    at = as_dim(dim, len(x.shape), "shard")
    over = _axis(axis, x, f"shard(dim={at})", Replicate())
    return emit(x, task.ShardOp(x.ssa, at, over, **args))


@at_user_line()
def redistribute(
    x: Value, placements: Placement | Sequence[Placement], *, name: str | None = None
) -> Value:
    """The same tensor with other placements, by the fewest collectives that lead there.

    R -> S is a local cut. Nothing but a computation leaves partial sums, so P stays P or goes. Each
    step gets the `name`; there is none where the tensor lies so already.
    """
    args = admit("redistribute", name, x=x)
    mesh = x.program.mesh
    goal = as_placements(placements, mesh, len(x.shape), "redistribute")
    for move in shortest_path(x.spec, goal, mesh):
        x = emit(x, task.move_op(x.ssa, move, mesh, **args))
    return x


def _axis(axis: str | None, x: Value, what: str, wanted: Placement | type[Shard]) -> str:
    def fits(placement: Placement) -> bool:
        return isinstance(placement, Shard) if wanted is Shard else placement == wanted

    return as_axis(axis, x.program.mesh, x.placements, fits, what)


def _cut_dim(x: Value, axis: str) -> int:
    """The dimension that an axis cuts; any, for a rule to refuse, if none."""
    placement = x.placements[x.program.mesh.index(axis)]
    return placement.dim if isinstance(placement, Shard) else 0
