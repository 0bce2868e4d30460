"""How much a kernel's task multiplies and moves, from the sizes of its boxes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from xdsl.ir import Operation, SSAValue

from ditron.analysis.arrays import longs
from ditron.analysis.kernel_dims import tile_dims, view_dim
from ditron.errors import PlanError
from ditron.ir import core
from ditron.plan.tables import Longs


def flops(func: core.FuncOp, sizes: Sequence[Longs]) -> Longs:
    """2 M N K of the products of each task [T], whose boxes have the given sizes [T, D]."""
    total = np.zeros(len(sizes[0]), np.int64)
    for op in func.body.block.ops:
        if isinstance(op, core.DotOp):
            *stack, _ = tile_dims(op.result)
            made = [_size(func, op.result, d, sizes) for d in range(len(stack) + 1)]
            summed = _size(func, op.lhs, len(stack), sizes)
            total += 2 * summed * np.prod(np.broadcast_arrays(*made, total)[:-1], axis=0)
    return total


def _size(func: core.FuncOp, tile: SSAValue, dim: int, sizes: Sequence[Longs]) -> Longs:
    """How many elements a tile has along a dimension in each task."""
    static = longs(np.array(tile_dims(tile)[dim]))
    if static == 1:
        return static
    try:
        view, d = view_dim(func, tile, dim)
    except PlanError:  # the same in every task
        return static
    return sizes[view][:, d]


def elements(func: core.FuncOp, number: int, size: Longs) -> Longs:
    """How many elements of a view each task [T] touches: all of its box [T, D], or what it picks.

    What is picked by a number that only the device knows may lie anywhere in the box.
    """
    uses = [use.operation for use in func.body.block.args[number].uses]
    picked = [_picked(op) for op in uses]
    whole = longs(size.prod(axis=1))
    if not picked or None in picked:
        return whole
    return np.minimum(whole, sum(p for p in picked if p is not None))


def _picked(op: object) -> int | None:
    match op:
        case core.GatherOp():
            return prod(core.tile_type(op.result).dims)
        case core.AtOp():
            return prod(core.tile_type(op.part).dims)
        case _:
            return None


def multiplies(tile: SSAValue) -> bool:
    """Whether a product is part of what a tile is made of."""
    op = tile.owner
    if not isinstance(op, Operation):
        return False
    return isinstance(op, core.DotOp) or any(map(multiplies, op.operands))


def sums_apart(func: core.FuncOp) -> bool:
    """Whether nothing that a kernel reduces is made of products."""
    ops = [op for op in func.body.block.ops if isinstance(op, core.ReduceOp | core.ArgmaxOp)]
    return not any(multiplies(op.operand) for op in ops)


def is_part(part: SSAValue, tile: SSAValue) -> bool:
    """Whether a tile is made of another, or is that."""
    op = tile.owner
    if part is tile or not isinstance(op, Operation):
        return part is tile
    return any(is_part(part, operand) for operand in op.operands)
