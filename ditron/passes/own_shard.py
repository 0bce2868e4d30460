"""Read a rank's own shard of a gathered tensor where it lies, instead of from a copy.

    device.grid @matmul engine library in (%p = 2, %m = 1) { ... %xg[%p * 64 + %m * 64, 0] ... }
    ->
    device.grid @matmul_own engine library in (%m = 1) { ... %x[%m * 64, 0] ... }
    device.grid @matmul engine library in (%p = 1, %m = 1) {
      ... %xg[(%me + %p + 1) mod 2 * 64 + %m * 64, 0] ...
    }

Where a library multiplies: its first call need not wait then for a copy of what is there already.
An emitted kernel would become two, which is no gain.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import SSAValue

from ditron.ir import device
from ditron.ir.index import Ssa
from ditron.passes.collective_grids import Collective
from ditron.passes.grids import GridBuilder
from ditron.plan.expr import Binary, Const, Expr
from ditron.plan.tables import LIBRARY


def read_own_shard(this: Collective) -> bool:
    """Split all grids that read the gathered tensor; False if one of them cannot be split."""
    views = [u.operation for u in this.target.uses if u.operation is not this.op]
    found: dict[device.GridOp, SSAValue] = {}
    for view in views:
        grid = view.parent_op()
        if not isinstance(view, device.ViewOp) or not isinstance(grid, device.GridOp):
            return False
        coordinate = _owner(view, grid, this)
        if coordinate is None or found.setdefault(grid, coordinate) is not coordinate:
            return False
    for grid, coordinate in found.items():
        _split(grid, coordinate, this)
    return bool(found)


def _owner(view: device.ViewOp, grid: device.GridOp, this: Collective) -> SSAValue | None:
    """The coordinate of a grid that numbers the shards that a view reads."""
    plain = grid.engine.data == LIBRARY and grid.schedule is None and this.n > 1
    if not plain or view.at is not None or not isinstance(grid.body_op, device.CallOp):
        return None
    bounds: dict[SSAValue, int] = dict(zip(grid.body.block.args, grid.dims, strict=True))
    match view.offset_exprs[this.dim]:
        case Binary("+", Binary("*", Ssa(value=owner), Const(q)), _) if q == this.shard:
            pass
        case Binary("*", Ssa(value=owner), Const(q)) if q == this.shard:
            pass
        case _:
            return None
    return owner if bounds.get(owner) == this.n else None


def _split(grid: device.GridOp, coordinate: SSAValue, this: Collective) -> None:
    args = grid.body.block.args
    names: dict[SSAValue, str] = {arg: arg.name_hint or f"i{arg.index}" for arg in args}
    bounds = {names[arg]: d for arg, d in zip(args, grid.dims, strict=True)}
    of_rank = names[coordinate]
    own = GridBuilder(
        this.names.fresh(f"{grid.label}_own"),
        LIBRARY,
        {name: bound for name, bound in bounds.items() if name != of_rank},
        grid.location,
    )
    others = GridBuilder(grid.label, LIBRARY, {**bounds, of_rank: this.n - 1}, grid.location)
    block = grid.parent_block()
    assert block is not None
    for made, owner in ((own, this.me), (others, (this.me + others[of_rank] + 1) % this.n)):
        new = {arg: made[name] for arg, name in names.items() if arg is not coordinate}
        new[coordinate] = owner
        views: list[SSAValue] = []
        for view in grid.views:
            offsets, buffer = [_put(new, e) for e in view.offset_exprs], view.buffer
            if made is own and buffer is this.target:
                buffer = this.source
                offsets[this.dim] = _put({**new, coordinate: Const(0)}, view.offset_exprs[this.dim])
            sizes = [_put(new, e) for e in view.size_exprs]
            views.append(made.view(buffer, offsets, sizes, view.result.type.dims))
        call = grid.body_op
        assert isinstance(call, device.CallOp)
        made.add(device.CallOp(call.kernel_name, views, [_put(new, e) for e in call.index_exprs]))
        block.insert_op_before(made.finish(), grid)
    grid.detach()
    grid.erase()


def _put(new: Mapping[SSAValue, Expr], expr: Expr) -> Expr:
    """An index expression with other expressions for its coordinates."""
    match expr:
        case Ssa(value=value):
            return new.get(value, expr)
        case Binary(op, lhs, rhs):
            return Binary(op, _put(new, lhs), _put(new, rhs))
        case _:
            return expr
