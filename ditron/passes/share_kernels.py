"""Kernels that say the same become one: the layers of a model are grids of a few kernels."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr
from xdsl.ir import SSAValue

from ditron.analysis.symbols import device_program, kernels
from ditron.ir import core, device


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
            same[name] = first.setdefault(_said(funcs[name]), funcs[name])
        if same[name] is not funcs[name]:
            call.kernel = SymbolRefAttr(same[name].kernel_name)
    for name, kept in same.items():
        if kept is not funcs[name]:
            funcs[name].detach()
            funcs[name].erase()


def _said(func: core.FuncOp) -> object:
    """What a kernel says, whatever it and its values are called."""
    numbers: dict[SSAValue, int] = {a: i for i, a in enumerate(func.body.block.args)}
    ops: list[object] = []
    for op in func.body.block.ops:
        for result in op.results:
            numbers[result] = len(numbers)
        operands = tuple(numbers[operand] for operand in op.operands)
        types = tuple(result.type for result in op.results)
        ops.append((op.name, operands, types, tuple(op.properties.items())))
    return tuple(arg.type for arg in func.body.block.args), tuple(ops)
