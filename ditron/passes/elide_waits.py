"""elide-waits: drop waits that an earlier wait of the same static lane implies.

    device.grid @matmul engine sm in (%m = 8, %n = 4) { device.wait %ready[%m, 1] ge 1 ... } ->
    device.grid @matmul engine sm in (%m = 8, %n = 4) { device.wait %ready[%m, 1] ge 1 when %n eq 0
    ... }

Needs: lanes and signals. Ensures: on a static lane no task waits for what an earlier task of the
lane has waited for in the same launch. Source: the classical redundant synchronisation removal of
Midkiff and Padua (1987), on lanes instead of iterations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

from ditron.analysis.arrays import changes, longs, record_highs
from ditron.analysis.expand import expand
from ditron.analysis.symbols import device_program
from ditron.ir import device
from ditron.passes.signal_ops import GridSignals, WaitRows, grid_signals
from ditron.plan.tables import Bools, LaneOrder, Longs, Plan


@dataclass(frozen=True)
class ElideWaitsPass(ModulePass):
    """See the module's docstring."""

    name = "elide-waits"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        plan = expand(op)
        needed = needed_waits(plan)
        if not needed.all():
            _rewrite(device_program(op), plan, needed)


def needed_waits(plan: Plan) -> Bools:
    """For each wait, whether no earlier task of its static lane waited as far for the slot."""
    waits = plan.waits
    lane, seq = longs(plan.tasks.lane)[waits.task], longs(plan.tasks.seq)[waits.task]
    key = (lane, longs(waits.slot), longs(waits.lag))
    order = np.lexsort((-longs(waits.value), seq, *reversed(key)))
    run = changes(*(k[order] for k in key))
    grows = record_highs(run, longs(waits.value)[order])
    static = np.array([o is LaneOrder.STATIC for o in plan.lanes.order], np.bool_)
    needed = np.empty(len(order), np.bool_)
    needed[order] = grows | ~static[lane[order]]
    return needed


def _rewrite(program: device.ProgramOp, plan: Plan, needed: Bools) -> None:
    """Write the waits of every grid that loses some anew."""
    waits, ops = plan.waits, plan.tasks.op[plan.waits.task]
    first_task = np.searchsorted(plan.tasks.op, np.arange(len(plan.ops) + 1))
    arrays = [o.result for o in program.body.block.ops if isinstance(o, device.SignalsOp)]
    writers = grid_signals(program)
    for op, writer in enumerate(writers):
        if not (ops[~needed] == op).any():
            continue
        for child in list(writer.op.body.block.ops):
            if isinstance(child, device.Wait):
                child.detach()
                child.erase()
        mine = np.flatnonzero((ops == op) & needed)
        array = plan.slots.signals[waits.slot[mine]]
        kinds = {(int(a), int(lag)) for a, lag in zip(array, waits.lag[mine], strict=True)}
        for number, lag in sorted(kinds):
            rows = mine[(array == number) & (waits.lag[mine] == lag)]
            _add(writer, arrays[number], plan, rows, int(first_task[op]), lag)


def _add(
    writer: GridSignals,
    signals: SSAValue,
    plan: Plan,
    rows: Longs,
    first_task: int,
    lag: int,
) -> None:
    waits = plan.waits
    local = longs(waits.task[rows]) - first_task
    index = longs(plan.slots.index)[waits.slot[rows]]
    asked = WaitRows(local, index, longs(waits.value[rows]))
    writer.add_waits(signals, writer.wait_forms(asked), lag)
