"""Kernels that a user wrote, at the tile sizes that a pass chooses."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Operation
from xdsl.rewriter import Rewriter

from ditron.analysis.kernel_dims import tile_dims
from ditron.ir import core
from ditron.ir.core_moves import swapped


def resized(kernel: core.FuncOp, name: str, types: Sequence[Attribute]) -> core.FuncOp:
    """A copy of a kernel for views of these types, with tiles of the sizes that follow."""
    new = kernel.clone()
    new.sym_name = StringAttr(name)
    new.location = kernel.location
    for view, type_ in zip(new.views, types, strict=True):
        Rewriter.replace_value_with_new_type(view, type_)
    for op in new.body.block.ops:
        for result in op.results:
            dims = _result_dims(op)
            element = core.tile_type(result).element_type
            Rewriter.replace_value_with_new_type(result, core.TileType.get(dims, element))
    return new


def _result_dims(op: Operation) -> Sequence[int]:
    """The shape of what an op makes of its operands."""
    operands = [tile_dims(operand) for operand in op.operands]
    first = operands[0] if operands else ()
    match op:
        case core.ExpandDimsOp():
            dims = (1,) * op.added + first
        case core.DotOp():
            columns = -2 if op.transpose_b is not None else -1
            dims = (*first[:-1], operands[1][columns])
        case core.TransposeOp():
            dims = swapped(first, *op.dims)
        case core.ReduceOp() | core.ArgmaxOp():
            dims = [1 if d == op.dim_index else size for d, size in enumerate(first)]
        case core.IotaOp():
            dims = [size if d == op.dim_index else 1 for d, size in enumerate(first)]
        case core.BinaryOp() | core.LeOp() | core.WhereOp():
            dims = [max(sizes) for sizes in zip(*operands, strict=True)]
        case core.LoadOp() | core.CastOp() | core.UnaryOp() | core.SwapHalvesOp():
            dims = first
        case _:
            dims = tile_dims(op.results[0])  # of one size whatever the tiles
    return dims
