"""What the plan says of one grid: which of its boxes are whole, who is notified, how far slots go.

Emitted code is for all ranks and tasks at once. Where the plan shows that something holds for every
task that does anything (a box is as large as its view, a slot lies at its own rank), the code for
the other case is left out.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from xdsl.ir import SSAValue

from ditron.analysis.arrays import longs, spans
from ditron.analysis.grid_values import Grid, evaluate_grid
from ditron.ir import device
from ditron.plan.expr import Values as Longs
from ditron.plan.tables import Bools, Mode, Plan


@dataclass(frozen=True)
class GridFacts:
    """One grid and its rows in the plan; tasks [T] are those of all ranks.

    Attributes:
        op: its row in `Plan.ops`.
        lo, hi: [T, views, D], the clipped boxes.
        runs: [T], whether a task does anything besides waiting and notifying.
        masked: some task has a false `where`.
        empty: some task is not masked and has nothing to write.
    """

    plan: Plan
    op: int
    grid: Grid
    rank: Longs
    lo: Longs
    hi: Longs
    runs: Bools
    masked: bool
    empty: bool

    @staticmethod
    def of(plan: Plan, op: int, grid_op: device.GridOp, outer: dict[SSAValue, Longs]) -> GridFacts:
        """What is known of a grid, the `op`-th of the program."""
        grid = evaluate_grid(grid_op, plan.ranks, outer)
        tasks = plan.tasks_of(op)
        rank = longs(plan.tasks.rank)[tasks]
        end = np.searchsorted(plan.accesses.task, tasks, side="right")
        first = np.searchsorted(plan.accesses.task, tasks)
        rows = spans(first, end - first)
        views = len(rows) // max(len(tasks), 1)
        shape = (len(tasks), views, plan.accesses.lo.shape[1])
        lo, hi = plan.accesses.lo[rows].reshape(shape), plan.accesses.hi[rows].reshape(shape)
        writes = (plan.accesses.mode[rows].reshape(shape[:2]) & Mode.WRITE) != 0
        there = (hi > lo).all(axis=2)
        schedule = grid_op.schedule
        exists = np.ones(len(tasks), np.bool_)
        if schedule is not None:
            exists = grid.mask(schedule.where_args, schedule.where)
        writing = (there & writes).any(axis=1)
        return GridFacts(
            plan=plan,
            op=op,
            grid=grid,
            rank=rank,
            lo=lo,
            hi=hi,
            runs=exists & writing,
            masked=bool((~exists).any()),
            empty=bool((exists & ~writing).any()),
        )

    def sizes(self, view: int, dim: int) -> Longs:
        """Elements of a view along a dimension, for each task that runs."""
        box = (self.hi - self.lo)[self.runs, view]
        fold = self.plan.ops[self.op].fold(view)
        return box[:, dim] if fold is None else fold.sizes(box)[:, dim]

    def asked(self, view: device.ViewOp, dim: int) -> Longs:
        """What the view's size expression says, for each task that runs."""
        axis, step = axis_of(view, dim)
        return self.grid.of(view.size_args, view.sizes)[axis][self.runs] // step

    def rest(self, view: device.ViewOp, number: int, dim: int) -> Longs:
        """Elements from the view's offset to the end of its buffer, for each task that runs."""
        owner, (axis, step) = self.rank, axis_of(view, dim)
        if view.peer is not None:
            owner = self.grid.of(view.peer_args, view.peer)[0]
        row = int(self.plan.accesses.buffer[self._first_access() + number])
        extent = self.plan.buffers[row].extent[owner, axis]
        offset = self.grid.of(view.offset_args, view.offsets)[axis]
        return (extent - offset)[self.runs] // step

    def _first_access(self) -> int:
        task = int(np.searchsorted(self.plan.tasks.op, self.op))
        return int(np.searchsorted(self.plan.accesses.task, task))

    def own_slots(self, notify: device.Notify) -> bool:
        """Whether every notify of this op is to the notifier's own rank."""
        to = self.grid.of(notify.rank_args, notify.rank)[0]
        return bool((to == self.rank)[self.grid.mask(notify.when_args, notify.when)].all())

    def waited_counts(self, signals: int, lag: int) -> Longs:
        """The counts of the slots of one array that this grid waits for, each once."""
        waits = self.plan.waits
        mine = self.plan.tasks.op[waits.task] == self.op
        here = mine & (self.plan.slots.signals[waits.slot] == signals) & (waits.lag == lag)
        return np.unique(self.plan.slots.count[waits.slot[here]]).astype(np.int64)

    def set_counts(self, signals: int) -> Longs:
        """The counts of the slots of one array that this grid sets, each once."""
        notifies = self.plan.notifies
        mine = self.plan.tasks.op[notifies.task] == self.op
        here = mine & (self.plan.slots.signals[notifies.slot] == signals)
        return np.unique(self.plan.slots.count[notifies.slot[here]]).astype(np.int64)


def axis_of(view: device.ViewOp, dim: int) -> tuple[int, int]:
    """The dimension of a view's box that one of its own is part of, and how far it steps there."""
    fold = view.fold
    return (dim, 1) if fold is None else (fold.axes[dim], fold.steps()[dim])


def local_signals(plan: Plan, driven: Collection[str] = ()) -> list[bool]:
    """For each array of signals, whether only kernels of the rank that owns it raise and see it."""
    local = plan.slots.rank[plan.notifies.slot] == plan.tasks.rank[plan.notifies.task]
    kernels = np.array([op.engine not in driven for op in plan.ops], np.bool_)
    local &= kernels[plan.tasks.op[plan.notifies.task]]
    seen = plan.slots.signals[plan.waits.slot[~kernels[plan.tasks.op[plan.waits.task]]]]
    local &= ~np.isin(plan.slots.signals[plan.notifies.slot], seen)
    array = plan.slots.signals[plan.notifies.slot]
    return [bool(local[array == number].all()) for number in range(len(plan.signals))]


def ordered_signals(plan: Plan, driven: Collection[str] = ()) -> list[bool]:
    """For each array of signals, whether its waits are over before they begin, by the stream.

    A rank's grids that are no transfers run one after another. So nobody needs to raise, or to wait
    for, a slot that only earlier grids of the same rank raise.
    """
    copies = np.array([op.engine == "copy" for op in plan.ops], np.bool_)
    op, slots = longs(plan.tasks.op), len(plan.slots)
    raising, waiting = op[plan.notifies.task], op[plan.waits.task]
    last = np.full(slots, -1, np.int64)
    np.maximum.at(last, plan.notifies.slot, np.where(copies[raising], len(plan.ops), raising))
    ready = (last[plan.waits.slot] < waiting) | (plan.waits.lag > 0)
    ready &= ~copies[waiting] & (last[plan.waits.slot] < len(plan.ops))
    array = plan.slots.signals[plan.waits.slot]
    local = local_signals(plan, driven)
    return [local[number] and bool(ready[array == number].all()) for number in range(len(local))]
