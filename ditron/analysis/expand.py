"""Expand a device program into a plan: every task of every rank, as numpy tables.

Each index expression is evaluated once over (rank x grid), broadcasting, so that a million tasks
cost a few vectorised operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from ditron.analysis.grid_values import Grid, check_range, evaluate_grid, evaluate_program
from ditron.analysis.kernel_dims import SharedDim, shared_dims
from ditron.analysis.kernel_work import elements, flops
from ditron.analysis.plan_rows import (
    LaneOfOp,
    Rows,
    access_table,
    argument_table,
    lane_tables,
    moved_slots,
    slot_table,
)
from ditron.analysis.symbols import device_program, kernels
from ditron.errors import PlanError
from ditron.ir import core, device, shmem
from ditron.ir.locations import op_location
from ditron.ir.sameness import said
from ditron.plan.expr import Values, evaluate
from ditron.plan.fold import Fold
from ditron.plan.limits import MAX_TASKS
from ditron.plan.tables import (
    DTYPE_BYTES,
    After,
    Bools,
    Boundary,
    Buffer,
    Memory,
    Mode,
    Notifies,
    NotifyOp,
    Op,
    OpKind,
    Plan,
    Role,
    Waits,
)

BODY_KINDS: dict[type[Operation], OpKind] = {
    device.PutOp: OpKind.PUT,
    device.GetOp: OpKind.GET,
    shmem.PutmemOp: OpKind.PUT,
    shmem.GetmemOp: OpKind.GET,
    device.CopyOp: OpKind.COPY,
    device.CallOp: OpKind.CALL,
    device.AcquireOp: OpKind.ACQUIRE,
    device.ReleaseOp: OpKind.RELEASE,
}


def expand(module: ModuleOp, *, nominal: bool = False) -> Plan:
    """The plan of the device program in a module.

    A nominal plan takes every rank's extents for full (the capacity). What must follow what there
    holds for all sizes, so that signals do not depend on sizes: it is what passes plan with.

    Raises:
        PlanError: a slot, peer or table index out of range, or a box larger than its view.
    """
    return _Expansion(device_program(module), kernels(module), nominal=nominal).plan()


@dataclass(frozen=True)
class _Seen:
    """A grid that was evaluated: its first task, what it used, and its rows."""

    count: int
    used: list[SSAValue]
    lane: LaneOfOp
    rows: list[dict[str, list[Values]]]


class _Expansion:
    def __init__(
        self, program: device.ProgramOp, funcs: Mapping[str, core.FuncOp], *, nominal: bool
    ) -> None:
        self.program, self.nominal = program, nominal
        self.funcs = funcs
        self.ranks = program.n
        self.outer = evaluate_program(program)
        self.buffers: dict[SSAValue, int] = {}
        self.extents: list[Values] = []
        self.records: list[Buffer] = []
        self.signals: dict[SSAValue, int] = {}
        self.signal_names: list[str] = []
        self.slot_base: list[int] = []
        self.slot_sizes: list[int] = []
        self.ops: list[Op] = []
        self.lanes: list[LaneOfOp] = []
        self.tasks, self.accesses = Rows(), Rows()
        self.waits, self.notifies, self.arguments = Rows(), Rows(), Rows()
        self.count = 0
        self.buffer_keys: dict[SSAValue, object] = {}
        self.seen: dict[object, _Seen] = {}

    def plan(self) -> Plan:
        for op in self.program.body.block.ops:
            try:
                self._op(op)
            except PlanError as error:
                raise PlanError(error.message, error.where or op_location(op)) from error
        return self._finish()

    def _op(self, op: Operation) -> None:
        match op:
            case device.BufferOp():
                self._buffer(op)
            case device.SignalsOp():
                self._signals(op)
            case device.GridOp():
                self._grid(op)
            case device.CollectiveOp():
                raise PlanError(
                    f"{op.kind.data} is not decomposed yet: run decompose-collectives first"
                )
            case _:
                return

    def _buffer(self, op: device.BufferOp) -> None:
        type_ = op.result.type
        env = [self.outer[a] for a in op.args]
        sizes = [np.broadcast_to(evaluate(e, env), self.ranks) for e in op.extent.data]
        extent = np.stack(sizes, axis=1).astype(np.int64)
        if (extent < 0).any() or (extent > np.array(type_.dims)).any():
            raise PlanError(f"a size of {op.buffer_name.data} is over {type_}", op_location(op))
        if self.nominal:
            extent = np.tile(np.array(type_.dims, np.int64), (self.ranks, 1))
        self.buffers[op.result] = len(self.records)
        self.buffer_keys[op.result] = (type_, extent.tobytes())
        self.extents.append(extent)
        self.records.append(
            Buffer(
                op.buffer_name.data,
                type_.dtype,
                type_.dims,
                extent,
                Memory(type_.memory.data),
                Role(op.role.data),
                -1 if op.offset is None else op.offset.value.data,
            )
        )

    def _signals(self, op: device.SignalsOp) -> None:
        self.signals[op.result] = len(self.signal_names)
        self.signal_names.append(op.signals_name.data)
        self.slot_base.append(sum(self.slot_sizes) * self.ranks)
        self.slot_sizes.append(op.result.type.size.data)
        if sum(self.slot_sizes) * self.ranks > MAX_TASKS:
            raise PlanError(f"a plan has at most {MAX_TASKS} signal slots on all ranks")

    def _grid(self, op: device.GridOp) -> None:
        """Layers of a model are alike: what a grid says is evaluated once, whatever it is of."""
        used: list[SSAValue] = []
        key = self._said(op, used)
        seen, tables = self.seen.get(key), self._tables
        self._op_record(op)
        if seen is not None:
            self._again(op, seen, used)
            return
        count, marks = self.count, [table.mark() for table in tables]
        self._evaluate(op)
        rows = [table.since(mark) for table, mark in zip(tables, marks, strict=True)]
        self.seen[key] = _Seen(count, used, self.lanes[-1], rows)

    @property
    def _tables(self) -> list[Rows]:
        return [self.tasks, self.accesses, self.arguments, self.waits, self.notifies]

    def _said(self, grid: device.GridOp, used: list[SSAValue]) -> object:
        """What a grid says, with the buffers and signals that it is of by number, as in `used`."""

        def outside(value: SSAValue) -> object:
            kind = self.buffer_keys.get(value)
            if kind is None and not isinstance(value.type, device.SignalsType):
                return value
            used.append(value)
            return len(used), kind or value.type

        return grid.engine, grid.bounds, grid.queue, said(grid.body.block, outside)

    def _again(self, grid: device.GridOp, seen: _Seen, used: Sequence[SSAValue]) -> None:
        """The rows of a grid that says what another does, of other buffers and signals."""
        later, new = self.count - seen.count, dict(zip(seen.used, used, strict=True))
        buffers = {self.buffers[a]: self.buffers[b] for a, b in new.items() if a in self.buffers}
        further = {
            self.slot_base[self.signals[a]]: self.slot_base[self.signals[b]]
            for a, b in new.items()
            if a in self.signals
        }
        for table, rows in zip(self._tables, seen.rows, strict=True):
            for name, parts in rows.items():
                if name == "op" and table is self.tasks:
                    parts = [np.full_like(part, len(self.ops) - 1) for part in parts]
                elif name == "task":
                    parts = [part + later for part in parts]
                elif name == "buffer":
                    parts = [np.full_like(p, buffers[int(p[0])]) if len(p) else p for p in parts]
                elif name == "slot":
                    parts = [moved_slots(part, further) for part in parts]
                table.columns.setdefault(name, []).extend(parts)
        self.lanes.append(seen.lane)
        self.count += len(seen.rows[0]["op"][0])

    def _op_record(self, op: device.GridOp) -> None:
        body = op.body_op
        kind = BODY_KINDS[type(body)]
        kernel = body.kernel_name if isinstance(body, device.CallOp) else ""
        engine = op.engine.data
        deferred = engine == "copy" and kind in (OpKind.PUT, OpKind.GET)
        where = op_location(op)
        folds = tuple(view.fold for view in op.views)
        folds = folds if any(folds) else ()
        self.ops.append(Op(op.sym_name.data, kind, engine, kernel, where, deferred, folds))

    def _evaluate(self, op: device.GridOp) -> None:
        grid, body = evaluate_grid(op, self.ranks, self.outer), op.body_op
        rank = np.repeat(np.arange(self.ranks), grid.tasks // self.ranks)
        exists = self._schedule(grid, rank)
        for part in self._grid_accesses(grid, rank, exists):
            self.accesses.add(**part)
        if isinstance(body, device.CallOp) and body.indices is not None:
            for value in grid.of(body.args, body.indices):
                tasks = self.count + np.arange(grid.tasks)
                self.arguments.add(task=tasks, value=np.where(exists, value, 0))
        for child in op.body.block.ops:
            if isinstance(child, device.Wait):
                self._wait(child, grid, rank)
            elif isinstance(child, device.Notify):
                self._notify(child, grid)
        self.count += grid.tasks

    def _schedule(self, grid: Grid, rank: Values) -> Bools:
        """Record the grid's tasks; returns which of them are not masked."""
        schedule = grid.op.schedule
        lane, keys = np.zeros(grid.tasks, np.int64), list[Values]()
        exists = np.ones(grid.tasks, np.bool_)
        if schedule is not None:
            if schedule.lane is not None:
                lane = grid.of(schedule.lane_args, schedule.lane)[0]
                if (lane < 0).any():
                    raise PlanError(f"a lane is {int(lane.min())}, but lanes count from 0")
            if schedule.order is not None:
                keys = grid.of(schedule.order_args, schedule.order)
            exists = grid.mask(schedule.where_args, schedule.where)
        flat = np.arange(grid.tasks)
        order = np.lexsort((flat, *reversed(keys)))
        position = np.empty_like(order)
        position[order] = flat
        coords = np.zeros((grid.tasks, device.MAX_GRID_DIMS), np.int64)
        if grid.op.dims:
            points = np.indices(grid.op.dims).reshape(len(grid.op.dims), -1).T
            coords[:, : points.shape[1]] = np.tile(points, (self.ranks, 1))
        self.lanes.append((grid.op.engine.data, grid.op.queue is not None, lane))
        self.tasks.add(
            op=np.full(grid.tasks, len(self.ops) - 1), rank=rank, position=position, coords=coords
        )
        return exists

    def _grid_accesses(
        self, grid: Grid, rank: Values, exists: Bools
    ) -> Iterator[dict[str, Values]]:
        body = grid.op.body_op
        task = self.count + np.arange(grid.tasks)
        if isinstance(body, device.HandOverOp):
            buffer = self.buffers[body.buffer]
            hi = self.extents[buffer][rank]
            self._work(grid, [hi], [buffer])
            yield _columns(task, Mode.WRITE, buffer, rank, np.zeros_like(hi), hi)
            return
        views = grid.op.views
        boxes = [self._box(view, grid, rank, exists) for view in views]
        asked = [hi - lo for _, lo, hi in boxes]
        folds = [view.fold for view in views]
        sizes = [s if f is None else f.sizes(s) for s, f in zip(asked, folds, strict=True)]
        _clip_together(sizes, self._shared_dims(body))
        sizes = [np.where(exists[:, None], size, 0) for size in sizes]
        buffers = [self.buffers[v.buffer] for v in views]
        self._work(grid, sizes, buffers)
        sizes = [
            s if fold is None else _folded(view, fold, s, a)
            for view, fold, s, a in zip(views, folds, sizes, asked, strict=True)
        ]
        for mode, buffer, (owner, lo, _), size in zip(
            self._modes(body), buffers, boxes, sizes, strict=True
        ):
            yield _columns(task, mode, buffer, owner, lo, lo + size)

    def _shared_dims(self, body: Operation) -> list[SharedDim]:
        """Dimensions of a task's views that have one size."""
        if isinstance(body, device.Transfer):
            assert isinstance(body.source.type, core.ViewType)
            same = body.source.type == body.target.type  # a reshaping copy's boxes fit as they are
            return [SharedDim(0, d, 1, d) for d in range(len(body.source.type.dims)) if same]
        assert isinstance(body, device.CallOp)
        return shared_dims(self._kernel(body))

    def _kernel(self, call: device.CallOp) -> core.FuncOp:
        func = self.funcs.get(call.kernel_name)
        if func is None:
            raise PlanError(f"no core.func @{call.kernel_name} to call", op_location(call))
        given = tuple(view.type for view in call.views)
        if len(given) != len(func.view_types):
            raise PlanError(
                f"@{call.kernel_name} takes {len(func.view_types)} views, got {len(given)}",
                op_location(call),
            )
        for number, (have, want) in enumerate(zip(given, func.view_types, strict=True)):
            if have != want:
                raise PlanError(
                    f"view {number} of @{call.kernel_name} is {want}, got {have}", op_location(call)
                )
        if len(call.args if call.indices is None else call.indices.data) != len(func.indices):
            raise PlanError(
                f"@{call.kernel_name} takes {len(func.indices)} indices", op_location(call)
            )
        return func

    def _modes(self, body: Operation) -> list[Mode]:
        if isinstance(body, device.Transfer):
            return [Mode.READ, Mode.WRITE]
        assert isinstance(body, device.CallOp)
        func = self._kernel(body)
        none, args = Mode(0), range(len(body.views))
        return [
            (Mode.READ if func.reads(i) else none) | (Mode.WRITE if func.writes(i) else none)
            for i in args
        ]

    def _box(
        self, view: device.ViewOp, grid: Grid, rank: Values, exists: Bools
    ) -> tuple[Values, Values, Values]:
        """Owner [T] and clipped box lo, hi [T, D] of a view for every task; masked ones: any."""
        owner = rank
        if view.peer is not None:
            owner = np.where(exists, grid.of(view.peer_args, view.peer)[0], rank)
            check_range(view, "a view's peer", owner, self.ranks)
        extent = self.extents[self.buffers[view.buffer]][owner]
        lo = np.stack(grid.of(view.offset_args, view.offsets), axis=1)
        size = np.stack(grid.of(view.size_args, view.sizes), axis=1)
        lo, size = (np.where(exists[:, None], part, 0) for part in (lo, size))
        capacity = np.array(_capacity(view))
        if (size > capacity).any():
            over = size[(size > capacity).any(axis=1)][0]
            raise PlanError(
                f"a box of {tuple(map(int, over))} is over its view's capacity"
                f" {tuple(map(int, capacity))}",
                op_location(view),
            )
        if (lo < 0).any():
            raise PlanError("a box starts before its buffer", op_location(view))
        lo = np.minimum(lo, extent)
        return owner, lo, np.clip(lo + size, lo, extent)

    def _work(self, grid: Grid, sizes: Sequence[Values], buffers: Sequence[int]) -> None:
        body = grid.op.body_op
        func = self.funcs[body.kernel_name] if isinstance(body, device.CallOp) else None
        moved = np.zeros(grid.tasks, np.int64)
        for number, (size, buffer) in enumerate(zip(sizes, buffers, strict=True)):
            touched = elements(func, number, size) if func else size.prod(axis=1)
            moved += touched * DTYPE_BYTES[self.records[buffer].dtype]
        many = flops(func, sizes) if func else np.zeros(grid.tasks, np.int64)
        self.tasks.add(flops=many, bytes=moved)

    def _wait(self, op: device.Wait, grid: Grid, rank: Values) -> None:
        first, many = grid.of(op.args, op.at)
        value = grid.of(op.value_args, op.value)[0]
        mask = grid.mask(op.when_args, op.when) & (many > 0) & (value > 0)
        task = np.flatnonzero(mask)
        first, many, value = first[task], many[task], value[task]
        size = self.slot_sizes[self.signals[op.signals]]
        check_range(op, "the number of slots of a wait", many, size + 1)
        steps = np.arange(int(many.sum())) - np.repeat(np.cumsum(many) - many, many)
        task, slot = np.repeat(task, many), np.repeat(first, many) + steps
        self.waits.add(
            task=self.count + task,
            slot=self._slot(op, op.signals, rank[task], slot),
            value=np.repeat(value, many),
            lag=np.full(len(task), op.launches_back),
        )

    def _notify(self, op: device.Notify, grid: Grid) -> None:
        task = np.flatnonzero(grid.mask(op.when_args, op.when))
        slot = grid.of(op.args, op.at)[0][task]
        rank = grid.of(op.rank_args, op.rank)[0][task]
        check_range(op, "the rank of a notify", rank, self.ranks)
        ones = np.ones(len(task), np.int64)
        self.notifies.add(
            task=self.count + task,
            slot=self._slot(op, op.signals, rank, slot),
            amount=ones * op.amount.value.data,
            op=ones * NotifyOp[op.op.data.upper()],
            after=ones * After[op.after.data.upper()],
        )

    def _slot(self, op: Operation, signals: SSAValue, rank: Values, index: Values) -> Values:
        number = self.signals[signals]
        check_range(op, f"a slot of %{self.signal_names[number]}", index, self.slot_sizes[number])
        return self.slot_base[number] + rank * self.slot_sizes[number] + index

    def _finish(self) -> Plan:
        lanes, tasks = lane_tables(self.lanes, self.tasks)
        heap = self.program.heap_bytes
        return Plan(
            name=self.program.program_name.data,
            ranks=self.ranks,
            boundary=Boundary.STREAM,
            copies=1,
            heap_bytes=0 if heap is None else heap.value.data,
            ops=tuple(self.ops),
            buffers=tuple(self.records),
            signals=tuple(self.signal_names),
            lanes=lanes,
            tasks=tasks,
            accesses=access_table(self.accesses, self.records),
            slots=slot_table(self.slot_sizes, self.ranks, self.notifies),
            waits=Waits(**self.waits.sorted("task", "slot", "value", "lag")),
            notifies=Notifies(**self.notifies.sorted("task", "slot", "amount", "op", "after")),
            arguments=argument_table(self.arguments),
        )


