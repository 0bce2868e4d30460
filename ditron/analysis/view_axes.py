"""Axes of what kernels see of boxes, for the delivery proof.

Most views have the dimensions of their boxes, and their axes are the buffer's. A folded one
(`plan/fold.py`) has axes of its own, the same for all views of one box. Where a row of the box is
several dimensions of the view, every row of the innermost one is a stretch of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ditron.analysis.arrays import longs, spans
from ditron.analysis.cells import Cuts
from ditron.analysis.lines import Line
from ditron.analysis.tag_memory import BufferAxes, TagMemory
from ditron.plan.fold import Fold
from ditron.plan.tables import Bools, Longs, Plan

Stretches = tuple[Longs, ...]


class ViewAxes:
    """The views of a plan's accesses: [lo, hi) [A, D] of `dims` [A] axes, from `base` [A] on.

    Args:
        plan: has the accesses.
        axes: of its buffers.
        first: each task's first access.
        tasks: that do something.
        number: of the first axis that is free.
    """

    def __init__(
        self, plan: Plan, axes: BufferAxes, first: Longs, tasks: Longs, number: int
    ) -> None:
        accesses = plan.accesses
        self._plan, self._number = plan, number
        self._boxes = axes.axis(longs(accesses.buffer), longs(accesses.rank), 0)
        self.base, self.lo, self.hi = self._boxes, accesses.lo, accesses.hi
        self.dims = axes.dims[accesses.buffer]
        self.sizes: list[Longs] = []
        self.relations: list[tuple[Longs, ...]] = []
        self._cuts: list[tuple[Longs, Longs]] = []
        op = longs(plan.tasks.op)[tasks]
        folded = [(first[tasks[op == row]], o.folds) for row, o in enumerate(plan.ops) if o.folds]
        if folded:
            self._make_room([fold for _, folds in folded for fold in folds if fold is not None])
        for rows, folds in folded:
            for view, fold in enumerate(folds):
                if fold is not None and len(rows):
                    self._add(rows + view, fold)

    def _make_room(self, folds: Sequence[Fold]) -> None:
        """Columns of their own for views, which may have more dimensions than boxes."""
        accesses = self._plan.accesses
        more = max([0, *(len(fold.dims) - accesses.lo.shape[1] for fold in folds)])
        self.base = self._boxes.copy()
        self.lo = np.pad(accesses.lo, ((0, 0), (0, more)))
        self.hi = np.pad(accesses.hi, ((0, 0), (0, more)), constant_values=1)

    def _add(self, access: Longs, fold: Fold) -> None:
        accesses, ndim = self._plan.accesses, len(fold.dims)
        lo, hi = accesses.lo[access], accesses.hi[access]
        key = np.column_stack([self._boxes[access], lo, hi])
        _, row, box = np.unique(key, axis=0, return_index=True, return_inverse=True)
        sizes = fold.sizes((hi - lo)[row])
        first = self._number + np.arange(len(row)) * ndim
        self._number += len(row) * ndim
        self.sizes.append(longs(sizes.ravel()))
        self.base[access] = first[box.reshape(-1)]
        self.dims[access] = ndim
        self.lo[access], self.hi[access] = 0, 1
        self.hi[access, :ndim] = sizes[box.reshape(-1)]
        for axis in set(fold.axes):
            parts = fold.parts(axis)
            inner = next((d for d in reversed(parts) if fold.dims[d] != 1), parts[-1])
            outer = [d for d in parts if d != inner]
            for d in outer:
                many = np.maximum(sizes[:, d] - 1, 0)
                self._cuts.append((np.repeat(first + d, many), spans(np.ones_like(many), many)))
            rows = sizes[:, outer].prod(axis=1)
            at = spans(np.zeros_like(rows), rows)
            columns = (self._boxes[access[row]] + axis, lo[row, axis], first + inner)
            width = np.repeat(sizes[:, inner], rows)
            real, start, mine = (np.repeat(column, rows) for column in columns)
            self.relations.append((real, start + at * width, mine, np.zeros_like(mine), width))

    def cut(self, cuts: Cuts) -> None:
        """Cut rows apart where a dimension of a box is several of a view."""
        for axis, at in self._cuts:
            cuts.add(axis, at)

    def line(self, access: int) -> Line:
        """A view by its dimensions."""
        ndim = int(self.dims[access])
        lo, hi = self.lo[access, :ndim], self.hi[access, :ndim]
        line = Line.whole(int(self.base[access]), tuple((hi - lo).tolist()))
        return replace(line, lo=tuple(lo.tolist()))

    def many(self, cuts: Cuts, live: Bools) -> Longs:
        """How many cells views have along each dimension [A, D], of accesses that are live."""
        many = np.zeros_like(self.lo)
        for d in range(self.lo.shape[1]):
            access = np.flatnonzero(live & (self.dims > d))
            axis, lo = self.base[access] + d, self.lo[access, d]
            hi = np.maximum(self.hi[access, d], lo)
            many[access, d] = cuts.cell(axis, hi) - cuts.cell(axis, lo)
        return many

    def edges(self, cuts: Cuts, access: Longs, dim: int, many: int) -> Longs:
        """Where the cells of a dimension begin and end, in elements of each view [N, many + 1]."""
        axis, lo = self.base[access] + dim, self.lo[access, dim]
        return cuts.begin(axis, cuts.cell(axis, lo), many + 1) - lo[:, None]


def view_cells(memory: TagMemory, access: Longs, many: Longs, fold: Fold | None) -> Longs:
    """Cells [N, ...] of views that all have `many` along each dimension."""
    boxes = memory.boxes(access)
    if fold is None:
        return boxes.dense(len(many))
    ndim = boxes.size.shape[1]
    order = [d for axis in range(ndim) for d in fold.parts(axis)]
    cells = boxes.dense(ndim).reshape(len(access), *(many[d] for d in order))
    return cells.transpose(0, *(1 + order.index(d) for d in range(len(order))))
