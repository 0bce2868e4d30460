"""What a core kernel does to tags."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import Operation, SSAValue

from ditron.analysis.kernel_dims import tile_dims, view_dim
from ditron.analysis.ring import (
    BINARY,
    Tags,
    argmax,
    cast,
    constant,
    dot,
    function,
    gather,
    maximum,
    part_at,
    total,
    weights,
    where,
    with_part_at,
)
from ditron.ir import core
from ditron.ir.attrs import dtype_name
from ditron.plan.dtypes import DTYPES
from ditron.plan.tables import Longs


@dataclass(frozen=True)
class Hands:
    """What a kernel touches memory with; a view is its number.

    `load` and `store` move the tags of all of a view. `edges` says where the cells of one of its
    dimensions begin and the last one ends, in elements of the view. `index` is one of the kernel's
    indices.
    """

    load: Callable[[int], Tags]
    store: Callable[[int, Tags], None]
    edges: Callable[[int, int], Longs]
    index: Callable[[int], Longs]

    def starts(self, view: int, dim: int) -> Longs:
        """Where cells begin."""
        return self.edges(view, dim)[..., :-1]


def run_kernel(kernel: core.FuncOp, hands: Hands) -> None:
    """Run a kernel on tags, which have any leading dimensions, so that many tasks run at once."""
    _Run(kernel, hands).run()


class _Run:
    def __init__(self, kernel: core.FuncOp, hands: Hands) -> None:
        self.kernel, self.hands = kernel, hands
        self.views: Sequence[SSAValue] = kernel.views
        self.tiles: dict[SSAValue, Tags] = {}

    def run(self) -> None:
        for op in self.kernel.body.block.ops:
            match op:
                case core.StoreOp():
                    self.hands.store(self.views.index(op.view), self.tiles[op.tile])
                case core.StoreAtOp():
                    view = self.views.index(op.view)
                    held = self.hands.load(view)
                    parts = self._part(op, op.tile)
                    self.hands.store(view, with_part_at(held, self.tiles[op.tile], *parts))
                case _:
                    self.tiles[op.results[0]] = self._compute(op)

    def _compute(self, op: Operation) -> Tags:
        match op:
            case core.LoadOp():
                return self.hands.load(self.views.index(op.view))
            case core.LoadAtOp():
                held = self.hands.load(self.views.index(op.view))
                return part_at(held, *self._part(op, op.result))
            case core.GatherOp():
                view, ids = self.views.index(op.view), self.tiles[op.ids]
                starts = self.hands.starts(view, 0)
                return gather(self.hands.load(view), ids, starts, len(tile_dims(op.ids)))
            case core.IndexOp() | core.IotaOp():
                return self._numbers(op)
            case core.DotOp() | core.SumOp():
                return self._sum(op)
            case _:
                return _pure(op, [self.tiles[operand] for operand in op.operands])

    def _numbers(self, op: core.IndexOp | core.IotaOp) -> Tags:
        shape = [1] * len(tile_dims(op.result))
        if isinstance(op, core.IndexOp):
            found = self.hands.index(list(self.kernel.indices).index(op.index))
            return found.astype(np.uint64).reshape(*found.shape, *shape)
        starts = self.hands.starts(*view_dim(self.kernel, op.operand, op.dim_index))
        shape[op.dim_index] = -1
        return starts.astype(np.uint64).reshape(*starts.shape[:-1], *shape)

    def _sum(self, op: core.DotOp | core.SumOp) -> Tags:
        operands, ndim = [self.tiles[x] for x in op.operands], len(tile_dims(op.operands[0]))
        if isinstance(op, core.DotOp):
            by = self._weights(op.lhs, ndim - 1, ndim)
            return dot(operands[0], operands[1], by, transpose_b=op.transpose_b is not None)
        by = self._weights(op.operand, op.dim_index, ndim)
        return total(operands[0], by, op.dim_index - ndim)

    def _weights(self, tile: SSAValue, dim: int, ndim: int) -> Tags:
        """What the cells of one of a tile's dimensions count for in a sum over it."""
        if tile_dims(tile)[dim] == 1:
            return np.ones((1,) * ndim, np.uint64)
        found = weights(self.hands.edges(*view_dim(self.kernel, tile, dim)))
        *many, cells = found.shape
        return found.reshape(*many, *[1] * dim, cells, *[1] * (ndim - dim - 1))

    def _part(
        self, op: core.LoadAtOp | core.StoreAtOp, tile: SSAValue
    ) -> tuple[Tags, Longs, Longs, int]:
        """Where a part begins, where cells of the whole and of the part do, along which axis."""
        whole = self.hands.starts(self.views.index(op.view), op.dim_index)
        part = self.hands.starts(*view_dim(self.kernel, tile, op.dim_index))
        return self.tiles[op.at], whole, part, op.dim_index - len(tile_dims(tile))


def _pure(op: Operation, operands: list[Tags]) -> Tags:
    """What an op makes of tiles alone."""
    ndim = len(tile_dims(op.operands[0] if op.operands else op.results[0]))
    match op:
        case core.ConstantOp():
            kind = DTYPES[dtype_name(core.tile_type(op.result).element_type)].kind
            made = constant(op.number, kind).reshape((1,) * ndim)
        case core.ExpandDimsOp():
            (tile,) = operands
            many, dims = tile.shape[:-ndim], tile.shape[-ndim:]
            made = tile.reshape(*many, *[1] * op.added, *dims)
        case core.TransposeOp() | core.SwapHalvesOp():
            made = _moved(op, operands[0], ndim)
        case core.MaxOp() | core.ArgmaxOp():
            x, *labels = operands
            axis = op.dim_index - ndim
            made = argmax(x, labels[0], axis) if labels else maximum(x, axis)
        case core.CastOp():
            ends = (core.tile_type(tile).element_type for tile in (op.operand, op.result))
            made = cast(operands[0], *map(dtype_name, ends))
        case core.WhereOp():
            made = where(*operands)
        case core.UnaryOp():
            made = function(_name(op))(*operands)
        case _:
            made = BINARY[_name(op)](*operands)
    return made


def _moved(op: core.TransposeOp | core.SwapHalvesOp, tile: Tags, ndim: int) -> Tags:
    if isinstance(op, core.TransposeOp):
        return np.swapaxes(tile, *(d - ndim for d in op.dims))
    first, second = np.split(tile, 2, op.dim_index - ndim)
    return np.concatenate([second, first], op.dim_index - ndim)


def _name(op: Operation) -> str:
    return op.name.partition(".")[2]
