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
    where,
    with_part_at,
)
from ditron.ir import core
from ditron.ir.attrs import dtype_name
from ditron.plan.tables import Longs


@dataclass(frozen=True)
class Hands:
    """What a kernel touches memory with; a view is its number.

    `load` and `store` move the tags of all of a view. `starts` says where the cells of one of its
    dimensions begin, in elements of the view. `index` is one of the kernel's indices.
    """

    load: Callable[[int], Tags]
    store: Callable[[int, Tags], None]
    starts: Callable[[int, int], Longs]
    index: Callable[[int], Longs]


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
            case core.IndexOp():
                number = self.hands.index(list(self.kernel.indices).index(op.index))
                ones = [1] * len(tile_dims(op.result))
                return number.astype(np.uint64).reshape(*number.shape, *ones)
            case core.IotaOp():
                starts = self.hands.starts(*view_dim(self.kernel, op.operand, op.dim_index))
                shape = [1] * len(tile_dims(op.result))
                shape[op.dim_index] = -1
                return starts.astype(np.uint64).reshape(*starts.shape[:-1], *shape)
            case _:
                return _pure(op, [self.tiles[operand] for operand in op.operands])

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
            made = constant(op.number).reshape((1,) * ndim)
        case core.DotOp():
            made = dot(*operands, transpose_b=op.transpose_b is not None)
        case core.ExpandDimsOp():
            (tile,) = operands
            many, dims = tile.shape[:-ndim], tile.shape[-ndim:]
            made = tile.reshape(*many, *[1] * op.added, *dims)
        case core.TransposeOp() | core.SwapHalvesOp():
            made = _moved(op, operands[0], ndim)
        case core.SumOp():
            made = operands[0].sum(op.dim_index - ndim, np.uint64, keepdims=True)
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
