"""Tasks of one lane that hand data on to each other, with no wait and no notify between them.

Program order of a lane orders them in the model. In a block of many threads it does not: what one
thread has stored another may load too early, unless a barrier stands between, and emitted code has
barriers at waits and notifies.
"""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from ditron.analysis.arrivals import Columns
from ditron.analysis.touches import WRITE, find_touches
from ditron.plan.tables import LIBRARY, Accesses, Mode, OpKind, Plan


def find_without_barrier(plan: Plan) -> tuple[int, int] | None:
    """Two tasks of one grid and lane that touch the same bytes, one writing, with no barrier."""
    accesses, tasks = plan.accesses, plan.tasks
    op = tasks.op[accesses.task]
    # Only what an op writes can be handed on within its grid.
    place = op.astype(np.int64) * len(plan.buffers) + accesses.buffer
    written = np.unique(place[(accesses.mode & int(Mode.WRITE)) != 0])
    calls = np.array([o.kind is OpKind.CALL and o.engine != LIBRARY for o in plan.ops], np.bool_)
    rows = np.flatnonzero(np.isin(place, written) & calls[op])
    kept = Accesses(*(getattr(accesses, f.name)[rows] for f in fields(Accesses)))
    columns = Columns(replace(plan, accesses=kept))
    touches = find_touches(columns, np.arange(len(tasks)), grouped=False, coarse=False)
    task = touches.first
    key = np.column_stack([touches.cell, tasks.op[task], tasks.lane[task], _stretch(columns)[task]])
    _, group = np.unique(key, axis=0, return_inverse=True)
    group = group.reshape(-1)
    writes = np.bincount(group, touches.kind == WRITE)
    bad = np.flatnonzero((writes > 0) & (np.bincount(group) > 1))
    if not len(bad):
        return None
    first, second = np.unique(task[group == bad[0]])[:2].tolist()
    return first, second


def _stretch(columns: Columns) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """A number for each task; tasks of one lane share it if no barrier stands between them."""
    plan, order = columns.plan, columns.lane_order
    begins = np.zeros(len(order), np.int64)
    begins[plan.waits.task] = 1
    ends = np.zeros(len(order), np.int64)
    ends[plan.notifies.task] = 1
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(begins[order] + np.concatenate([[0], ends[order][:-1]]))
    return number
