"""Which compute ops of a task program share a tile, and what products stand beside a collective.

A tile kernel fuses with the pointwise ops around it if their grids agree; so a product and the
pointwise ops that its result flows through, or blocks of its columns, form a group with one tile.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

import networkx as nx
from xdsl.ir import SSAValue

from ditron.analysis.shards import moved_dim
from ditron.ir import task
from ditron.plan.cost import GemmShape
from ditron.plan.placement import Mesh, Shard, shard_size
from ditron.plan.spec import TensorSpec


@dataclass(frozen=True, eq=False)
class TileGroup:
    """Ops in program order that share a tile."""

    ops: tuple[task.ComputeOp, ...]

    @property
    def matmuls(self) -> list[task.MatmulOp]:
        return [op for op in self.ops if isinstance(op, task.MatmulOp)]


def tile_groups(program: task.ProgramOp) -> dict[task.ComputeOp, TileGroup]:
    """The group of each compute op that is no collective."""
    graph: nx.Graph[task.ComputeOp] = nx.Graph()
    place: dict[task.ComputeOp, int] = {}
    for op in program.body.block.ops:
        if not isinstance(op, task.ComputeOp) or isinstance(op, task.CollectiveOp):
            continue
        place[op] = len(place)
        graph.add_node(op)
        if isinstance(op, task.MatmulOp):
            continue
        shape = task.spec_of(op.result).shape
        for operand in op.operands:
            maker = operand.owner
            if task.spec_of(operand).shape != shape:
                continue
            if isinstance(maker, task.ComputeOp) and maker in place:
                graph.add_edge(maker, op)
            product = _seen(operand).owner
            if not (isinstance(op, task.PointwiseOp) and isinstance(product, task.MatmulOp)):
                continue
            if task.spec_of(product.result).shape[:-1] == shape[:-1]:
                graph.add_edge(product, op)
    found: dict[task.ComputeOp, TileGroup] = {}
    for members in nx.connected_components(graph):
        group = TileGroup(tuple(sorted(members, key=place.__getitem__)))
        found |= dict.fromkeys(members, group)
    return found


def _seen(value: SSAValue) -> SSAValue:
    """What a value is a part of, or has the elements of."""
    op = value.owner
    if isinstance(op, task.ReshapeOp) or (isinstance(op, task.SliceOp) and op.position is None):
        return _seen(op.operand)
    return value


def local_shape(spec: TensorSpec, mesh: Mesh) -> tuple[int, ...]:
    """The most that any rank holds of each dimension."""
    shape = list(spec.shape)
    for placement, size in zip(spec.placements, mesh.sizes, strict=True):
        if isinstance(placement, Shard):
            shape[placement.dim] = shard_size(shape[placement.dim], size)
    return tuple(shape)


def gemm_shape(op: task.MatmulOp, mesh: Mesh) -> GemmShape:
    """What a rank multiplies; of stacks of matrices, all rows."""
    *rows, n = local_shape(task.spec_of(op.result), mesh)
    k = local_shape(task.spec_of(op.lhs), mesh)[-1]
    return GemmShape(prod(rows), n, k, task.spec_of(op.result).dtype)


def products_beside(
    op: task.CollectiveOp, groups: Iterable[TileGroup]
) -> list[tuple[task.MatmulOp, str]]:
    """The products that a collective feeds or drains, and what it moves of them.

    That is "rows", "columns", or "inner" where the gathered dimension is summed over.
    """
    if not isinstance(op, task.AllGatherOp):
        made_by = [m for group in groups for m in group.matmuls]
        last = moved_dim(op) == len(task.spec_of(op.operand).shape) - 1
        return [(m, _AXES[last]) for m in made_by]
    found: list[tuple[task.MatmulOp, str]] = []
    for use in op.result.uses:
        user = use.operation
        if isinstance(user, task.MatmulOp):
            found.append((user, _moved(user, use.index, op.dim_index)))
    return found


_AXES = ("rows", "columns")


def _moved(user: task.MatmulOp, operand: int, dim: int) -> str:
    if dim == user.inner_dims[operand]:
        return "inner"
    return _AXES[operand]
