"""fuse-tiles: a grid that makes tiles and the one grid that reads them become one.

    device.grid @gate engine sm in (%m = 4, %n = 2) { ... device.call @gate(%x_, %w_, %h_) }
    device.grid @silu engine sm in (%m = 4, %n = 2) { ... device.call @silu(%h_, %y_) }
    ->
    device.grid @silu engine sm in (%m = 4, %n = 2) { ... device.call @silu(%x_, %w_, %y_) }

The reader makes what it reads itself; the tile stays where it is computed, in float32, and is
rounded once, when the fused kernel stores. Where the boxes that it reads are not those that were
written, the writer's kernel is cut anew for them (`tile_tasks.py`): two column blocks of one
product, some heads of many, or all of a row in each tile that is made of it. Then it is the
machine's costs that say whether it pays.

Needs: lowered grids (`lower-task-to-device`). Ensures: no scratch buffer is left that one grid
writes and one other reads by the same boxes at the same coordinates. Boxes loaded twice are loaded
once, and what is said twice is computed once.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from ditron.analysis.symbols import device_program, kernels
from ditron.ir import core, device
from ditron.ir.index import Ssa
from ditron.passes.grids import GridBuilder
from ditron.passes.join_kernels import join
from ditron.passes.kernel_costs import fits, task_us
from ditron.passes.tile_tasks import Box, TileTask, recut, units
from ditron.plan.machine import Machine, load_machine
from ditron.plan.tables import Role


@dataclass(frozen=True)
class FuseTilesPass(ModulePass):
    """See the module's docstring."""

    name = "fuse-tiles"

    machine: str = "cpu"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Buffer by buffer, again as long as some went: a fusion can make room for another.

        Tiles that agree come first, so that what is cut anew is cut for all that reads it.
        """
        program, machine = device_program(op), load_machine(self.machine)
        for anew in (False, True):
            fusing, fused = _Fusing(kernels(op), machine, anew=anew), 1
            while fused:
                place = {grid: i for i, grid in enumerate(program.body.block.ops)}
                fused = sum(fusing.run(buffer, place) for buffer in _scratch(program))


def _scratch(program: device.ProgramOp) -> list[device.BufferOp]:
    buffers = (op for op in program.body.block.ops if isinstance(op, device.BufferOp))
    return [buffer for buffer in buffers if buffer.role.data == Role.SCRATCH]


@dataclass(frozen=True)
class _Pair:
    """The grid that writes a buffer, and the one that reads it."""

    buffer: SSAValue
    first: device.GridOp
    second: device.GridOp


class _Fusing:
    """Fuses pairs; with `anew`, also those for which the writer's kernel is cut anew."""

    def __init__(self, funcs: dict[str, core.FuncOp], machine: Machine, *, anew: bool) -> None:
        self.funcs, self.machine, self.anew = funcs, machine, anew
        self.refused: set[_Pair] = set()

    def run(self, buffer: device.BufferOp, place: dict[Operation, int]) -> bool:
        """Make one of the grid that writes a buffer and the one that reads it, if they fit."""
        views = [use.operation for use in buffer.result.uses]
        grids = {v.parent_op() for v in views if isinstance(v, device.ViewOp)}
        if len(grids) != 2 or not all(isinstance(v, device.ViewOp) for v in views):
            return False
        first, second = sorted(
            (g for g in grids if isinstance(g, device.GridOp)), key=place.__getitem__
        )
        pair = _Pair(buffer.result, first, second)
        fused = None if pair in self.refused else self._fused(pair)
        if fused is None:
            self.refused.add(pair)
            return False
        grid, kernel = fused
        place[grid] = place[second]
        producer = self.funcs.pop(_kernel_name(first))
        _replace(self.funcs[kernel.kernel_name], kernel)
        self.funcs[kernel.kernel_name] = kernel
        _replace(second, grid)
        for old in (first, producer, buffer):
            old.detach()
            old.erase()
        return True

    def _fused(self, pair: _Pair) -> tuple[device.GridOp, core.FuncOp] | None:
        """The one grid that does what both did, and its kernel; None where they do not fit."""
        first, second = pair.first, pair.second
        if not all(self._may_fuse(grid, pair.buffer) for grid in (first, second)):
            return None
        if _reads_state(first) and (first.next_op is not second or _reads_state(second)):
            return None
        reader = TileTask.of(second, self.funcs[_kernel_name(second)])
        regions = {
            box.turned(units(second)): box for box in reader.boxes if box.buffer is pair.buffer
        }
        makers = [self._maker(pair, region) for region in regions.values()]
        parts = [maker for maker, _ in filter(None, makers)]
        if len(parts) < len(regions):
            return None
        keys = [[box.turned(units(second)) for box in task.boxes] for task in (*parts, reader)]
        task = join(
            reader.func.kernel_name,
            list(zip((*parts, reader), keys, strict=True)),
            frozenset(regions),
        )
        anew = not all(same for _, same in filter(None, makers))
        fitted = anew or all(fits(self.machine, part.func) for part in (*parts, reader))
        if fitted and not fits(self.machine, task.func):
            return None
        if anew and not self._pays(pair, task):
            return None
        return _grid(second, task), task.func

    def _maker(self, pair: _Pair, region: Box) -> tuple[TileTask, bool] | None:
        """What makes a region that is read, and whether that is what a task of the writer does."""
        first, second = pair.first, pair.second
        func = self.funcs[_kernel_name(first)]
        task = TileTask.of(first, func)
        written = task.views_of(pair.buffer)
        if len(written) != 1 or not func.writes(written[0]):
            return None
        if first.dims == second.dims:
            args = zip(first.body.block.args, second.body.block.args, strict=True)
            same = task.turned({old: Ssa(new) for old, new in args})
            plain = (box.turned(units(second)) for box in (same.boxes[written[0]], region))
            if next(plain) == next(plain):
                return same, True
        made = recut(first, func, written[0], region, second) if self.anew else None
        return None if made is None else (made, False)

    def _may_fuse(self, grid: device.GridOp, buffer: SSAValue) -> bool:
        """Whether it is a plain kernel call, which loads or stores its views of a buffer whole."""
        plain = all(isinstance(op, device.ViewOp | device.CallOp) for op in grid.body.block.ops)
        if not plain or grid.engine.data != "sm":
            return False
        views = zip(self.funcs[_kernel_name(grid)].views, grid.views, strict=True)
        uses = [use.operation for arg, v in views if v.buffer is buffer for use in arg.uses]
        return all(isinstance(user, core.LoadOp | core.StoreOp) for user in uses)

    def _pays(self, pair: _Pair, fused: TileTask) -> bool:
        """Whether one grid takes no longer than the two."""
        apart = sum(
            task_us(self.machine, TileTask.of(grid, self.funcs[_kernel_name(grid)]), grid.dims)
            for grid in (pair.first, pair.second)
        )
        return task_us(self.machine, fused, pair.second.dims) <= apart


