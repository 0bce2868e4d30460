"""Write waits and notifies into grids from tables that say what each task does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np
from xdsl.dialects.builtin import DenseIntElementsAttr, TensorType, i32
from xdsl.ir import Operation, SSAValue

from ditron.analysis.arrays import changes
from ditron.analysis.grid_values import Grid, evaluate_grid, evaluate_program
from ditron.ir import device
from ditron.ir.index import Ssa
from ditron.plan.expr import Arg, Const, Expr, remap
from ditron.plan.order import Feature, Table, fit, fit_mask
from ditron.plan.tables import Bools, Longs


@dataclass(frozen=True)
class WaitRows:
    """For tasks of one grid: wait for `slot` of an array to reach `value`."""

    task: Longs
    slot: Longs
    value: Longs


@dataclass(frozen=True)
class NotifyRows:
    """For tasks of one grid: raise `slot` of an array at `rank`."""

    task: Longs
    slot: Longs
    rank: Longs


Forms = list[Expr | Table]
"""The operands of one wait or notify op of a grid, over its numbered values."""

Fitted = dict[bytes, list[Forms]]
"""Forms by what they were asked for: grids of like layers ask for the same."""


class GridSignals:
    """Writes waits and notifies into one grid; tasks are numbered within the grid.

    Forms are over numbers for the grid's own values (`Arg(i)` is `values[i]`: rank, coordinates,
    then index arithmetic), so that they serve every grid that is alike.
    """

    def __init__(
        self, op: device.GridOp, ranks: int, outer: Mapping[SSAValue, Longs], fitted: Fitted
    ) -> None:
        self.op, self.ranks, self._fitted = op, ranks, fitted
        self.grid: Grid = evaluate_grid(op, ranks, outer)
        rank = [v for v in outer if isinstance(v.owner, device.RankOp)]
        self.values = [*rank, *op.body.block.args]
        self.features = [Feature(Arg(i), self._spread(v)) for i, v in enumerate(self.values)]
        for child in op.body.block.ops:
            if isinstance(child, device.IndexOp):
                self.features.append(Feature(self._arg(child.result), self._spread(child.result)))
            if isinstance(child, device.ScheduleOp) and child.order is not None:
                args = [self._arg(a) for a in child.order_args]
                keys = self.grid.of(child.order_args, child.order)
                for expr, key in zip(child.order.data, keys, strict=True):
                    self.features.append(Feature(remap(expr, args), key.reshape(self.grid.shape)))

    def _arg(self, value: SSAValue) -> Arg:
        if value not in self.values:
            self.values.append(value)
        return Arg(self.values.index(value))

    def _spread(self, value: SSAValue) -> Longs:
        return np.broadcast_to(self.grid.values[value], self.grid.shape)

    @cached_property
    def _features_key(self) -> bytes:
        parts = (f"{f.expr} {self.grid.shape}".encode() + f.values.tobytes() for f in self.features)
        return blake2b(b"".join(parts), digest_size=16).digest()

    def _once(self, make: Callable[..., Iterator[Forms]], *rows: Longs) -> list[Forms]:
        asked = [make.__name__.encode(), self._features_key, *(column.tobytes() for column in rows)]
        key = blake2b(b"".join(asked), digest_size=16).digest()
        if key not in self._fitted:
            self._fitted[key] = list(make(*rows))
        return self._fitted[key]

    def add_waits(self, signals: SSAValue, forms: Sequence[Forms], lag: int) -> None:
        """Waits on one array: as few ops as tasks have runs of neighbouring slots."""
        for fitted in forms:
            when, first, many, value = map(self._materialise, fitted)
            wait = device.WaitOp(signals, first, many, value, lag=lag, when=_unless_always(when))
            self._insert(wait, self.op.body_op)

    def wait_forms(self, rows: WaitRows) -> list[Forms]:
        """When, first slot, slots and value of each wait op that the rows take."""
        order = np.lexsort((rows.slot, rows.task))
        return self._once(self._wait_forms, rows.task[order], rows.slot[order], rows.value[order])

    def _wait_forms(self, *rows: Longs) -> Iterator[Forms]:
        for task, *columns in _runs(*rows):
            mask = self._mask(task)
            yield [fit_mask(mask, self.features), *(self._fit(task, c, mask) for c in columns)]

    def add_notifies(
        self, signals: SSAValue, forms: Sequence[Forms], *, op: str = "add", after: str = "end"
    ) -> None:
        """Notifies on one array: as many ops as a task notifies slots, next rank first."""
        for fitted in forms:
            when, at, to = map(self._materialise, fitted)
            notify = device.NotifyOp(signals, at, to, op=op, after=after, when=_unless_always(when))
            notify.location = self.op.location
            self.op.body.block.add_op(notify)

    def notify_forms(self, rows: NotifyRows) -> list[Forms]:
        """When, slot and rank of each notify op that the rows take."""
        own = rows.task // max(self.grid.tasks // self.ranks, 1)
        order = np.lexsort((rows.slot, (rows.rank - own) % self.ranks, rows.task))
        return self._once(self._notify_forms, rows.task[order], rows.slot[order], rows.rank[order])

    def _notify_forms(self, task: Longs, slot: Longs, rank: Longs) -> Iterator[Forms]:
        for part in _layers(task):
            mask = self._mask(task[part])
            columns = (self._fit(task[part], c[part], mask) for c in (slot, rank))
            yield [fit_mask(mask, self.features), *columns]

    def order_by(self, keys: Sequence[Longs]) -> None:
        """Run the grid's tasks by increasing keys, each given a task."""
        everywhere = np.ones(self.grid.shape, np.bool_)
        fitted = [fit(k.reshape(self.grid.shape), everywhere, self.features) for k in keys]
        set_schedule(self.op, order=[self._materialise(f) for f in fitted])

    def deal(self, lanes: Longs) -> None:
        """Give each task a lane."""
        everywhere = np.ones(self.grid.shape, np.bool_)
        fitted = fit(lanes.reshape(self.grid.shape), everywhere, [*self.features, self._place()])
        set_schedule(self.op, lane=self._materialise(fitted))

    def together(self) -> Longs | None:
        """For each task, what it starts together with: the first key of an order of several."""
        schedule = self.op.schedule
        if schedule is None or schedule.order is None or len(schedule.order.data) < 2:
            return None
        return self.grid.of(schedule.order_args, schedule.order)[0]

    def place(self) -> Expr:
        """A task's place in the order of its rank's, if that has a form, else in the grid."""
        return self._materialise(self._place().expr)

    def _place(self) -> Feature:
        schedule = self.op.schedule
        expr, total = Const(0), 1
        for arg, bound in zip(
            reversed(self.op.body.block.args), reversed(self.op.dims), strict=True
        ):
            expr = self._arg(arg) * total + expr
            total *= bound
        grid = Feature(
            expr, np.broadcast_to(np.arange(total).reshape(self.op.dims), self.grid.shape)
        )
        if schedule is None or schedule.order is None:
            return grid
        keys = [
            k.reshape(self.ranks, -1) for k in self.grid.of(schedule.order_args, schedule.order)
        ]
        order = np.lexsort(
            [np.broadcast_to(np.arange(keys[0].shape[1]), keys[0].shape), *keys[::-1]]
        )
        place = np.argsort(order, axis=-1).reshape(self.grid.shape)
        fitted = fit(place, np.ones(self.grid.shape, np.bool_), self.features)
        return Feature(fitted, place) if isinstance(fitted, Expr) else grid

    def _mask(self, task: Longs) -> Bools:
        mask = np.zeros(self.grid.tasks, np.bool_)
        mask[task] = True
        return mask.reshape(self.grid.shape)

    def _fit(self, task: Longs, values: Longs, mask: Bools) -> Expr | Table:
        table = np.zeros(self.grid.tasks, np.int64)
        table[task] = values
        return fit(table.reshape(self.grid.shape), mask, self.features)

    def _materialise(self, fitted: Expr | Table) -> Expr:
        if isinstance(fitted, Expr):
            return remap(fitted, [Ssa(v) for v in self.values])
        shape = TensorType(i32, fitted.values.shape)
        values = DenseIntElementsAttr.from_list(shape, fitted.values.reshape(-1).tolist())
        table = device.TableOp(values, [Ssa(self.values[a]) for a in fitted.axes])
        self._insert(table, self._first_clause())
        return Ssa(table.result)

    def _first_clause(self) -> Operation:
        """The first op after the grid's index arithmetic."""
        stages = (device.ScheduleOp, device.Wait, device.BodyOp)
        return next(o for o in self.op.body.block.ops if isinstance(o, stages))

    def _insert(self, op: Operation, before: Operation) -> None:
        op.location = self.op.location
        self.op.body.block.insert_op_before(op, before)


