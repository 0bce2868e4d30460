"""schedule-tasks: give every task a lane.

    device.grid @matmul engine sm in (%m = 8, %n = 4) { ... } -> device.grid @matmul engine sm in
    (%m = 8, %n = 4) { device.schedule lane[(%m * 4 + %n) mod 2] ... }

Needs: grids with engines. Ensures: a lane on every grid, none at or over the number of lanes of its
engine. Compute tasks are dealt to `workers` lanes in turn (round-robin), in the order in which they
run where that has a closed form, else in grid order; or in blocks of it (program-order). Transfers
go to the copy lane of their peer, that is of their grid's first coordinate; with `local_lane`,
copies within a rank go to one more lane, so that no transfer between ranks stands behind them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from ditron.analysis.symbols import device_program
from ditron.errors import OptionError
from ditron.ir import device
from ditron.ir.index import Ssa
from ditron.passes.signal_ops import GridSignals, grid_signals, set_schedule
from ditron.plan.expr import Expr, as_expr


@dataclass(frozen=True)
class ScheduleTasksPass(ModulePass):
    """See the module's docstring."""

    name = "schedule-tasks"

    policy: Literal["round-robin", "program-order"] = "round-robin"
    workers: int = 1
    copy_lanes: int = 1
    local_lane: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if min(self.workers, self.copy_lanes) < 1:
            raise OptionError("schedule-tasks needs at least one worker and one copy lane")
        for writer in grid_signals(device_program(op)):
            set_schedule(writer.op, lane=self._lane(writer))

    def _lane(self, writer: GridSignals) -> Expr:
        grid = writer.op
        if grid.engine.data == "sm" and self.workers > 1:
            place, total = _place(grid)
            place = writer.position() or place
            if self.policy == "round-robin":
                return place % self.workers
            return place * self.workers // total
        if self.local_lane and isinstance(grid.body_op, device.CopyOp):
            return as_expr(self.copy_lanes)
        if grid.engine.data == "copy" and self.copy_lanes > 1 and grid.dims:
            return Ssa(grid.body.block.args[0]) % self.copy_lanes
        return as_expr(0)


def _place(grid: device.GridOp) -> tuple[Expr, int]:
    """A task's place in its grid, row-major, and how many there are."""
    place, total = as_expr(0), 1
    for arg, bound in zip(reversed(grid.body.block.args), reversed(grid.dims), strict=True):
        place = Ssa(arg) * total + place
        total *= bound
    return place, max(total, 1)
