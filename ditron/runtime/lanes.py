"""A plan's lanes as lists of bodies that are ready to run on real memory.

A body is a closure over the task's kernel (or copy) and its torch views, made once; None where a
task moves nothing. Which task may run when is the executor's business: `interleave` and `rank`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import torch

from ditron.errors import PlanError
from ditron.plan.fold import Fold
from ditron.plan.tables import Mode, OpKind, Plan
from ditron.runtime.heap import Heap
from ditron.runtime.kernels import Kernel

Body = Callable[[], object]

TRANSFERS = (OpKind.PUT, OpKind.GET, OpKind.COPY)


class Binder:
    """Makes views and bodies of a plan's tasks in launches `epoch` with (epoch - 1) = phase."""

    def __init__(
        self, plan: Plan, heap: Heap, kernels: Mapping[str, Kernel], phase: int = 0
    ) -> None:
        for op in plan.ops:
            if op.kind is OpKind.CALL and op.kernel not in kernels:
                msg = f"@{op.name} calls kernel {op.kernel!r}, which the source does not define"
                raise PlanError(msg, op.location)
        _check_boxes(plan)
        self._plan = plan
        self._heap = heap
        self._kernels = kernels
        self._phase = phase
        self._op: list[int] = plan.tasks.op.tolist()
        a = plan.accesses
        self._bounds: list[int] = np.searchsorted(a.task, np.arange(len(plan.tasks) + 1)).tolist()
        self._mode: list[int] = a.mode.tolist()
        self._empty: list[bool] = a.empty.tolist()
        self._whole: dict[tuple[int, int], torch.Tensor] = {}
        self._boxes: dict[tuple[int | Fold | None, ...], torch.Tensor] = {}
        self._folded = any(op.folds for op in plan.ops)

    def view(self, access: int) -> torch.Tensor:
        """The torch view of one access: its box of its buffer on the rank that owns it."""
        a = self._plan.accesses
        row, rank = int(a.buffer[access]), int(a.rank[access])
        dims = len(self._plan.buffers[row].capacity)
        lo: list[int] = a.lo[access, :dims].tolist()
        hi: list[int] = a.hi[access, :dims].tolist()
        fold = self._plan.fold_of(access) if self._folded else None
        key = (row, rank, *lo, *hi, fold)
        view = self._boxes.get(key)
        if view is None:
            box = self._cut(row, rank, lo, hi)
            view = self._boxes[key] = box if fold is None else unfold(box, fold)
        return view

    def _cut(self, row: int, rank: int, lo: list[int], hi: list[int]) -> torch.Tensor:
        whole = self._whole.get((row, rank))
        if whole is None:
            whole = self._whole[row, rank] = self._heap.buffer(row, rank, self._phase)
        stride = whole.stride()
        sizes = [max(0, h - b) for b, h in zip(lo, hi, strict=True)]
        inside = 0 not in sizes  # an empty box may start past the end
        start = sum(b * s for b, s in zip(lo, stride, strict=True)) if inside else 0
        return whole.as_strided(sizes, stride, whole.storage_offset() + start)

    def views(self, task: int) -> list[torch.Tensor]:
        """The views of a task's accesses in operand order."""
        return [self.view(a) for a in self._accesses(task)]

    def _accesses(self, task: int) -> range:
        return range(self._bounds[task], self._bounds[task + 1])

    def body(self, task: int) -> Body | None:
        """What the task does, or None if it touches nothing."""
        op = self._plan.ops[self._op[task]]
        accesses = self._accesses(task)
        if op.kind in TRANSFERS:
            source, target = accesses
            if self._empty[source] or self._empty[target]:
                return None
            return self._copy(self.view(source), self.view(target))
        if op.kind is not OpKind.CALL:
            return None
        written = [a for a in accesses if self._mode[a] & (Mode.WRITE | Mode.ADD)]
        if all(self._empty[a] for a in written):
            return None
        numbers = self._plan.arguments_of(task) if len(self._plan.arguments) else []
        return partial(self._kernels[op.kernel], *map(self.view, accesses), *numbers)

    def _copy(self, source: torch.Tensor, target: torch.Tensor) -> Body:
        if source.shape == target.shape:
            return partial(target.copy_, source)
        return lambda: target.copy_(source.reshape(target.shape))


def unfold(box: torch.Tensor, fold: Fold) -> torch.Tensor:
    """A box as a kernel sees it."""
    (sizes,) = fold.sizes(np.array([box.shape], np.int64)).tolist()
    strides = [box.stride(axis) * step for axis, step in zip(fold.axes, fold.steps(), strict=True)]
    return box.as_strided(sizes, strides, box.storage_offset())


def _check_boxes(plan: Plan) -> None:
    """A view must lie in what its buffer has on the rank: kernels can touch no more than that."""
    a = plan.accesses
    extent = np.ones((len(plan.buffers), plan.ranks, a.lo.shape[1]), np.int64)
    for row, buffer in enumerate(plan.buffers):
        extent[row, :, : len(buffer.capacity)] = buffer.extent
    outside = ((a.lo < 0) | (a.hi > extent[a.buffer, a.rank])).any(axis=1) & ~a.empty
    for access in np.flatnonzero(outside)[:1]:
        task, buffer = int(a.task[access]), plan.buffers[int(a.buffer[access])]
        msg = (
            f"{plan.describe_task(task)} touches {buffer.name} at rank {a.rank[access]}"
            f" from {a.lo[access].tolist()} to {a.hi[access].tolist()},"
            f" which has {extent[a.buffer[access], a.rank[access]].tolist()}"
        )
        raise PlanError(msg, plan.ops[int(plan.tasks.op[task])].location)


def rank_lanes(plan: Plan, rank: int) -> list[int]:
    """A rank's lanes in the order its process looks at them: transfers before compute."""
    computes = [False] * len(plan.lanes)
    calls = np.array([op.kind is OpKind.CALL for op in plan.ops], np.bool_)
    for lane in np.unique(plan.tasks.lane[calls[plan.tasks.op]]):
        computes[lane] = True
    mine: list[int] = np.flatnonzero(plan.lanes.rank == rank).tolist()
    return sorted(mine, key=lambda lane: computes[lane])