def _capacity(view: device.ViewOp) -> Sequence[int]:
    """The most elements of a view's box along each of its dimensions."""
    dims, fold = view.result.type.dims, view.fold
    if fold is None:
        return dims
    axes = range(len(view.offsets.data))
    return [prod(d for d, a in zip(dims, fold.axes, strict=True) if a == axis) for axis in axes]


def _folded(view: device.ViewOp, fold: Fold, sizes: Values, asked: Values) -> Values:
    """The sizes of the boxes that views of some sizes have.

    Raises:
        PlanError: a view is no box.
    """
    box = fold.box(sizes, asked)
    wrong = (box > 0).all(axis=1) & (fold.sizes(box) != sizes).any(axis=1)
    if wrong.any():
        size = tuple(map(int, sizes[wrong][0]))
        raise PlanError(f"{size} elements of {view.result.type} are no box", op_location(view))
    return box


def _clip_together(sizes: list[Values], shared: Sequence[SharedDim]) -> None:
    """Cut dimensions that are one to the smallest of them."""
    for dim in shared:
        first, other = sizes[dim.a][:, dim.a_dim], sizes[dim.b][:, dim.b_dim]
        np.minimum(first, other, out=first)
    for dim in shared:
        sizes[dim.b][:, dim.b_dim] = sizes[dim.a][:, dim.a_dim]


def _columns(
    task: Values, mode: Mode, buffer: int, rank: Values, lo: Values, hi: Values
) -> dict[str, Values]:
    ones = np.ones(len(task), np.int64)
    return {
        "task": task,
        "mode": ones * int(mode),
        "buffer": ones * buffer,
        "rank": rank,
        "lo": lo,
        "hi": hi,
    }
