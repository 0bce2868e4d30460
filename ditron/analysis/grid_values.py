"""Index arithmetic of a program and its grids, for all ranks and coordinates at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from xdsl.ir import Block, Operation, SSAValue

from ditron.errors import PlanError
from ditron.ir import device
from ditron.ir.index import ExprsAttr
from ditron.ir.locations import op_location
from ditron.plan.expr import Values, evaluate
from ditron.plan.limits import MAX_TASKS
from ditron.plan.tables import Bools


@dataclass
class Grid:
    """One grid evaluated: arrays have shape [tasks], tasks = ranks x grid points, row-major."""

    op: device.GridOp
    values: dict[SSAValue, Values]
    shape: tuple[int, ...]

    @property
    def tasks(self) -> int:
        return int(np.prod(self.shape))

    def of(self, args: Sequence[SSAValue], exprs: ExprsAttr) -> list[Values]:
        """Each expression for every task."""
        env = [self.values[a] for a in args]
        return [np.broadcast_to(evaluate(e, env), self.shape).reshape(-1) for e in exprs.data]

    def mask(self, args: Sequence[SSAValue], exprs: ExprsAttr | None) -> Bools:
        """A predicate for every task; absent means true."""
        if exprs is None:
            return np.ones(self.tasks, dtype=np.bool_)
        return self.of(args, exprs)[0] != 0


def evaluate_grid(op: device.GridOp, ranks: int, outer: Mapping[SSAValue, Values]) -> Grid:
    """Evaluate a grid's index arithmetic on open grids over (rank, coordinates)."""
    shape = (ranks, *op.dims)
    if prod(shape) > MAX_TASKS:
        message = (
            f"grid @{op.sym_name.data} has {prod(shape)} tasks, a plan holds at most {MAX_TASKS};"
            f" larger tiles or chunks make fewer"
        )
        raise PlanError(message, op_location(op))
    ones = (1,) * len(op.dims)
    values = {v: a.reshape(-1, *ones) if a.ndim else a for v, a in outer.items()}
    for i, arg in enumerate(op.body.block.args):
        values[arg] = np.arange(op.dims[i]).reshape(-1, *ones[i + 1 :])
    grid = Grid(op, values, shape)
    _evaluate_index_ops(op.body.block, grid.values)
    return grid


def evaluate_program(program: device.ProgramOp) -> dict[SSAValue, Values]:
    """The program-level index values, each [ranks] or a scalar."""
    values: dict[SSAValue, Values] = {}
    for op in program.body.block.ops:
        if isinstance(op, device.RankOp):
            values[op.result] = np.arange(program.n)
    _evaluate_index_ops(program.body.block, values)
    return values


def _evaluate_index_ops(block: Block, values: dict[SSAValue, Values]) -> None:
    for op in block.ops:
        if isinstance(op, device.IndexOp):
            values[op.result] = evaluate(op.expr.data[0], [values[a] for a in op.args])
        elif isinstance(op, device.TableOp):
            table = np.array(op.values.get_values(), dtype=np.int64).reshape(op.shape)
            env = [values[a] for a in op.args]
            at = [evaluate(e, env) for e in op.at.data]
            for dim, (index, size) in enumerate(zip(at, op.shape, strict=True)):
                check_range(op, f"index {dim} of device.table", index, size)
            values[op.result] = table[tuple(at)]


def check_range(op: Operation, what: str, index: Values, size: int) -> None:
    """Raise a PlanError unless an index is 0 to size - 1 everywhere."""
    bad = (index < 0) | (index >= size)
    if bad.any():
        value = int(np.asarray(index)[bad].flat[0])
        raise PlanError(f"{what} is {value}, expected 0 to {size - 1}", op_location(op))
