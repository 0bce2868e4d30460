"""The columns of vector clocks, and what each node knows by itself.

Lane columns hold 2 x seq once a task has begun and 2 x seq + 1 once it has ended (in a fifo lane:
landed). Fence and quiet columns hold seq, single-task columns 0 (begun) and 1 (done).
"""

from __future__ import annotations

import numpy as np

from ditron.analysis.arrays import longs
from ditron.analysis.arrivals import Arrivals, Columns
from ditron.analysis.sync_graph import SyncGraph, last_notifies
from ditron.plan.tables import After, Longs


class ColumnNumbers:
    """Where each kind of column starts in the numbering of all columns."""

    def __init__(self, columns: Columns, classes: Longs) -> None:
        self._lanes = len(columns.lane_size)
        self._ranks = columns.plan.ranks
        self._classes = classes

    def lane(self, lane: Longs) -> Longs:
        return lane

    def quiet(self, lane: Longs) -> Longs:
        """All transfers of a lane so far."""
        return self._lanes + lane

    def fence(self, lane: Longs, rank: Longs) -> Longs:
        """All puts of a lane to one rank so far."""
        return 2 * self._lanes + lane * self._ranks + rank

    def task(self, task: Longs) -> Longs:
        """One task's own transfer, or what stands for a task of a queue."""
        return self._lanes * (2 + self._ranks) + self._classes[task]


Seeds = list[tuple[Longs, Longs, Longs, Longs]]


def clock_seeds(
    columns: Columns, arrivals: Arrivals, graph: SyncGraph, numbers: ColumnNumbers
) -> Seeds:
    """(node, column, value, lasting): lasting ones are sure of the whole lane a launch later."""
    seeds: Seeds = []

    def add(node: Longs, column: Longs, value: Longs, *, lasting: bool) -> None:
        seeds.append((node, column, value, np.full(len(node), int(lasting), np.int64)))

    row = np.flatnonzero(columns.static[columns.lane[graph.row_task]]).astype(np.int64)
    task = graph.row_task[row]
    add(row, numbers.lane(columns.lane[task]), 2 * columns.seq[task] - 1, lasting=True)
    _seed_notifies(columns, arrivals, graph, numbers, seeds)
    if graph.ends:
        base = graph.rows + graph.arrivals
        lane = np.flatnonzero(columns.static & (columns.lane_size > 0)).astype(np.int64)
        tail = columns.lane_order[columns.lane_start[lane + 1] - 1]
        # A launch ends when all its tasks have ended and their transfers have landed.
        add(base + columns.rank[tail], numbers.lane(lane), 2 * columns.seq[tail] + 1, lasting=True)
        task = np.flatnonzero(columns.queued | columns.loose).astype(np.int64)
        value = np.ones_like(task)
        add(base + columns.rank[task], numbers.task(task), value, lasting=False)
    return seeds


def _seed_notifies(
    columns: Columns,
    arrivals: Arrivals,
    graph: SyncGraph,
    numbers: ColumnNumbers,
    seeds: Seeds,
) -> None:
    """What an arrival promises of each notifying task, by what the notify comes after."""
    notifies = columns.plan.notifies

    def add(edge: Longs, column: Longs, value: Longs, *, lasting: bool) -> None:
        node = graph.rows + arrivals.edge_arrival[edge]
        seeds.append((node, column, value, np.full(len(node), int(lasting), np.int64)))

    task_of = longs(notifies.task)[arrivals.edge_notify]
    after_of = columns.after[arrivals.edge_notify]
    issued = columns.deferred[task_of] & (after_of == After.END)

    edge = last_notifies(columns, arrivals, columns.static)
    edge = edge[~columns.queued[task_of[edge]]]
    task = task_of[edge]
    began_only = columns.loose[task] | issued[edge]
    value = 2 * columns.seq[task] + ~began_only
    add(edge, numbers.lane(columns.lane[task]), value, lasting=True)

    own = columns.queued[task_of] | (columns.loose[task_of] & (after_of == After.PUT))
    edge = np.flatnonzero(own).astype(np.int64)
    add(edge, numbers.task(task_of[edge]), longs(~issued[edge]), lasting=False)

    loose_lanes = np.zeros(len(columns.lane_size), np.bool_)
    loose_lanes[columns.lane[columns.loose]] = True
    loose = loose_lanes[columns.lane[task_of]] & ~columns.queued[task_of]
    edge = np.flatnonzero(loose & (after_of == After.QUIET)).astype(np.int64)
    task = task_of[edge]
    add(edge, numbers.quiet(columns.lane[task]), columns.seq[task], lasting=True)
    edge = np.flatnonzero(loose & (after_of == After.FENCE)).astype(np.int64)
    task = task_of[edge]
    rank = longs(columns.plan.slots.rank)[arrivals.slot[arrivals.edge_arrival[edge]]]
    add(edge, numbers.fence(columns.lane[task], rank), columns.seq[task], lasting=True)
