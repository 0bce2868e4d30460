"""Factors that are the same along what a product sums are multiplied after it.

    %n = core.mul %x, %scale : [1, K], [1, 1]       %p = core.dot %x, %w
    %y = core.dot %n, %w                       ->   %y = core.mul %p, %scale : [1, N], [1, 1]

So a product of one row need not wait for the norm of that row, whose sum its own loop can make
beside it (`sums.py`). Float16 is left alone: without its scale a row may go beyond its range.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import Operation, SSAValue

from ditron.analysis.kernel_dims import tile_dims
from ditron.ir import core
from ditron.ir.attrs import dtype_name

WIDE = ("f32", "bf16")


def with_factors_after(funcs: Mapping[str, core.FuncOp]) -> dict[str, core.FuncOp]:
    """The kernels, those that multiply one row by such a factor changed."""
    return {name: _changed(func) for name, func in funcs.items()}


def _changed(func: core.FuncOp) -> core.FuncOp:
    if not any(map(_split_dot, func.body.block.ops)):
        return func
    new = func.clone()
    new.location = func.location
    for op in list(new.body.block.ops):
        parts = _split_dot(op)
        if parts is not None:
            assert isinstance(op, core.DotOp)
            _move_factor(op, *parts)
    return new


Parts = tuple[SSAValue, list[tuple[Operation, int]]]
"""A factor of a tile, and the way to it: ops, and which of their operands is left without it."""


def _split_dot(op: Operation) -> Parts | None:
    if not isinstance(op, core.DotOp) or tile_dims(op.result)[-2] != 1:
        return None
    return _split(op.lhs)


def _split(tile: SSAValue) -> Parts | None:
    op = tile.owner
    if dtype_name(core.tile_type(tile).element_type) not in WIDE or not isinstance(op, Operation):
        return None
    if isinstance(op, core.MulOp):
        for i, factor in enumerate(op.operands):
            if tile_dims(factor)[-1] == 1 < tile_dims(tile)[-1]:
                return factor, [(op, 1 - i)]
    if not isinstance(op, core.MulOp | core.CastOp):
        return None
    for i, operand in enumerate(op.operands):
        found = _split(operand)
        if found is not None:
            return found[0], [*found[1], (op, i)]
    return None


def _move_factor(dot: core.DotOp, factor: SSAValue, way: list[tuple[Operation, int]]) -> None:
    block = dot.parent_block()
    assert block is not None
    (first, kept), *rest = way
    tile = first.operands[kept]
    made: list[Operation] = []
    for op, i in rest:
        if isinstance(op, core.CastOp):
            made.append(core.CastOp(tile, core.tile_type(op.result).element_type))
        else:
            made.append(core.MulOp(tile, op.operands[1 - i]))
        tile = made[-1].results[0]
    product = core.DotOp(tile, dot.rhs, transpose_b=dot.transpose_b is not None)
    scaled = core.MulOp(product.result, factor)
    for op in (*made, product, scaled):
        op.location = dot.location
        block.insert_op_before(op, dot)
    dot.result.replace_all_uses_with(scaled.result)
    dot.detach()
    dot.erase()
