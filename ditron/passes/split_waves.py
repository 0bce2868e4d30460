"""split-waves: cut the rows of a product that would fill only part of a last wave into finer tiles.

    device.grid @matmul engine sm in (%m = 64, %n = 7) { ... -> %y[%m * 128, %n * 256] [128, 256] }
    ->
    device.grid @matmul engine sm in (%m = 56, %n = 7) { ... -> %y[%m * 128, %n * 256] [128, 256] }
    device.grid @matmul_rest engine sm in (%m = 8, %n = 14) {
      ... -> %y[%m * 128 + 7168, %n * 128] [128, 128]
    }

Of 448 tiles on 132 workers three waves are full and the fourth holds 52, for which all wait; as 112
half tiles these rows take half as long. Done where the machine's costs say that it pays.

Needs: decomposed collectives, no schedule. Ensures: the same boxes are written, each once. Leaves
alone: machines whose workers take turns on a core, and products of or for other ranks, whose tiles
run in the order in which data comes or is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, IntAttr, ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

from ditron.analysis.symbols import device_program, kernels
from ditron.ir import core, device
from ditron.ir.attrs import dtype_name
from ditron.ir.index import Ssa
from ditron.passes.grids import GridBuilder, Names, names_in
from ditron.passes.kernel_calls import resized
from ditron.passes.signal_ops import grids_of
from ditron.plan.cost import GemmShape, gemm_waves, is_serial
from ditron.plan.expr import Const, Expr, as_expr
from ditron.plan.machine import load_machine
from ditron.plan.tables import LIBRARY, Memory


@dataclass(frozen=True)
class SplitWavesPass(ModulePass):
    """See the module's docstring."""

    name = "split-waves"

    machine: str = "cpu"
    workers: int = 1

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        machine = load_machine(self.machine)
        if is_serial(machine):
            return
        program, funcs = device_program(op), kernels(op)
        names = names_in(program)
        for grid in grids_of(program):
            product = _product(grid, funcs)
            if product is None:
                continue
            waves = gemm_waves(machine, product.shape, product.tile, self.workers)
            if waves is not None and waves.pays:
                product.split(waves.head, waves.halves, names)


@dataclass(frozen=True)
class _Product:
    """A grid of rows and columns of tiles of a product."""

    grid: device.GridOp
    func: core.FuncOp
    tile: tuple[int, int]
    shape: GemmShape

    def split(self, head: int, halves: int, names: Names) -> None:
        """Keep the first rows of tiles; the others become a grid of tiles of half the width."""
        grid, (height, width) = self.grid, self.tile
        bounds = {"m": grid.dims[0] - head, "n": halves}
        rest = GridBuilder(names.fresh(f"{grid.label}_rest"), "sm", bounds, grid.location)
        m, n = grid.body.block.args
        places = {
            Ssa(m) * height: (rest["m"] * height + head * height, height),
            Ssa(n) * width: (rest["n"] * (width // 2), width // 2),
        }
        views: list[SSAValue] = []
        for view in grid.views:
            whole = [(o, d) for o, d in zip(view.offset_exprs, view.result.type.dims, strict=True)]
            boxes = [places.get(offset, (offset, size)) for offset, size in whole]
            sizes = [size for _, size in boxes]
            views.append(rest.view(view.buffer, [o for o, _ in boxes], sizes, sizes))
        rest.add(device.CallOp(rest.name, views))
        _add_after(self.func, resized(self.func, rest.name, [view.type for view in views]))
        _add_after(grid, rest.finish())
        grid.properties["bounds"] = ArrayAttr([IntAttr(head), IntAttr(grid.dims[1])])


def _add_after(old: device.GridOp | core.FuncOp, new: device.GridOp | core.FuncOp) -> None:
    block = old.parent_block()
    assert block is not None
    block.insert_op_after(new, old)


def _product(grid: device.GridOp, funcs: dict[str, core.FuncOp]) -> _Product | None:
    """The product that a grid makes, where each view is a box of tiles of this rank's memory."""
    body = grid.body_op
    if not isinstance(body, device.CallOp) or len(grid.dims) != 2 or grid.schedule is not None:
        return None
    if grid.engine.data == LIBRARY:
        return None
    func = funcs[body.kernel_name]
    dots = [op for op in func.body.block.ops if isinstance(op, core.DotOp)]
    made = [view for i, view in enumerate(grid.views) if func.writes(i)]
    if len(dots) != 1 or len(made) != 1 or len(made[0].result.type.dims) != 2:
        return None
    height, width = made[0].result.type.dims
    m, n = grid.body.block.args
    known = (Ssa(m) * height, Ssa(n) * width)
    if list(made[0].offset_exprs) != list(known):
        return None
    if not all(_is_tile(view, known) for view in grid.views):
        return None
    lhs = core.tile_type(dots[0].lhs)
    rows, columns = _buffer(made[0]).dims
    shape = GemmShape(rows, columns, lhs.dims[1], dtype_name(lhs.element_type))
    return _Product(grid, func, (height, width), shape)


def _is_tile(view: device.ViewOp, known: Sequence[Expr]) -> bool:
    offsets = all(o in known or isinstance(o, Const) for o in view.offset_exprs)
    sizes = [as_expr(d) for d in view.result.type.dims]
    local = view.at is None and _buffer(view).memory.data == Memory.LOCAL
    return local and offsets and view.axes is None and list(view.size_exprs) == sizes


def _buffer(view: device.ViewOp) -> device.BufferType:
    owner = view.buffer.owner
    assert isinstance(owner, device.BufferOp)
    return owner.result.type
