"""Kernels that a user wrote, at the tile sizes that a pass chooses."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from ditron.analysis.kernel_dims import tile_dims
from ditron.ir import core


def resized(kernel: core.FuncOp, name: str, views: Sequence[SSAValue]) -> core.FuncOp:
    """A copy of a kernel for these views, with tiles of the sizes that follow."""
    new = kernel.clone()
    new.sym_name = StringAttr(name)
    new.location = kernel.location
    for arg, view in zip(new.body.block.args, views, strict=True):
        Rewriter.replace_value_with_new_type(arg, view.type)
    for op in new.body.block.ops:
        for result in op.results:
            dims = _result_dims(op)
            element = core.tile_type(result).element_type
            Rewriter.replace_value_with_new_type(result, core.TileType.get(dims, element))
    return new


def _result_dims(op: Operation) -> Sequence[int]:
    """The shape of what an op makes of its operands."""
    operands = [tile_dims(operand) for operand in op.operands]
    match op:
        case core.ConstantOp():
            return tile_dims(op.result)
        case core.ExpandDimsOp():
            return (1,) * op.added + operands[0]
        case core.DotOp():
            columns = 0 if op.transpose_b is not None else 1
            return operands[0][0], operands[1][columns]
        case core.BinaryOp():
            return [max(pair) for pair in zip(*operands, strict=True)]
        case core.LoadOp() | core.CastOp() | core.UnaryOp():
            return operands[0]
        case _:
            raise AssertionError(op.name)
