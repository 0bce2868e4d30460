"""One launch as a graph of the few points where lanes meet.

Nodes are *rows* (tasks that wait, and tasks that start a lane or stand in a queue), *arrivals* of
increments, and, under boundary `stream`, the end of the launch on each rank. An edge of lag d
starts d launches earlier. A task without a row knows what the last row before it on its lane knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ditron.analysis.arrays import changes, last_of_run, longs, offsets, spans
from ditron.analysis.arrivals import Arrivals, Columns
from ditron.plan.tables import Bools, Boundary, Longs


@dataclass(frozen=True)
class SyncGraph:
    """Nodes: rows first, then arrivals, then launch ends (one a rank, or none).

    `row_task` [R] is the task of each row, `last_row` [T] the row at or before a task on its lane
    in the same launch (-1: none), `lane_tail` [L] the last row of each lane (-1: none). Edges are
    `source`, `target`, `lag` [E]. `waits` are the rows of the plan's waits that do not repeat an
    earlier one of their static lane: what such a one waits for has come before.
    """

    row_task: Longs
    last_row: Longs
    lane_tail: Longs
    arrivals: int
    ends: int
    source: Longs
    target: Longs
    lag: Longs
    waits: Longs

    @property
    def rows(self) -> int:
        return len(self.row_task)

    def __len__(self) -> int:
        return self.rows + self.arrivals + self.ends

    @cached_property
    def level(self) -> Longs:
        """Longest path to each node within a launch; -1 on and after a cycle."""
        now = self.lag == 0
        return topological_levels(self.source[now], self.target[now], len(self))

    @property
    def acyclic(self) -> bool:
        """Whether every node can be reached in order."""
        return not (self.level < 0).any()

    def task_order(self, columns: Columns) -> Longs:
        """Each task's place in one order of a launch that agrees with happens-before.

        What the host does comes before and after everything else of the launch.
        """
        level = np.append(self.level, -1)[self.last_row]
        level[columns.acquires], level[columns.releases] = -2, len(self)
        phase = longs(columns.releases) - longs(columns.acquires)
        order = np.lexsort((columns.lane, columns.seq, level, phase))
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return longs(place)


def topological_levels(source: Longs, target: Longs, size: int) -> Longs:
    """Longest path from a source to each of `size` nodes; -1 on and after a cycle."""
    order = np.argsort(source, kind="stable")
    out = offsets(source[order], size)
    successors = target[order]
    waiting = np.bincount(target, minlength=size)
    level = np.full(size, -1, np.int64)
    front = np.flatnonzero(waiting == 0)
    depth = 0
    while len(front):
        level[front] = depth
        start = out[front]
        reached = successors[spans(start, out[front + 1] - start)]
        if len(reached) * 8 < size:
            reached, times = np.unique(reached, return_counts=True)
            waiting[reached] -= times
            front = reached[waiting[reached] == 0]
        else:
            waiting -= np.bincount(reached, minlength=size)
            ready = waiting == 0
            ready &= level < 0
            front = np.flatnonzero(ready)
        depth += 1
    return level


def build_sync_graph(columns: Columns, arrivals: Arrivals, *, queues_ordered: bool) -> SyncGraph:
    """The graph of one launch; `queues_ordered` takes each queue for one static lane."""
    return _Builder(columns, arrivals, queues_ordered=queues_ordered).build()


def last_notifies(columns: Columns, arrivals: Arrivals, static: Bools) -> Longs:
    """Edges of arrivals that say all: of each static lane only the last notify."""
    task = longs(columns.plan.notifies.task)[arrivals.edge_notify]
    lane = columns.lane[task]
    lane = np.where(static[lane], lane, len(static) + task)
    after = columns.after[arrivals.edge_notify]
    order = np.lexsort((after, columns.seq[task], lane, arrivals.edge_arrival))
    first = changes(arrivals.edge_arrival[order], lane[order])
    return longs(order[last_of_run(first)])


class _Builder:
    def __init__(self, columns: Columns, arrivals: Arrivals, *, queues_ordered: bool) -> None:
        self.columns = columns
        self.arrivals = arrivals
        self.plan = columns.plan
        self.static = columns.static | queues_ordered
        self.stream = self.plan.boundary is Boundary.STREAM
        self.edges: list[tuple[Longs, Longs, Longs]] = []

    def build(self) -> SyncGraph:
        waits = self._needed_waits()
        self._make_rows(waits)
        rows, many = len(self.row_task), len(self.arrivals)
        task = longs(self.plan.waits.task)[waits]
        self._edge(
            rows + self.arrivals.wait_arrival[waits],
            self.row_of[task],
            longs(self.plan.waits.lag)[waits],
        )
        self._lane_edges()
        self._notify_edges(rows)
        ends = self.plan.ranks if self.stream else 0
        if self.stream:
            self._boundary_edges(rows + many)
        source, target, lag = (np.concatenate(c) for c in zip(*self.edges, strict=True))
        return SyncGraph(
            self.row_task, self.last_row, self.lane_tail, many, ends, source, target, lag, waits
        )

    def _edge(self, source: Longs, target: Longs, lag: Longs | int) -> None:
        self.edges.append((source, target, np.broadcast_to(longs(lag), source.shape)))

    def _needed_waits(self) -> Longs:
        """Waits that do not repeat an earlier one of their static lane."""
        waits, columns = self.plan.waits, self.columns
        task, lag = longs(waits.task), longs(waits.lag)
        lane = columns.lane[task]
        lane = np.where(self.static[lane], lane, len(self.static) + task)
        order = np.lexsort((columns.seq[task], lag, self.arrivals.wait_arrival, lane))
        first = changes(lane[order], self.arrivals.wait_arrival[order], lag[order])
        return order[first].astype(np.int64)

    def _make_rows(self, waits: Longs) -> None:
        columns = self.columns
        is_row = np.zeros(len(self.plan.tasks), np.bool_)
        is_row[self.plan.waits.task[waits]] = True
        is_row |= ~self.static[columns.lane]
        if self.stream:
            is_row |= columns.seq == 0
        self.row_task = np.flatnonzero(is_row).astype(np.int64)
        self.row_of = np.full(len(is_row), -1, np.int64)
        self.row_of[self.row_task] = np.arange(len(self.row_task))
        # In lane order, the last row at or before each task.
        order = columns.lane_order
        place = np.where(is_row[order], np.arange(len(order)), -1)
        last = np.maximum.accumulate(place) if len(place) else place
        found = last >= columns.lane_start[columns.lane[order]]
        self.last_row = np.empty(len(order), np.int64)
        self.last_row[order] = np.where(found, self.row_of[order[last]], -1)
        full = np.flatnonzero(columns.lane_size)
        self.lane_tail = np.full(len(self.plan.lanes), -1, np.int64)
        self.lane_tail[full] = self.last_row[order[columns.lane_start[full + 1] - 1]]

    def _lane_edges(self) -> None:
        """From each row to the next of its static lane, and on to the next launch."""
        columns, task = self.columns, self.row_task
        order = np.lexsort((columns.seq[task], columns.lane[task]))
        order = order[self.static[columns.lane[task[order]]]]
        lane = columns.lane[task[order]]
        first = changes(lane)
        self._edge(longs(order[:-1][~first[1:]]), longs(order[1:][~first[1:]]), 0)
        self._edge(longs(order[last_of_run(first)]), longs(order[first]), 1)

    def _notify_edges(self, rows: int) -> None:
        """From the rows that notifying tasks follow, to the arrival."""
        last = last_notifies(self.columns, self.arrivals, self.static)
        task = longs(self.plan.notifies.task)[self.arrivals.edge_notify[last]]
        arrival = rows + self.arrivals.edge_arrival[last]
        row = self.last_row[task]
        here = row >= 0
        self._edge(row[here], arrival[here], 0)
        row = self.lane_tail[self.columns.lane[task]]
        before = ~here & (row >= 0)
        self._edge(row[before], arrival[before], 1)

    def _boundary_edges(self, base: int) -> None:
        """All tasks of a rank before all tasks of that rank in the next launch."""
        columns, task = self.columns, self.row_task
        static = self.static[columns.lane[task]]
        rank = base + columns.rank[task]
        ends = ~static | (self.lane_tail[columns.lane[task]] == np.arange(len(task)))
        self._edge(np.flatnonzero(ends).astype(np.int64), rank[ends], 0)
        starts = ~static | (columns.seq[task] == 0)
        self._edge(rank[starts], np.flatnonzero(starts).astype(np.int64), 1)
