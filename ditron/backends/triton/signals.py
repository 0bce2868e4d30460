"""Waits and notifies of a grid's tasks, as calls of `library/`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from xdsl.ir import Block, SSAValue

from ditron.backends.triton.expressions import LEVELS, condition, number, operand
from ditron.backends.triton.facts import GridFacts
from ditron.backends.triton.names import Code, Names
from ditron.backends.triton.order import lane_order
from ditron.backends.triton.parameters import IndexValues, Parameters
from ditron.backends.triton.targets import Target
from ditron.ir import core, device
from ditron.ir.index import leaves
from ditron.plan.expr import Const, Expr
from ditron.plan.expr import Values as Longs
from ditron.plan.tables import Ints, Plan
from ditron.runtime.gpu_program import SLOT_WORDS, Site


@dataclass
class Module:
    """What the kernels of one program share."""

    program: device.ProgramOp
    funcs: dict[str, core.FuncOp]
    plan: Plan
    target: Target
    outer: dict[SSAValue, Longs]
    local: list[bool]  # by array of signals: only its own rank raises a slot
    tables: dict[str, Ints]
    sites: list[Site]
    functions: Names
    # By array of signals: the order of a stream does what it is for.
    ordered: list[bool] = field(default_factory=list[bool])
    # Tasks write down when they begin and end.
    stamps: bool = False

    def signals_row(self, signals: SSAValue) -> int:
        """The row of an array of signals in the plan."""
        owner = signals.owner
        assert isinstance(owner, device.SignalsOp)
        return self.plan.signals.index(owner.label)


class SignalCode:
    """One kernel in the making, and the part of its code that waits and notifies."""

    # The lane that runs.
    lane = "tl.program_id(0)"

    def __init__(self, module: Module, grid: device.GridOp, op: int) -> None:
        self.module, self.grid, self.op = module, grid, op
        self.plan = module.plan
        self.name = module.functions.fresh(grid.label)
        self.names = Names()
        self.parameters = Parameters(self.names)
        self.values = IndexValues(
            module.program, module.outer, grid, self.parameters, module.tables
        )
        self.facts = GridFacts.of(module.plan, op, grid, module.outer)
        self.order = lane_order(module.plan, op)
        self.code = Code()
        self.reads_epoch = self.reads_age = False
        self.always: list[int] = []
        ops = grid.body.block.ops
        self.waits = [o for o in ops if isinstance(o, device.Wait) and self._matters(o)]
        self.notifies = [o for o in ops if isinstance(o, device.Notify) and self._matters(o)]
        self.waits_first = all(map(self._is_lanes, self.waits))
        self.notifies_last = all(map(self._is_lanes, self.notifies))

    def _matters(self, op: device.Wait | device.Notify) -> bool:
        ordered = self.module.ordered
        return not ordered or not ordered[self.module.signals_row(op.signals)]

    def _is_lanes(self, op: device.Wait | device.Notify) -> bool:
        """Whether each lane does it once: waits before its first task, notifies after its last."""
        tasks, lanes = self.order.tasks, self.order.lanes
        if self.order.order is not None:
            return False
        told = op.rank_args if isinstance(op, device.Notify) else op.value_args
        if any(self._is_of_grid(arg) for arg in (*op.args, *told)):
            return False
        place = np.tile(np.arange(tasks), self.plan.ranks)
        end = place < lanes if isinstance(op, device.Wait) else place >= tasks - lanes
        return bool((self.facts.grid.mask(op.when_args, op.when) == end).all())

    def _is_of_grid(self, value: SSAValue) -> bool:
        """Whether tasks of the grid differ in a value, or may."""
        owner = value.owner
        block = owner if isinstance(owner, Block) else owner.parent
        return block is self.grid.body.block

    def _site(self, signals: str, scope: str, *, waits: bool) -> int:
        self.module.sites.append(Site(self.op, signals, waits, scope))
        return len(self.module.sites) - 1

    def sites(self, *, waits: bool) -> tuple[int, ...]:
        mine = enumerate(self.module.sites)
        return tuple(i for i, s in mine if s.op == self.op and s.waits == waits)

    def write_waits(self) -> None:
        if not self.waits:
            return
        plain = len(self.waits) == 1 and self._plain(self.waits[0])
        if not plain:
            self.code("token = 0")
        for wait in self.waits:
            self._wait(wait, "=" if plain else "+=")

    def _plain(self, wait: device.Wait) -> bool:
        many = leaves(wait.args, wait.at)[1]
        always = wait.when is None or self.waits_first
        return many == Const(1) and always and not wait.launches_back

    def _wait(self, wait: device.Wait, assign: str) -> None:
        first, many = leaves(wait.args, wait.at)
        name = _signals_name(wait.signals)
        row = self.module.signals_row(wait.signals)
        terms: list[str] = []
        if wait.launches_back:
            self.reads_age = True
            terms.append(f"age >= {wait.launches_back}")
        if wait.when is not None and not self.waits_first:
            terms.append(condition(leaves(wait.when_args, wait.when)[0], self.values))
        self.code.note(_wait_text(wait, name))
        depth = self.code.depth
        if terms:
            self.branch(terms)
        slot = number(first, self.values)
        if many != Const(1):
            slot = self.names.fresh("slot")
            end = number(first + many, self.values)
            self.code(f"for {slot} in range({number(first, self.values)}, {end}):")
            self.code.depth += 1
        scope = "gpu" if self.module.local[row] else "sys"
        site = self._site(name, scope, waits=True)
        if not terms and many == Const(1):
            self.always.append(site)
        pointer = _offset(self.parameters.signals(name), slot, SLOT_WORDS)
        want = self._want(wait, row, slot)
        task = self.lane if self.waits_first else "task"
        at = f"{self.task_number(task)}, {self.site_number(site)}"
        self.code(
            f'token {assign} wait({self.parameters.control()}, {pointer}, {want}, {at}, "{scope}")'
        )
        self.code.depth = depth

    def write_stamp(self, moment: str) -> None:
        """Write down when a task begins, its waits over, or ends, before it notifies."""
        if self.module.stamps:
            stamps = self.parameters.stamps(self.grid.label)
            self.code(f"stamp({stamps}, {self.task_number('task')}, {moment})")

    def branch(self, terms: Sequence[str]) -> None:
        many = len(terms) > 1
        text = " & ".join(f"({t})" if many else t for t in terms)
        self.code(f"if {text}:")
        self.code.depth += 1

    def _want(self, wait: device.Wait, row: int, slot: str) -> str:
        """The word that a wait waits for: q(e - lag) x count + value."""
        self.reads_epoch = True
        counts = self.facts.waited_counts(row, wait.launches_back)
        value = leaves(wait.value_args, wait.value)[0]
        epoch = f"(done - {wait.launches_back})" if wait.launches_back else "done"
        if len(counts) > 1:
            times = f" * {self._count_of(row, slot)}"
        else:
            count = int(counts[0]) if len(counts) else 1
            times = "" if count == 1 else f" * {count}"
        return f"{epoch}{times} + {operand(value, self.values, LEVELS['+'])}"

    def _count_of(self, row: int, slot: str) -> str:
        """Increments a launch of a slot of this rank, where slots of one array differ."""
        name = self.plan.signals[row]
        mine = self.plan.slots.signals == row
        key = f"{name}.count"
        table = self.plan.slots.count[mine].reshape(self.plan.ranks, -1)
        self.module.tables[key] = table
        pointer = self.parameters.table(f"{name}_count", key)
        me = self.values.use(self.rank_value())
        return f"tl.load({pointer} + {me} * {table.shape[1]} + {slot})"

    def write_notifies(self) -> None:
        for notify in self.notifies:
            self._notify(notify)

    def _notify(self, notify: device.Notify) -> None:
        name = _signals_name(notify.signals)
        row = self.module.signals_row(notify.signals)
        depth = self.code.depth
        self.code.note(_notify_text(notify, name))
        if notify.when is not None and not self.notifies_last:
            self.branch([condition(leaves(notify.when_args, notify.when)[0], self.values)])
        slot = number(leaves(notify.args, notify.at)[0], self.values)
        if self.facts.own_slots(notify):
            base = self.parameters.signals(name)
        else:
            rank = leaves(notify.rank_args, notify.rank)[0]
            at = self.parameters.signals_at(name)
            base = self.peer_pointer(at, rank, "tl.int32")
        scope = "gpu" if self.module.local[row] else "sys"
        amount = notify.amount.value.data
        word = _offset(base, slot, SLOT_WORDS)
        site = self.site_number(self._site(name, scope, waits=False))
        if notify.op.data == "add":
            self.code(f'notify({word}, {amount}, {site}, "{scope}")')
        else:
            (count,) = self.facts.set_counts(row)
            self.reads_epoch = True
            times = "done" if count == 1 else f"done * {count}"
            self.code(f'notify_set({word}, {times} + {amount}, {site}, "{scope}")')
        self.code.depth = depth

    def task_number(self, task: str) -> str:
        """What a wait calls its task in reports: its number among those of its op on the rank."""
        return "0" if self.order.tasks == 1 else task

    def site_number(self, site: int) -> str:
        """A site's number, as code."""
        return str(site)

    def peer_pointer(self, table: str, rank: Expr, type_: str) -> str:
        """What a rank's entry in a table of addresses points to."""
        at = number(rank, self.values)
        place = table if at == "0" else f"{table} + {at}"
        return f"tl.load({place}).to(tl.pointer_type({type_}))"

    def rank_value(self) -> SSAValue:
        ops = self.module.program.body.block.ops
        return next(o.result for o in ops if isinstance(o, device.RankOp))


def _offset(base: str, index: str, words: int) -> str:
    if index.isdigit():
        return base if index == "0" else f"{base} + {int(index) * words}"
    atom = index if index.isidentifier() else f"({index})"
    return f"{base} + {atom} * {words}"


def _signals_name(signals: SSAValue) -> str:
    owner = signals.owner
    assert isinstance(owner, device.SignalsOp)
    return owner.label


def _wait_text(wait: device.Wait, name: str) -> str:
    lag = wait.launches_back
    return f"wait for {name}" + (f" of {lag} launch{'es' if lag > 1 else ''} ago" if lag else "")


def _notify_text(notify: device.Notify, name: str) -> str:
    return f"{notify.op.data} {notify.amount.value.data} to {name}"
