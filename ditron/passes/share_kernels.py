"""Kernels that say the same become one: the layers of a model are grids of a few kernels."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr
from xdsl.ir import SSAValue

from ditron.analysis.symbols import device_program, kernels
from ditron.ir import core, device
from ditron.ir.sameness import said


def share_kernels(module: ModuleOp) -> None:
    """Let grids that call equal kernels call the first of them, and drop the others."""
    funcs, first = kernels(module), dict[object, core.FuncOp]()
    same: dict[str, core.FuncOp] = {}
    for grid in device_program(module).body.block.ops:
        call = grid.body_op if isinstance(grid, device.GridOp) else None
        if not isinstance(call, device.CallOp):
            continue
        name = call.kernel_name
        if name not in same:
            same[name] = first.setdefault(said(funcs[name].body.block, _nothing), funcs[name])
        if same[name] is not funcs[name]:
            call.kernel = SymbolRefAttr(same[name].kernel_name)
    for name, kept in same.items():
        if kept is not funcs[name]:
            funcs[name].detach()
            funcs[name].erase()


def _nothing(value: SSAValue) -> object:
    raise AssertionError(f"a kernel uses {value}, which it does not make")
