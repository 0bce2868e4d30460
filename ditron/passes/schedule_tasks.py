"""schedule-tasks: give every task a lane.

    device.grid @matmul engine sm in (%m = 8, %n = 4) { ... } -> device.grid @matmul engine sm in
    (%m = 8, %n = 4) { device.schedule lane[(%m * 4 + %n) mod 2] ... }

Needs: grids with engines. Ensures: a lane on every grid, none at or over the number of lanes of its
engine. Compute tasks go to `workers` lanes, in the order in which they run where that has a closed
form, else in grid order:

| policy | lane of the i-th task of a grid |
|---|---|
| `round-robin` | i mod workers |
| `program-order` | in blocks, the first ones to lane 0 |
| `zigzag` | in turn up, then down: lane 0 has the first task and the last of two rounds |
| `queue` | one queue, which the workers share: whoever is free takes the next |
| `critical-path` | that on which it can start first (`analysis/list_schedule.py`) |

`critical-path` plays its lanes and those of round-robin on the machine, with their signals, and
keeps the better ones, so signals are planned three times; where ranks share cores, all lanes of a
rank take turns and it is round-robin.

With `apart`, a grid of fewer tasks than workers begins beside the grids before it, or where what it
reads was made, so that what a persistent launch has to do at one time is done on several lanes.

Transfers go to the copy lane of their peer, that is of their grid's first coordinate; with
`local_lane`, copies within a rank go to one more lane, so that no transfer between ranks stands
behind them. Products of a library have two lanes in turn, so that one fills the workers that
the one before it leaves; what it adds has a third.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

from ditron.analysis.expand import expand
from ditron.analysis.list_schedule import list_schedule
from ditron.analysis.symbols import device_program, kernels
from ditron.analysis.timeline import play
from ditron.errors import OptionError
from ditron.ir import core, device
from ditron.ir.index import Ssa
from ditron.ir.library import LibraryCall, library_call
from ditron.passes.elide_waits import ElideWaitsPass
from ditron.passes.insert_signals import InsertSignalsPass
from ditron.passes.signal_ops import GridSignals, grid_signals, set_schedule
from ditron.plan.cost import is_serial
from ditron.plan.expr import Expr, as_expr
from ditron.plan.machine import load_machine
from ditron.plan.options import Scheduler
from ditron.plan.tables import LIBRARY

PRODUCT_LANES = 2


@dataclass(frozen=True)
class ScheduleTasksPass(ModulePass):
    """See the module's docstring; only `critical-path` asks the machine."""

    name = "schedule-tasks"

    policy: Scheduler = "round-robin"
    workers: int = 1
    copy_lanes: int = 1
    local_lane: bool = False
    apart: bool = False
    machine: str = "cpu"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if min(self.workers, self.copy_lanes) < 1:
            raise OptionError("schedule-tasks needs at least one worker and one copy lane")
        dealt = self if self.policy != "critical-path" else replace(self, policy="round-robin")
        listed = self.policy == "critical-path" and self._list_is_better(ctx, op, dealt)
        dealt.deal(op)
        if listed:
            self._list(op)

    def deal(self, module: ModuleOp) -> None:
        """Write lanes by a policy that looks at one grid at a time."""
        funcs, products = kernels(module), 0
        begins = _Begins(self.workers if self.apart else 0, funcs)
        for writer in grid_signals(device_program(module)):
            grid = writer.op
            if grid.engine.data != LIBRARY:
                if self.policy == "queue" and grid.engine.data == "sm":
                    grid.properties["queue"] = UnitAttr()
                set_schedule(grid, lane=self._lane(writer) + begins.lane(grid))
                continue
            call = grid.body_op
            assert isinstance(call, device.CallOp)
            lane = as_expr(PRODUCT_LANES)
            if library_call(funcs[call.kernel_name]) is not LibraryCall.SUM:
                lane = (writer.place() + products) % PRODUCT_LANES
                products += prod(grid.dims)
            set_schedule(grid, lane=lane)

    def _list_is_better(self, ctx: Context, op: ModuleOp, dealt: ScheduleTasksPass) -> bool:
        """Whether the lanes of list scheduling make a shorter launch."""
        machine = load_machine(self.machine)
        if is_serial(machine) or self.workers == 1:
            return False
        makespans: list[float] = []
        for listed in (False, True):
            module = op.clone()
            dealt.deal(module)
            if listed:
                self._list(module)
            InsertSignalsPass(self.machine).apply(ctx, module)
            ElideWaitsPass().apply(ctx, module)
            makespans.append(play(expand(module), machine).makespan_us)
        return makespans[1] < makespans[0]

    def _list(self, module: ModuleOp) -> None:
        """Write the lanes of list scheduling over those that tasks have been dealt to."""
        writers = grid_signals(device_program(module))
        plan = expand(module, nominal=True)
        lane = list_schedule(plan, load_machine(self.machine), self.workers)
        for number, writer in enumerate(writers):
            if writer.op.engine.data == "sm":
                writer.deal(lane[plan.tasks.op == number])

    def _lane(self, writer: GridSignals) -> Expr:
        grid = writer.op
        if grid.engine.data == "sm":
            return self._worker(writer)
        if self.local_lane and isinstance(grid.body_op, device.CopyOp):
            return as_expr(self.copy_lanes)
        if grid.engine.data == "copy" and self.copy_lanes > 1 and grid.dims:
            return Ssa(grid.body.block.args[0]) % self.copy_lanes
        return as_expr(0)

    def _worker(self, writer: GridSignals) -> Expr:
        if self.workers == 1 or self.policy == "queue":
            return as_expr(0)
        place, total = writer.place(), max(prod(writer.op.dims), 1)
        if self.policy == "program-order":
            return place * self.workers // total
        turn = place % self.workers
        if self.policy == "zigzag" and total > self.workers:
            back = as_expr(self.workers - 1) - turn * 2
            return turn + place // self.workers % 2 * back
        return turn


class _Begins:
    """On which lane small grids begin: beside those before them, or where what they read was made.

    A grid that fills the `workers` begins on the first one, and so do the small ones behind it.
    """

    def __init__(self, workers: int, funcs: Mapping[str, core.FuncOp]) -> None:
        self.workers, self.funcs = workers, funcs
        self.free = 0
        self.maker: dict[SSAValue, int] = {}

    def lane(self, grid: device.GridOp) -> int:
        """Where a grid begins."""
        tasks, call = prod(grid.dims), grid.body_op
        if tasks >= self.workers or not isinstance(call, device.CallOp):
            self.free, self.maker = 0, {}
            return 0
        func = self.funcs[call.kernel_name]
        made = [self.maker[v.buffer] for v in grid.views if v.buffer in self.maker]
        first = min(made, default=self.free)
        first = first if first + tasks <= self.workers else 0
        self.free = max(self.free, first + tasks)
        self.maker |= {v.buffer: first for i, v in enumerate(grid.views) if func.writes(i)}
        return first
