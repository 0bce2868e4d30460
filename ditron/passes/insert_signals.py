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
`analysis/pairing.py` and turn of `analysis/turns.py` in each launch and from one launch to the
next, with slots as `analysis/slots.py` shares them; whoever overwrites waits only where no path of
data orders it, in the same launch or by a credit; nothing is ever reset. Tiles that `order-tiles`
lets start together (the first key of an order of several is the same) wait for each other's
transfers. Waits that repeat an earlier one of their lane still stand: `elide-waits` removes them.
Epoch separation follows, since whoever raises a slot again has first overwritten what its waiters
read, which is ordered; `verify-race-free` proves it.

With `whole-grids`, grids of a rank wait for each other as wholes (`passes/whole_events.py`), as a
persistent kernel wants them: one add a lane, one word to watch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

from ditron.analysis.expand import expand
from ditron.analysis.pairing import pair
from ditron.analysis.slot_plan import SlotArray, SlotPlan
from ditron.analysis.slots import needed, plan_slots, without_queues
from ditron.analysis.symbols import device_program
from ditron.errors import PlanError
from ditron.ir import device
from ditron.ir.locations import op_location
from ditron.passes.grids import Names
from ditron.passes.signal_ops import Forms, GridSignals, NotifyRows, WaitRows, grid_signals
from ditron.passes.whole_events import add_whole_events
from ditron.plan.machine import load_machine
from ditron.plan.order import Table
from ditron.plan.tables import Longs, Plan


@dataclass(frozen=True)
class InsertSignalsPass(ModulePass):
    """See the module's docstring; the machine says which engines can only set a slot."""

    name = "insert-signals"

    machine: str = "cpu"
    whole_grids: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        engines = load_machine(self.machine).engines
        program, plan = device_program(op), without_queues(expand(op, nominal=True))
        if plan.signals:
            raise PlanError("the program has signals already", op_location(program))
        setters = {i for i, o in enumerate(plan.ops) if not engines[o.engine].remote_add}
        writers = grid_signals(program)
        together = _together(plan, writers)
        pairing = needed(plan, pair(plan, last_of_lane=True))
        if self.whole_grids:
            pairing = add_whole_events(program, plan, pairing, writers)
        slots = plan_slots(plan, pairing, setters, together)
        _write(program, plan, slots, setters, writers)


def _together(plan: Plan, writers: list[GridSignals]) -> Longs:
    """A number for each task [T] that those share which start together, or -1."""
    together = np.full(len(plan.tasks), -1)
    for number, writer in enumerate(writers):
        keys = writer.together()
        if keys is not None:
            together[plan.tasks.op == number] = keys * len(writers) + number
    return np.where(together < 0, -1, together * plan.ranks + plan.tasks.rank)


def _write(
    program: device.ProgramOp,
    plan: Plan,
    slots: SlotPlan,
    setters: set[int],
    writers: list[GridSignals],
) -> None:
    names = Names()
    for whole in slots.arrays():
        arrays = [_numbered(slots, whole, writers)]
        if arrays[0].tables:
            parts = [_numbered(slots, part, writers) for part in slots.by_maker(whole)]
            arrays = min(arrays, parts, key=lambda some: sum(array.tables for array in some))
        for array in arrays:
            signals = _declare(program, array, names)
            for of, forms in array.waits:
                writers[of].add_waits(signals, forms, array.lag)
            for of, forms in array.notifies:
                verb = "set" if of in setters else "add"
                after = "put" if plan.ops[of].deferred else "end"
                writers[of].add_notifies(signals, forms, op=verb, after=after)


def _numbered(slots: SlotPlan, array: SlotArray, writers: list[GridSignals]) -> _Array:
    """The array with the first numbering that takes no tables, else with the one of the fewest."""
    ways: list[_Array] = []
    for number in slots.numberings(array):
        ways.append(_Array(slots, array, number, writers))
        if not ways[-1].tables:
            return ways[-1]
    return min(ways, key=lambda way: (way.tables, way.size))


class _Array:
    """One array of slots under a numbering, with the rows that each grid needs."""

    def __init__(
        self, slots: SlotPlan, array: SlotArray, number: Longs, writers: list[GridSignals]
    ) -> None:
        self.slots, self.writers = slots, writers
        self.op, self.lag, self.at, self.number = array.op, array.lag, array.slots, number
        self.size = int(number.max()) + 1

    @cached_property
    def tables(self) -> int:
        """How many tables stay because no closed form fits."""
        fitted = [f for _, some in (*self.waits, *self.notifies) for f in some]
        return sum(isinstance(form, Table) for forms in fitted for form in forms)

    @cached_property
    def waits(self) -> list[tuple[int, list[Forms]]]:
        """For each grid that waits for the array, the ops that takes."""
        found: list[tuple[int, list[Forms]]] = []
        slots, here = self.slots, self.slots.waits_of(self.at)
        for of, task, slot in self._by_op(slots.waiter[here], slots.waiter_slot[here]):
            rows = WaitRows(task, self._index(slot), slots.count[slot])
            found.append((of, self.writers[of].wait_forms(rows)))
        return found

    @cached_property
    def notifies(self) -> list[tuple[int, list[Forms]]]:
        """For each grid that notifies the array, the ops that takes."""
        found: list[tuple[int, list[Forms]]] = []
        slots, here = self.slots, self.slots.events_of(self.at)
        for of, task, slot in self._by_op(slots.event[here], slots.event_slot[here]):
            rows = NotifyRows(task, self._index(slot), slots.rank[slot])
            found.append((of, self.writers[of].notify_forms(rows)))
        return found

    def _index(self, slot: Longs) -> Longs:
        return self.number[np.searchsorted(self.at, slot)]

    def _by_op(self, task: Longs, slot: Longs) -> Iterator[tuple[int, Longs, Longs]]:
        """(op, task within the op, slot) for each op of some rows."""
        ops = self.slots.plan.tasks.op
        mine = ops[task]
        used: list[int] = np.unique(mine).tolist()
        for of in used:
            rows = np.flatnonzero(mine == of)
            yield of, task[rows] - int(np.searchsorted(ops, of)), slot[rows]


def _declare(program: device.ProgramOp, array: _Array, names: Names) -> SSAValue:
    maker, first = array.writers[array.op].op, array.writers[0].op
    verb = "free" if array.lag else "ready"
    name = names.fresh(f"{maker.sym_name.data}_{verb}")
    signals = device.SignalsOp(name, array.size)
    signals.location = maker.location
    program.body.block.insert_op_before(signals, first)
    return signals.result
