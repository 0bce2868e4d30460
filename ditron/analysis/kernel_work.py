"""How much a kernel's task multiplies and moves, from the sizes of its boxes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from ditron.analysis.arrays import longs
from ditron.ir import core
from ditron.plan.tables import Longs


def flops(func: core.FuncOp, sizes: Sequence[Longs]) -> Longs:
    """2 M N K of the products of each task [T], whose boxes have the given sizes [T, D]."""
    total = np.zeros(len(sizes[0]), np.int64)
    for lhs, out in _dots(func):
        total += 2 * sizes[lhs][:, -1] * sizes[out].prod(axis=1)
    return total


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


def _dots(func: core.FuncOp) -> Iterator[tuple[int, int]]:
    """(argument loaded as lhs, argument of the same shape as the result) of each core.dot."""
    types = func.view_types
    for op in func.body.block.ops:
        if isinstance(op, core.DotOp) and isinstance(op.lhs.owner, core.LoadOp):
            view = op.lhs.owner.view
            lhs = next(i for i, a in enumerate(func.body.block.args) if a is view)
            out = [i for i, t in enumerate(types) if t.dims == core.tile_type(op.result).dims]
            written = [i for i in out if func.writes(i)]
            if written:
                yield lhs, written[0]
