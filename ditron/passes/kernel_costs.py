"""What grids of kernels take on a machine, for passes that weigh one against another."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from xdsl.ir import SSAValue

from ditron.analysis.arrays import longs
from ditron.analysis.kernel_dims import tile_dims
from ditron.analysis.kernel_work import elements, flops, multiplies, sums_apart
from ditron.ir import core, device
from ditron.ir.attrs import dtype_name
from ditron.passes.tile_tasks import TileTask
from ditron.plan.cost import dot_us, fetch_us, in_waves, is_serial, pointwise_us, stream_us
from ditron.plan.machine import Machine
from ditron.plan.tables import DTYPE_BYTES

OTHERS = (core.LoadOp, core.StoreOp, core.AtOp, core.GatherOp, core.DotOp, core.IndexOp)


def task_us(machine: Machine, task: TileTask, dims: Sequence[int]) -> float:
    """A grid of such tasks, from the end of the grid before it on."""
    func, many = task.func, prod(dims)
    sizes = [longs(np.array([box.dims])) for box in task.boxes]
    moved = [
        int(elements(func, i, size)[0]) * DTYPE_BYTES[dtype_name(type_.element_type)]
        for i, (size, type_) in enumerate(zip(sizes, func.view_types, strict=True))
    ]
    dots = [op for op in func.body.block.ops if isinstance(op, core.DotOp)]
    if dots:
        dtype = dtype_name(core.tile_type(dots[0].lhs).element_type)
        each = dot_us(machine, dtype, float(flops(func, sizes)[0]), float(sum(moved)))
    else:
        dtype = dtype_name(func.view_types[-1].element_type)
        each = stream_us(machine, dtype, float(sum(moved)))
    each += pointwise_us(machine, _computed(func))
    pairs = zip(moved, task.boxes, strict=True)
    own = (min(size * many, _bytes(box.buffer.type)) for size, box in pairs)
    us = max(in_waves(machine, each * many, each, many), fetch_us(machine, float(sum(own))))
    return us + machine.costs.next_us


def _computed(func: core.FuncOp) -> int:
    """How many elements ops make that are neither loaded nor multiplied."""
    ops = (op for op in func.body.block.ops if op.operands and not isinstance(op, OTHERS))
    return sum(max(prod(tile_dims(tile)) for tile in (*op.operands, *op.results)) for op in ops)


def _bytes(buffer: object) -> int:
    assert isinstance(buffer, device.BufferType)
    return prod(buffer.dims) * DTYPE_BYTES[buffer.dtype]


def fits(machine: Machine, func: core.FuncOp) -> bool:
    """Whether products find their operands as the machine does best, and are not summed.

    A matrix unit takes operands from memory. A product of one row, which is multiplied and added in
    the plain way, may compute them, but not multiply for that. A core does whatever comes.
    """
    if is_serial(machine):
        return True
    dots = [op for op in func.body.block.ops if isinstance(op, core.DotOp)]
    return sums_apart(func) and all(
        _is_loaded(operand) or (core.tile_type(op.result).dims[-2] == 1 and not multiplies(operand))
        for op in dots
        for operand in op.operands
    )


def _is_loaded(tile: SSAValue) -> bool:
    op = tile.owner
    if isinstance(op, core.CastOp | core.TransposeOp | core.ExpandDimsOp):
        return _is_loaded(op.operand)
    return isinstance(op, core.LoadOp)
