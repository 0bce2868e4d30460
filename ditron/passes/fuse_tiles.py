"""fuse-tiles: a grid that makes tiles and the one grid that reads them, tile for tile, become one.

    device.grid @gate engine sm in (%m = 4, %n = 2) { ... device.call @gate(%x_, %w_, %h_) }
    device.grid @silu engine sm in (%m = 4, %n = 2) { ... device.call @silu(%h_, %y_) }
    ->
    device.grid @silu engine sm in (%m = 4, %n = 2) { ... device.call @silu(%x_, %w_, %y_) }

Needs: lowered grids (`lower-task-to-device`). Ensures: no scratch buffer is left that one grid
writes and one other reads by the same boxes at the same coordinates; the tile stays where it is
computed, in float32, and is rounded once, when the fused kernel stores. Loads of one box become
one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from xdsl.context import Context
from xdsl.dialects.builtin import AnyFloat, ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.passes import ModulePass

from ditron.analysis.symbols import device_program, kernels
from ditron.ir import core, device
from ditron.ir.index import Ssa
from ditron.passes.grids import GridBuilder
from ditron.plan.expr import Binary, Expr, as_expr, binary
from ditron.plan.fold import Fold
from ditron.plan.tables import Role


@dataclass(frozen=True)
class FuseTilesPass(ModulePass):
    """See the module's docstring."""

    name = "fuse-tiles"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Buffer by buffer, again as long as some went: a fusion can make room for another."""
        program, funcs = device_program(op), kernels(op)
        fused = 1
        while fused:
            place = {grid: i for i, grid in enumerate(program.body.block.ops)}
            fused = sum(_try_to_fuse(buffer, funcs, place) for buffer in _scratch(program))


def _scratch(program: device.ProgramOp) -> list[device.BufferOp]:
    buffers = (op for op in program.body.block.ops if isinstance(op, device.BufferOp))
    return [buffer for buffer in buffers if buffer.role.data == Role.SCRATCH]


def _try_to_fuse(
    buffer: device.BufferOp, funcs: dict[str, core.FuncOp], place: dict[Operation, int]
) -> bool:
    """Make one of the grid that writes a buffer and the one that reads it, if they fit."""
    views = [use.operation for use in buffer.result.uses]
    grids = {v.parent_op() for v in views if isinstance(v, device.ViewOp)}
    if len(grids) != 2 or not all(isinstance(v, device.ViewOp) for v in views):
        return False
    first, second = sorted(
        (g for g in grids if isinstance(g, device.GridOp)), key=place.__getitem__
    )
    fits = _fit_together(buffer, first, second, funcs)
    if fits:
        place[_fuse(funcs, buffer, first, second)] = place[second]
    return fits


def _fit_together(
    buffer: device.BufferOp,
    first: device.GridOp,
    second: device.GridOp,
    funcs: Mapping[str, core.FuncOp],
) -> bool:
    """Whether each tile that `second` reads of the buffer is the one `first` writes there."""
    same = first.dims == second.dims and first.engine.data == second.engine.data == "sm"
    if not same or not (_plain(first) and _plain(second)):
        return False
    if not all(_handed_whole(g, buffer, funcs) for g in (first, second)):
        return False
    if _reads_state(first) and (first.next_op is not second or _reads_state(second)):
        return False
    written = [_box(v, first, first) for v in first.views if v.buffer is buffer.result]
    read = [_box(v, second, first) for v in second.views if v.buffer is buffer.result]
    return len(written) == 1 and all(box == written[0] for box in read)


def _reads_state(grid: device.GridOp) -> bool:
    """Whether what it reads may be written over, so that it must be read no later."""
    return any(_owner(v).role.data == Role.STATE for v in grid.views)


def _owner(view: device.ViewOp) -> device.BufferOp:
    owner = view.buffer.owner
    assert isinstance(owner, device.BufferOp)
    return owner


def _handed_whole(
    grid: device.GridOp, buffer: device.BufferOp, funcs: Mapping[str, core.FuncOp]
) -> bool:
    """Whether the kernel loads and stores its view of the buffer as one tile."""
    func = funcs[_call(grid).kernel_name]
    mine = [arg for arg, v in zip(func.views, grid.views, strict=True) if v.buffer is buffer.result]
    uses = [use.operation for arg in mine for use in arg.uses]
    return all(isinstance(user, core.LoadOp | core.StoreOp) for user in uses)


def _plain(grid: device.GridOp) -> bool:
    """A kernel call on views of this rank's memory, and no schedule or signals yet."""
    ops = grid.body.block.ops
    return all(isinstance(o, device.ViewOp | device.CallOp) for o in ops)


Box = tuple[SSAValue, tuple[Expr, ...], tuple[Expr, ...], Expr | None, Fold | None, tuple[int, ...]]


def _box(view: device.ViewOp, grid: device.GridOp, of: device.GridOp) -> Box:
    """What a view of one grid stands for, told in the coordinates of another."""
    turn = partial(_turn, _renamed(grid, of))
    at = view.at
    return (
        view.buffer,
        tuple(map(turn, view.offset_exprs)),
        tuple(map(turn, view.size_exprs)),
        None if at is None else turn(at),
        view.fold,
        view.result.type.dims,
    )


