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
from ditron.analysis.ring import Tags, mix
from ditron.plan.tables import After, Bools, Boundary, Longs


@dataclass(frozen=True)
class SyncGraph:
    """Nodes: rows first, then arrivals, then launch ends (one a rank, or none).

    `row_task` [R] is the task of each row, `last_row` [T] the row at or before a task on its lane
    in the same launch (-1: none), `lane_tail` [L] the last row of each lane (-1: none). Edges are
    `source`, `target`, `lag` [E]. `waits` are the rows of the plan's waits that do not repeat an
    earlier one of their static lane: what such a one waits for has come before.

    Tasks of a rank's queues that wait for the same are one row. `source_class` [T] is the same for
    queued tasks of a rank that notify the same, which nothing tells apart as what came before;
    `alone` [T] are tasks that share neither row nor class.
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
    source_class: Longs
    alone: Bools

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
        first = self._merge_queues()
        needed = waits
        waits = waits[first[longs(self.plan.waits.task)[waits]] == self.plan.waits.task[waits]]
        self._make_rows(waits, first)
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
            row_task=self.row_task,
            last_row=self.last_row,
            lane_tail=self.lane_tail,
            arrivals=many,
            ends=ends,
            source=source,
            target=target,
            lag=lag,
            waits=needed,
            source_class=self.source_class,
            alone=self.alone,
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

    def _merge_queues(self) -> Longs:
        """Classes of queued tasks; returns for each task the one whose row it shares."""
        columns, arrivals, waits = self.columns, self.arrivals, self.plan.waits
        many = len(self.plan.tasks)
        queued = np.flatnonzero(~self.static[columns.lane]).astype(np.int64)
        first = longs(np.arange(many))
        self.source_class = first.copy()
        self.alone = np.ones(many, np.bool_)
        if not len(queued):
            return first
        # Sets as sums of what looks random: two that differ have one sum once in 2^64.
        lag = int(waits.lag.max(initial=0)) + 1
        waited = _sums(longs(waits.task), arrivals.wait_arrival * lag + waits.lag, many)
        task = longs(self.plan.notifies.task)[arrivals.edge_notify]
        after = columns.after[arrivals.edge_notify]
        told = _sums(task, arrivals.edge_arrival * len(After) + after, many)
        op = self.columns.deferred  # what a notify says of it depends on whether it lands later
        row_of, rows = _classes(queued, columns.rank[queued], waited[queued])
        class_of, classes = _classes(queued, columns.rank[queued] * 2 + op[queued], told[queued])
        first[queued] = row_of
        self.source_class[queued] = class_of
        self.alone[queued] = (rows == 1) & (classes == 1)
        return first

    def _make_rows(self, waits: Longs, first: Longs) -> None:
        columns = self.columns
        is_row = np.zeros(len(self.plan.tasks), np.bool_)
        is_row[self.plan.waits.task[waits]] = True
        is_row |= ~self.static[columns.lane] & (first == np.arange(len(first)))
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
        queued = ~self.static[columns.lane]
        self.last_row[queued] = self.row_of[first[queued]]
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
        both = np.unique(row[here] * (len(self.arrivals) + rows) + arrival[here])
        source, target = np.divmod(both, len(self.arrivals) + rows)
        self._edge(longs(source), longs(target), 0)
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


def _sums(task: Longs, key: Longs, tasks: int) -> Tags:
    """For each task the sum of tags of its keys."""
    total = np.zeros(tasks, np.uint64)
    np.add.at(total, task, mix(key.astype(np.uint64)))
    return total


def _classes(task: Longs, rank: Longs, key: Tags) -> tuple[Longs, Longs]:
    """The first task that has the same rank and key, and how many have."""
    order = np.lexsort((task, key, rank))
    first = changes(rank[order], key[order].astype(np.int64))
    number = np.cumsum(first) - 1
    lead, size = np.empty_like(task), np.empty_like(task)
    lead[order] = task[order][first][number]
    size[order] = np.bincount(number)[number]
    return lead, size
