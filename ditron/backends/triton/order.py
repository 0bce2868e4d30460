"""In which order a lane runs the tasks of a grid: as a closed form, or as a table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ditron.analysis.arrays import longs
from ditron.plan.tables import Ints, Plan


@dataclass(frozen=True)
class Order:
    """The tasks of one op, numbered row-major within a rank, as lanes run them.

    Attributes:
        tasks: how many there are on each rank.
        lanes: how many lanes they are dealt to: programs of the kernel.
        first: the first of them; i below counts from it.
        starts: [ranks, lanes + 1] where each lane's tasks begin in `order`, or None where lane i
            runs i, i + lanes, i + 2 * lanes and so on.
        order: [ranks, tasks].
    """

    tasks: int
    lanes: int
    first: int = 0
    starts: Ints | None = None
    order: Ints | None = None


def lane_order(plan: Plan, op: int) -> Order:
    """The order of an op's tasks on every rank."""
    rows = plan.tasks_of(op)
    each = len(rows) // plan.ranks
    lane = longs(plan.lanes.index)[plan.tasks.lane[rows]].reshape(plan.ranks, each)
    seq = longs(plan.tasks.seq)[rows].reshape(plan.ranks, each)
    first = int(lane.min(initial=len(plan.lanes))) if each else 0
    lane = lane - first
    lanes = int(lane.max(initial=0)) + 1
    order = np.lexsort((seq, lane), axis=-1)
    dealt = np.arange(each) % lanes
    if (lane == dealt).all() and (order == np.lexsort((np.arange(each), dealt))).all():
        return Order(each, lanes, first)
    starts = np.zeros((plan.ranks, lanes + 1), np.int32)
    for rank in range(plan.ranks):
        starts[rank, 1:] = np.cumsum(np.bincount(lane[rank], minlength=lanes))
    return Order(each, lanes, first, starts, order.astype(np.int32))
