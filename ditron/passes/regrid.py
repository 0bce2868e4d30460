"""Walk the tiles of a product in groups of rows, so that those that run at once share operands.

    device.grid @matmul engine sm in (%m = 64, %n = 26) { ... %x[%m * 128, 0] ... }
    ->
    device.grid @matmul engine sm in (%g = 4, %n = 26, %m = 16) {
      %row = device.index %g * 16 + %m
      ... %x[%row * 128, 0] ...

What `workers` tiles of a wave load is some rows and some columns of operands; a group is as high as
makes that least. Only heights that divide the rows of tiles are tried, so no task is left over.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ArrayAttr, IntAttr
from xdsl.ir import SSAValue

from ditron.ir import core, device
from ditron.ir.index import INDEX, Ssa
from ditron.plan.expr import Binary, Expr
from ditron.plan.tiling import group_height


def regrid(grid: device.GridOp, funcs: dict[str, core.FuncOp], workers: int) -> None:
    """Regroup a grid whose tasks multiply, if that saves loads.

    Its last two dimensions have to be the result's rows and columns of tiles.
    """
    tile = _result_tile(grid, funcs)
    if tile is None:
        return
    rows, columns = grid.dims[-2:]
    height = group_height((rows, columns), tile, workers)
    if height > 1:
        _regroup(grid, rows // height, columns, height)


def _result_tile(grid: device.GridOp, funcs: dict[str, core.FuncOp]) -> tuple[int, int] | None:
    """The tile that a task of a product writes, where the grid walks the result so."""
    body = grid.body_op
    if not isinstance(body, device.CallOp) or grid.schedule is not None or len(grid.dims) < 2:
        return None
    func = funcs[body.kernel_name]
    made = [view for i, view in enumerate(grid.views) if func.writes(i)]
    dots = any(isinstance(op, core.DotOp) for op in func.body.block.ops)
    if not dots or len(made) != 1 or len(made[0].result.type.dims) != 2:
        return None
    m, n = grid.body.block.args[-2:]
    fold = made[0].fold
    down, across = (made[0].offset_exprs[d] for d in (fold.axes if fold is not None else (0, 1)))
    if m in _leaves(across) or n in _leaves(down):
        return None
    height, width = made[0].result.type.dims
    return height, width


def _leaves(expr: Expr) -> set[SSAValue]:
    """The values that an expression is made of."""
    match expr:
        case Ssa(value=value):
            return {value}
        case Binary(_, lhs, rhs):
            return _leaves(lhs) | _leaves(rhs)
        case _:
            return set()


def _regroup(grid: device.GridOp, groups: int, columns: int, height: int) -> None:
    block = grid.body.block
    old = block.args[-2]
    new = block.insert_arg(INDEX, len(block.args))
    new.name_hint = old.name_hint
    outer = grid.dims[:-2]
    if groups == 1:
        old.replace_all_uses_with(new)
        block.erase_arg(old)
        bounds = (*outer, columns, height)
    else:
        row = device.IndexOp(Ssa(old) * height + Ssa(new))
        row.location = grid.location
        row.result.name_hint = "row"
        old.replace_uses_with_if(row.result, lambda use: use.operation is not row)
        old.name_hint = "g"
        first = block.first_op
        assert first is not None
        block.insert_op_before(row, first)
        bounds = (*outer, groups, columns, height)
    grid.properties["bounds"] = ArrayAttr([IntAttr(b) for b in bounds])
