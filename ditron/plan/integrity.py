"""Whether a plan's tables fit each other: those of a plan that was read from a file may not."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import numpy.typing as npt

from ditron.errors import PlanError
from ditron.plan.limits import MAX_ELEMENTS, MAX_RANKS
from ditron.plan.tables import (
    DTYPE_BYTES,
    Accesses,
    After,
    Arguments,
    Buffer,
    Lanes,
    Notifies,
    NotifyOp,
    Plan,
    Slots,
    Tasks,
    Waits,
)

Table = Lanes | Tasks | Accesses | Slots | Waits | Notifies | Arguments
MODES = 8  # combinations of flags


def check_integrity(plan: Plan) -> None:
    """Every row number is one of a row, and every column as long as its table.

    Raises:
        PlanError: the first table and column that is not.
    """
    if not 1 <= plan.ranks <= MAX_RANKS or plan.copies < 1 or plan.heap_bytes < 0:
        raise PlanError(f"a plan of {plan.ranks} ranks and {plan.copies} copies cannot be")
    for buffer in plan.buffers:
        _check_buffer(plan, buffer)
    lanes, tasks, slots = plan.lanes, plan.tasks, plan.slots
    ordered = (plan.accesses, plan.waits, plan.notifies, plan.arguments)
    for table in (lanes, tasks, slots, *ordered):
        _check_lengths(table)
    _check_rows(lanes, rank=plan.ranks)
    _check_rows(tasks, op=len(plan.ops), rank=plan.ranks, lane=len(lanes), seq=len(tasks))
    _check_rows(plan.accesses, task=len(tasks), buffer=len(plan.buffers), rank=plan.ranks)
    _check_rows(plan.accesses, mode=MODES)
    _check_rows(slots, rank=plan.ranks, signals=len(plan.signals))
    _check_rows(plan.waits, task=len(tasks), slot=len(slots))
    _check_rows(plan.notifies, task=len(tasks), slot=len(slots), op=len(NotifyOp))
    _check_rows(plan.notifies, after=len(After))
    _check_rows(plan.arguments, task=len(tasks))
    _require((tasks.rank == lanes.rank[tasks.lane]).all(), "a task's rank is its lane's")
    _require(tasks.coords.shape[1:] == (6,), "a task has 6 coordinates")
    order = np.lexsort((tasks.seq, tasks.lane))
    start = np.searchsorted(tasks.lane[order], tasks.lane[order])
    _require((tasks.seq[order] == np.arange(len(tasks)) - start).all(), "seq counts on each lane")
    for table in ordered:
        name = type(table).__name__.lower()
        _require((np.diff(table.task) >= 0).all(), f"{name} are sorted by task")
    _check_boxes(plan)
    _check_folds(plan)


def _check_buffer(plan: Plan, buffer: Buffer) -> None:
    shape = (plan.ranks, len(buffer.capacity))
    sizes = buffer.capacity
    _require(buffer.dtype in DTYPE_BYTES, f"dtype {buffer.dtype} is none")
    _require(all(0 <= s <= MAX_ELEMENTS for s in sizes), f"%{buffer.name} is too large")
    _require(buffer.extent.shape == shape, f"%{buffer.name} has an extent of each rank")
    fits = (buffer.extent >= 0).all() and (buffer.extent <= np.array(sizes, np.int64)).all()
    _require(fits, f"%{buffer.name} has extents within its capacity")
    _require(buffer.copies >= 1 and -1 <= buffer.offset_bytes <= MAX_ELEMENTS, "a buffer's place")


def _check_lengths(table: Table) -> None:
    for column in fields(table):
        many = len(getattr(table, column.name))
        name = f"{type(table).__name__.lower()}.{column.name}"
        _require(many == len(table), f"{name} has {len(table)} rows, got {many}")


def _check_rows(table: Table, **limits: int) -> None:
    for name, limit in limits.items():
        column = getattr(table, name)
        inside = ((column >= 0) & (column < limit)).all()
        _require(inside, f"{type(table).__name__.lower()}.{name} is 0 to {limit - 1}")


def _check_boxes(plan: Plan) -> None:
    accesses = plan.accesses
    dims = max((len(b.capacity) for b in plan.buffers), default=1)
    shape = (len(accesses), dims)
    _require(accesses.lo.shape == shape and accesses.hi.shape == shape, "boxes have all dimensions")
    for number, buffer in enumerate(plan.buffers):
        mine = accesses.buffer == number
        ndim = len(buffer.capacity)
        lo, hi = accesses.lo[mine], accesses.hi[mine]
        extent = np.ones((plan.ranks, dims), np.int64)
        extent[:, :ndim] = buffer.extent
        inside = (lo >= 0).all() and (hi <= extent[accesses.rank[mine]]).all()
        _require(inside, f"boxes lie within %{buffer.name}")
        flat = (lo[:, ndim:] == 0).all() and (hi[:, ndim:] == 1).all()
        _require(flat, f"boxes of %{buffer.name} have {ndim} dimensions")


def _check_folds(plan: Plan) -> None:
    """A kernel's views of a box have the box's elements, and no more."""
    accesses = plan.accesses
    for number, op in enumerate(plan.ops):
        if not op.folds:
            continue
        first = np.searchsorted(accesses.task, np.flatnonzero(plan.tasks.op == number))
        for view, fold in enumerate(op.folds):
            if fold is None:
                continue
            here = first + view
            buffers: list[int] = np.unique(accesses.buffer[here]).tolist()
            dims = [len(plan.buffers[b].capacity) for b in buffers]
            inside = all(0 <= axis < d for axis in fold.axes for d in dims)
            alike = len(fold.axes) == len(fold.dims) and all(size > 0 for size in fold.dims)
            _require(inside and alike, f"views of @{op.name} have dimensions of their boxes")
            box = accesses.hi[here] - accesses.lo[here]
            _require(fold.holds(box[(box > 0).all(axis=1)]), f"views of @{op.name} are boxes")


def _require(fits: bool | np.bool_ | npt.NDArray[np.bool_], what: str) -> None:
    if not fits:
        raise PlanError(f"not a plan: expected that {what}")
