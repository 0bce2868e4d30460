"""No task writes what it reads by another view, unless element by element.

Between its begin and its end a task touches its boxes in whatever order: a copy goes block by block
or all at once, a kernel's tile is worked on in blocks on a GPU. So a box that is written may meet
another one of the same task only where both are the same elements in the same order, and the
kernel makes each element of one from that element of the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from ditron.analysis.arrays import longs, offsets
from ditron.analysis.counterexample import Found, Mark
from ditron.analysis.kernel_dims import dim_class, halved_dims
from ditron.analysis.plan_records import AccessRecord, access_record, lanes_around
from ditron.errors import RaceError
from ditron.ir import core
from ditron.plan.tables import Bools, Longs, Mode, Op, OpKind, Plan

MOVES = (OpKind.PUT, OpKind.GET, OpKind.COPY)


@dataclass(frozen=True)
class OwnOverlap(Found):
    """Two boxes of one task that meet, one of which it writes."""

    first: AccessRecord
    second: AccessRecord

    @property
    def where(self) -> str:
        return self.first.task.location

    @property
    def text(self) -> str:
        return (
            f"{self.first} and {self.second.does} {self.second.box}: these overlap, and a task"
            f" touches its boxes in any order; write another buffer, or boxes that do not meet"
        )

    def marks(self) -> tuple[Mark, ...]:
        return ((self.first.task, 0),)


def check_own_overlaps(plan: Plan, kernels: Mapping[str, core.FuncOp]) -> None:
    """Prove that the boxes of each task may be touched in any order.

    Raises:
        RaceError: two boxes that meet.
    """
    accesses, tasks = plan.accesses, plan.tasks
    access = offsets(longs(accesses.task), len(tasks))
    first_task = offsets(longs(tasks.op), len(plan.ops))
    for number, op in enumerate(plan.ops):
        rows = access[first_task[number] : first_task[number + 1]]
        if op.kind not in (*MOVES, OpKind.CALL) or not len(rows):
            continue
        views = int(access[first_task[number] + 1] - rows[0])
        for i, j in _conflicts(plan, int(rows[0]), views):
            bad = _meet(plan, rows + i, rows + j)
            if _element_by_element(op, kernels, i, j):
                bad &= ~_same(plan, rows + i, rows + j)
            if bad.any():
                at = rows[np.flatnonzero(bad)[0]]
                pair = (access_record(plan, int(at + i)), access_record(plan, int(at + j)))
                lanes = lanes_around(plan, [(int(accesses.task[at]), 0)])
                found = OwnOverlap(lanes, *pair)
                raise RaceError(found.text, found.where, found)


def _conflicts(plan: Plan, first: int, views: int) -> Iterator[tuple[int, int]]:
    """Views of one buffer, one of which is written; all tasks of an op have the same."""
    buffer, mode = plan.accesses.buffer, plan.accesses.mode
    for i, j in combinations(range(views), 2):
        modes = int(mode[first + i]) | int(mode[first + j])
        if buffer[first + i] == buffer[first + j] and modes & ~int(Mode.READ):
            yield i, j


def _meet(plan: Plan, a: Longs, b: Longs) -> Bools:
    lo = np.maximum(plan.accesses.lo[a], plan.accesses.lo[b])
    hi = np.minimum(plan.accesses.hi[a], plan.accesses.hi[b])
    return (plan.accesses.rank[a] == plan.accesses.rank[b]) & (lo < hi).all(axis=1)


def _same(plan: Plan, a: Longs, b: Longs) -> Bools:
    lo, hi = plan.accesses.lo, plan.accesses.hi
    return ((lo[a] == lo[b]) & (hi[a] == hi[b])).all(axis=1)


def _element_by_element(op: Op, kernels: Mapping[str, core.FuncOp], i: int, j: int) -> bool:
    """Whether two views of the same elements have each at the same place, and stay so."""
    if op.folds and op.fold(i) != op.fold(j):
        return False
    if op.kind in MOVES:
        return True
    kernel = kernels[op.kernel]
    a, b = kernel.views[i], kernel.views[j]
    find, halved = dim_class(kernel), halved_dims(kernel)
    dims = range(len(kernel.view_types[i].dims))
    return len(dims) == len(kernel.view_types[j].dims) and all(
        find((a, d)) == find((b, d)) and (i, d) not in halved and (j, d) not in halved for d in dims
    )