def _unless_always(when: Expr) -> Expr | None:
    return None if when == Const(1) else when


def set_schedule(
    grid: device.GridOp, *, lane: Expr | None = None, order: Sequence[Expr] | None = None
) -> None:
    """Change the lane or the order keys of a grid."""
    old = grid.schedule
    was_lane, was_order, where = (None, [], None) if old is None else old.parts()
    new = device.ScheduleOp(lane if lane is not None else was_lane, order or was_order, where)
    new.location = grid.location
    if old is not None:
        grid.body.block.insert_op_before(new, old)
        old.detach()
        old.erase()
        return
    later = (device.Wait, device.BodyOp)
    grid.body.block.insert_op_before(
        new, next(o for o in grid.body.block.ops if isinstance(o, later))
    )


def grids_of(program: device.ProgramOp) -> list[device.GridOp]:
    """The grids in program order; their numbers are the plan's op numbers."""
    return [op for op in program.body.block.ops if isinstance(op, device.GridOp)]


def grid_signals(program: device.ProgramOp) -> list[GridSignals]:
    """A writer for each grid of a program."""
    outer, fitted = evaluate_program(program), Fitted()
    return [GridSignals(grid, program.n, outer, fitted) for grid in grids_of(program)]


def _runs(task: Longs, slot: Longs, value: Longs) -> Iterator[tuple[Longs, Longs, Longs, Longs]]:
    """(task, first slot, slots, value) of each task's first, second, ... run of slots.

    Rows are sorted by task, then slot.
    """
    start = changes(task, value, slot - np.arange(len(slot)))
    at = np.flatnonzero(start)
    many = np.diff(np.append(at, len(task)))
    for part in _layers(task[at]):
        yield task[at][part], slot[at][part], many[part], value[at][part]


def _layers(task: Longs) -> Iterator[Longs]:
    """Rows of the first entry of each task, of the second, ...; `task` is sorted."""
    start = np.flatnonzero(changes(task))
    place = np.arange(len(task)) - np.repeat(start, np.diff(np.append(start, len(task))))
    for layer in range(int(place.max(initial=-1)) + 1):
        yield np.flatnonzero(place == layer)