def _renamed(grid: device.GridOp, of: device.GridOp) -> dict[SSAValue, Expr]:
    """A grid's coordinates in another's; where there is but one, that is 0."""
    pairs = zip(grid.dims, grid.body.block.args, of.body.block.args, strict=True)
    return {old: Ssa(new) if bound > 1 else as_expr(0) for bound, old, new in pairs}


def _turn(new: Mapping[SSAValue, Expr], expr: Expr) -> Expr:
    """An index expression in other coordinates."""
    match expr:
        case Ssa(value=value):
            return new.get(value, expr)
        case Binary(op, lhs, rhs):
            return binary(op, _turn(new, lhs), _turn(new, rhs))
        case _:
            return expr


def _fuse(
    funcs: dict[str, core.FuncOp],
    buffer: device.BufferOp,
    first: device.GridOp,
    second: device.GridOp,
) -> device.GridOp:
    """The one grid that does what both did, where the second stood."""
    producer, consumer = (funcs[_call(g).kernel_name] for g in (first, second))
    names = [arg.name_hint or f"i{i}" for i, arg in enumerate(second.body.block.args)]
    grid = GridBuilder(
        second.sym_name.data, "sm", dict(zip(names, second.dims, strict=True)), second.location
    )
    whole = grid.finish()
    # One argument a distinct box; the tile in between is none.
    boxes: dict[Box, SSAValue] = {}
    arguments: list[list[Box | None]] = []
    for old in (first, second):
        row: list[Box | None] = []
        for view in old.views:
            if view.buffer is buffer.result:
                row.append(None)
                continue
            box = _box(view, old, whole)
            row.append(box)
            if box not in boxes:
                axes = None if view.fold is None else view.fold.axes
                boxes[box] = grid.view(*box[:3], view.result.type.dims, box[3], axes)
        arguments.append(row)
    written = [box for i, box in enumerate(arguments[1]) if consumer.writes(i)]
    order = sorted(boxes, key=lambda box: box in written)
    kernel = _join(producer, consumer, arguments, order, [boxes[b] for b in order])
    indices = [
        _turn(_renamed(old, whole), index)
        for old in (first, second)
        for index in _call(old).index_exprs
    ]
    grid.add(device.CallOp(consumer.kernel_name, [boxes[b] for b in order], indices))
    _replace(consumer, kernel)
    del funcs[producer.kernel_name]
    funcs[kernel.kernel_name] = kernel
    _replace(second, whole)
    for old in (first, producer, buffer):
        old.detach()
        old.erase()
    return whole


def _call(grid: device.GridOp) -> device.CallOp:
    call = grid.body_op
    assert isinstance(call, device.CallOp)
    return call


def _replace(old: Operation, new: Operation) -> None:
    block = old.parent_block()
    assert block is not None
    block.insert_op_before(new, old)
    old.detach()
    old.erase()


def _join(
    producer: core.FuncOp,
    consumer: core.FuncOp,
    arguments: list[list[Box | None]],
    order: list[Box],
    views: list[SSAValue],
) -> core.FuncOp:
    """The two kernels one after the other, the tile handed on instead of stored and loaded."""
    types = [v.type for v in views if isinstance(v.type, core.ViewType)]
    indices = len(producer.indices) + len(consumer.indices)
    func = core.FuncOp.empty(consumer.kernel_name, types, indices)
    func.location = consumer.location
    block = func.body.block
    args = dict(zip(order, func.views, strict=True))
    numbers = dict(zip([*producer.indices, *consumer.indices], func.indices, strict=True))
    loaded: dict[SSAValue, SSAValue] = {}
    handed: SSAValue | None = None
    for old, row in zip((producer, consumer), arguments, strict=True):
        of: dict[SSAValue, SSAValue | None] = {
            arg: None if box is None else args[box] for arg, box in zip(old.views, row, strict=True)
        }
        values = numbers | {arg: view for arg, view in of.items() if view is not None}
        for op in old.body.block.ops:
            if isinstance(op, core.StoreOp) and of[op.view] is None:
                handed = values[op.tile]
            elif isinstance(op, core.LoadOp) and of[op.view] is None:
                assert handed is not None
                values[op.result] = handed
            elif isinstance(op, core.LoadOp) and values[op.view] in loaded:
                values[op.result] = loaded[values[op.view]]
            else:
                new = op.clone(value_mapper=values)
                new.location = op.location
                block.add_op(new)
                if isinstance(op, core.LoadOp):
                    loaded[values[op.view]] = new.results[0]
    _round_once(block)
    return func


def _round_once(block: Block) -> None:
    """Drop a rounding that is undone at once, then what nobody uses any more."""
    for op in list(block.ops):
        inner = op.operand.owner if isinstance(op, core.CastOp) else None
        if isinstance(inner, core.CastOp) and isinstance(op, core.CastOp):
            wide, narrow = inner.operand.type, core.tile_type(inner.result).element_type
            if wide == op.result.type and isinstance(narrow, AnyFloat):
                op.result.replace_all_uses_with(inner.operand)
    for op in reversed(list(block.ops)):
        if op.results and not any(r.uses for r in op.results):
            op.detach()
            op.erase()
