"""Which dimensions of a task program's tensors are better cut at shard boundaries.

Dimensions that stand for the same thing form a class: the rows of a gathered tensor, of the product
it goes into, of what is scattered from that. Where one of them is a shard on each rank, tiles over
the others may stop at the same boundaries, so that a tile touches one rank's shard only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import networkx as nx
from xdsl.ir import SSAValue

from ditron.ir import task
from ditron.plan.placement import Shard, shard_size

Dim = tuple[SSAValue, int]


@dataclass(frozen=True)
class ShardedDims:
    """Dimensions that are shards of a rank somewhere, and among them those to cut into shards.

    Each with the mesh axis that cuts it. Tensors read in place must be cut; others are where a
    shard is at least half a tile.
    """

    sharded: dict[Dim, int]
    cut: dict[Dim, int]


def sharded_dims(program: task.ProgramOp) -> ShardedDims:
    """The dimensions that a program's collectives move along, and all that are one with them."""
    graph: nx.Graph[Dim] = nx.Graph()
    moved, wanted = dict[Dim, int](), dict[Dim, int]()
    for op in program.body.block.ops:
        if isinstance(op, task.ComputeOp):
            graph.add_edges_from(_same_dims(op))
        if isinstance(op, task.CollectiveOp):
            dim, axis = (op.result, moved_dim(op)), program.mesh.index(op.axis.data)
            moved[dim] = axis
            if isinstance(op, task.AllToAllOp):
                moved[op.result, op.split_index] = axis
            if _should_cut(op, program.mesh.sizes[axis]):
                wanted[dim] = axis
    graph.add_nodes_from(moved)
    return ShardedDims(_classes(graph, moved), _classes(graph, wanted))


def _classes(graph: nx.Graph[Dim], dims: Mapping[Dim, int]) -> dict[Dim, int]:
    """All dimensions that are one with some of these, with the first's axis."""
    found: dict[Dim, int] = {}
    for dim, axis in dims.items():
        if dim not in found:  # else all that are one with it are, too
            found.update(dict.fromkeys(nx.node_connected_component(graph, dim), axis))
    return found


def moved_dim(op: task.CollectiveOp) -> int:
    """The dimension that a collective moves along.

    An all-reduce takes the first that nothing cuts and that has a part for every rank, else the
    longest: one row is cut into columns, not left to one rank.
    """
    if op.dim_index is not None:
        return op.dim_index
    program, spec = op.parent_op(), task.spec_of(op.operand)
    assert isinstance(program, task.ProgramOp)
    ranks = program.mesh.size(op.axis.data)
    cut = {p.dim for p in spec.placements if isinstance(p, Shard)}
    sizes = {d: size for d, size in enumerate(spec.shape) if d not in cut}
    for_all = (d for d, size in sizes.items() if size > (ranks - 1) * shard_size(size, ranks))
    return next(for_all, max(sizes, key=sizes.__getitem__, default=0))


def _same_dims(op: task.ComputeOp) -> Iterator[tuple[Dim, Dim]]:
    if isinstance(op, task.MatmulOp):
        lhs, rhs = op.inner_dims
        yield (op.lhs, lhs), (op.rhs, rhs)
    for operand, dims in zip(op.operands, op.becomes(), strict=True):
        yield from (((operand, d), (op.result, to)) for d, to in enumerate(dims) if to is not None)


def _should_cut(op: task.CollectiveOp, ranks: int) -> bool:
    choice = op.choice
    if choice is None:
        return False
    if isinstance(op, task.AllGatherOp) and choice.transfer == "in-place":
        return True
    whole = isinstance(op, task.AllReduceOp) and choice.algorithm == "one-shot"
    if whole or not isinstance(op, task.AllGatherOp | task.ReduceScatterOp | task.AllReduceOp):
        return False
    dim = moved_dim(op)
    shard = shard_size(task.spec_of(op.operand).shape[dim], ranks)
    return all(2 * shard >= block for block in _blocks(op, dim))


def _blocks(op: task.CollectiveOp, dim: int) -> Iterator[int]:
    """Tile sizes, along the dimension, of the compute ops beside a collective."""
    neighbours = [use.operation for use in op.result.uses]
    neighbours += [op.operand.owner] if isinstance(op.operand.owner, task.ComputeOp) else []
    for other in neighbours:
        if not isinstance(other, task.ComputeOp) or isinstance(other, task.CollectiveOp):
            continue
        tile = other.choice.tile if other.choice is not None else ()
        if dim < len(tile):
            yield tile[dim]
