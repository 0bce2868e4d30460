"""insert-signals: order every pair of tasks whose boxes meet, with counters.

    device.grid @xg_push engine copy in (...) { ... device.put ... }
    device.grid @matmul engine sm in (...) { ... device.call ... }
    ->
    %matmul_ready = device.signals "matmul_ready" : !device.signals<8>
    %xg_push_free = device.signals "xg_push_free" : !device.signals<1>
    device.grid @xg_push engine copy in (...) {
      device.wait %xg_push_free[0, 1] ge 3 lag 1 when ...
      device.put ...
      device.notify %matmul_ready[%me * 2 + %c] at %peer add 1 after put
    }
    device.grid @matmul engine sm in (...) {
      device.wait %matmul_ready[%p * 2 + %m, 1] ge 1
      device.call ...
      device.notify %xg_push_free[0] at ... add 1 after end when ...
    }

Needs: lanes (`schedule-tasks`) and planned memory. Ensures: the plan orders every pair of
`analysis/pairing.py` in each launch and from one launch to the next, with slots as
`analysis/slots.py` shares them; nothing is ever reset. Waits that repeat an earlier one of their
lane still stand: `elide-waits` removes them. Epoch separation follows from the credits, since
whoever raises a slot again has first overwritten, under credit, what its waiters read;
`verify-race-free` proves it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

from ditron.analysis.expand import expand
from ditron.analysis.pairing import pair
from ditron.analysis.slots import SlotPlan, SlotUse, plan_slots
from ditron.analysis.symbols import device_program
from ditron.errors import PlanError
from ditron.ir import device
from ditron.ir.locations import op_location
from ditron.passes.signal_ops import GridSignals, NotifyRows, WaitRows, grid_signals, grids_of
from ditron.plan.machine import load_machine
from ditron.plan.order import Table
from ditron.plan.tables import Longs, Plan


@dataclass(frozen=True)
class InsertSignalsPass(ModulePass):
    """See the module's docstring; the machine says which engines can only set a slot."""

    name = "insert-signals"

    machine: str = "cpu"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        engines = load_machine(self.machine).engines
        program, plan = device_program(op), expand(op)
        if plan.signals:
            raise PlanError("the program has signals already", op_location(program))
        setters = {i for i, o in enumerate(plan.ops) if not engines[o.engine].remote_add}
        _write(program, plan, plan_slots(plan, pair(plan), setters), setters)


def _write(program: device.ProgramOp, plan: Plan, slots: SlotPlan, setters: set[int]) -> None:
    writers = grid_signals(program)
    for number, (op, lag) in enumerate(slots.arrays):
        array = _Array(plan, slots, number, writers)
        index = min(slots.numberings, key=array.cost)
        signals = _declare(program, plan.ops[op].name, array.size(index), lag)
        for of, rows in array.waits(index):
            writers[of].add_waits(signals, rows, lag)
        for of, rows in array.notifies(index):
            verb = "set" if of in setters else "add"
            after = "put" if plan.ops[of].deferred else "end"
            writers[of].add_notifies(signals, rows, op=verb, after=after)


@dataclass(frozen=True)
class _Array:
    """One array of slots, with the rows that each grid needs under a numbering."""

    plan: Plan
    slots: SlotPlan
    number: int
    writers: list[GridSignals]

    def size(self, index: Longs) -> int:
        return int(index[self.slots.array == self.number].max()) + 1

    def cost(self, index: Longs) -> tuple[int, int]:
        """Tables that stay where no closed form fits, then words."""
        fitted = [
            form
            for of, rows in self.waits(index)
            for forms in self.writers[of].wait_forms(rows)
            for form in forms
        ]
        fitted += [
            form
            for of, rows in self.notifies(index)
            for forms in self.writers[of].notify_forms(rows)
            for form in forms
        ]
        return sum(isinstance(form, Table) for form in fitted), self.size(index)

    def waits(self, index: Longs) -> Iterator[tuple[int, WaitRows]]:
        for of, task, slot in self._by_op(self.slots.waits):
            yield of, WaitRows(task, index[slot], self.slots.count[slot])

    def notifies(self, index: Longs) -> Iterator[tuple[int, NotifyRows]]:
        for of, task, slot in self._by_op(self.slots.notifies):
            yield of, NotifyRows(task, index[slot], self.slots.rank[slot])

    def _by_op(self, use: SlotUse) -> Iterator[tuple[int, Longs, Longs]]:
        """(op, task within the op, slot) for each op that uses the array."""
        tasks = self.plan.tasks
        here = np.flatnonzero(self.slots.array[use.slot] == self.number)
        op = tasks.op[use.task[here]]
        for of in range(len(self.plan.ops)):
            rows = here[op == of]
            if not len(rows):
                continue
            first_task = int(np.searchsorted(tasks.op, of))
            yield of, use.task[rows] - first_task, use.slot[rows]


def _declare(program: device.ProgramOp, waiter: str, size: int, lag: int) -> SSAValue:
    grid = grids_of(program)[0]
    signals = device.SignalsOp(f"{waiter}_{'free' if lag else 'ready'}", size)
    signals.location = grid.location
    program.body.block.insert_op_before(signals, grid)
    return signals.result