def _reads_state(grid: device.GridOp) -> bool:
    """Whether what it reads may be written over, so that it must be read no later."""
    owners = (view.buffer.owner for view in grid.views)
    return any(isinstance(o, device.BufferOp) and o.role.data == Role.STATE for o in owners)


def _kernel_name(grid: device.GridOp) -> str:
    call = grid.body_op
    assert isinstance(call, device.CallOp)
    return call.kernel_name


def _grid(like: device.GridOp, task: TileTask) -> device.GridOp:
    """A grid of a task that is told in another grid's coordinates."""
    names = [arg.name_hint or f"i{i}" for i, arg in enumerate(like.body.block.args)]
    bounds = dict(zip(names, like.dims, strict=True))
    grid = GridBuilder(like.sym_name.data, "sm", bounds, like.location)
    pairs = zip(like.body.block.args, grid.block.args, strict=True)
    own = task.turned({old: Ssa(new) for old, new in pairs})
    views = [
        grid.view(box.buffer, box.offsets, box.sizes, box.dims, box.at, box.axes)
        for box in own.boxes
    ]
    grid.add(device.CallOp(task.func.kernel_name, views, own.indices))
    return grid.finish()


def _replace(old: Operation, new: Operation) -> None:
    block = old.parent_block()
    assert block is not None
    block.insert_op_before(new, old)
    old.detach()
    old.erase()
