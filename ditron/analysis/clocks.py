"""Vector clocks: what each node of a sync graph knows of the first launch.

A column counts progress that one event implies: of a static lane, of the transfers of a lane that a
fence or a quiet has waited for, or of one task alone. The clock of a node in launch e holds, per
column, how far the first launch's events are sure to have come; happens-before only depends on how
many launches lie between, so that is all there is to know.

Lane columns hold 2 x seq once a task has begun and 2 x seq + 1 once it has ended (in a fifo lane:
landed). Fence and quiet columns hold seq, single-task columns 0 (begun) and 1 (done).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ditron.analysis.arrays import changes, longs
from ditron.analysis.arrivals import Arrivals, Columns
from ditron.analysis.sync_graph import SyncGraph, last_notifies
from ditron.plan.tables import After, Longs

Clock = npt.NDArray[np.int16 | np.int32]

# A block of clock columns takes about so many bytes, but has so many columns at least.
BLOCK_BYTES = 1 << 25
BLOCK_COLUMNS = 64
# Nodes with more edges than this are reduced one by one.
FEW = 8


class ColumnNumbers:
    """Where each kind of column starts in the numbering of all columns."""

    def __init__(self, columns: Columns) -> None:
        self._lanes = len(columns.lane_size)
        self._ranks = columns.plan.ranks

    def lane(self, lane: Longs) -> Longs:
        return lane

    def quiet(self, lane: Longs) -> Longs:
        """All transfers of a lane so far."""
        return self._lanes + lane

    def fence(self, lane: Longs, rank: Longs) -> Longs:
        """All puts of a lane to one rank so far."""
        return 2 * self._lanes + lane * self._ranks + rank

    def task(self, task: Longs) -> Longs:
        """One task's own transfer, or a task of a queue."""
        return self._lanes * (2 + self._ranks) + task


class Clocks:
    """Clocks of every node over `launches` launches, computed column block by column block."""

    def __init__(
        self, columns: Columns, arrivals: Arrivals, graph: SyncGraph, launches: int
    ) -> None:
        self._graph = graph
        self._launches = launches
        self.numbers = ColumnNumbers(columns)
        top = 2 * int(columns.lane_size.max(initial=0)) + 1
        self._dtype = np.int16 if top < np.iinfo(np.int16).max else np.int32
        self._full = np.iinfo(self._dtype).max
        self._seeds = [
            np.concatenate(part)
            for part in zip(*_seeds(columns, arrivals, graph, self.numbers), strict=True)
        ]
        self._plan_levels()
        self._known: Longs = np.zeros(0, np.int64)
        self._clock: Clock = np.zeros((0, 0), np.int16)

    def _plan_levels(self) -> None:
        """Sort the edges so that a level's targets with as many edges are one slice.

        Each step is (slice of targets, slice of edges, edges a target), the last 0 where the
        targets of a slice have many edges, each its own number.
        """
        graph = self._graph
        degree = np.bincount(graph.target, minlength=len(graph))
        group = np.where(degree > FEW, 0, degree)
        keys = (graph.target, group[graph.target], graph.level[graph.target])
        order = np.lexsort(keys)
        target = graph.target[order]
        self._edge_source, self._edge_lag = graph.source[order], graph.lag[order]
        self._node_start = np.flatnonzero(changes(target)).astype(np.int64)
        self._node = target[self._node_start]
        group, level = group[self._node], graph.level[self._node]
        nodes = np.append(np.flatnonzero(changes(level, group)), len(group))
        edges = np.append(self._node_start, len(target))[nodes]
        self._steps: list[tuple[slice, slice, int]] = [
            (slice(a, b), slice(lo, hi), width)
            for a, b, lo, hi, width in zip(
                nodes[:-1].tolist(),
                nodes[1:].tolist(),
                edges[:-1].tolist(),
                edges[1:].tolist(),
                group[nodes[:-1]].tolist(),
                strict=True,
            )
        ]

    @property
    def unknown(self) -> int:
        """The row of a node that knows nothing."""
        return self._launches * len(self._graph)

    def at_least(self, row: Longs, column: Longs, value: Longs) -> npt.NDArray[np.bool_]:
        """Whether the clock in `row` (launch x nodes + node) has come to `value` in `column`."""
        result = np.zeros(len(row), np.bool_)
        needed, which = np.unique(column, return_inverse=True)
        if np.isin(needed, self._known).all():
            place = np.searchsorted(self._known, needed)
            result[:] = self._clock[row, place[which]] >= value
            return result
        row_bytes = (self.unknown + 1) * np.dtype(self._dtype).itemsize
        width = max(BLOCK_COLUMNS, BLOCK_BYTES // row_bytes)
        if len(needed) <= width:
            both = np.union1d(needed, self._known)
            self._known = both if len(both) <= width else needed
            self._clock = self._compute(self._known)
            return self.at_least(row, column, value)
        order = np.argsort(which, kind="stable")
        clock = None
        for start in range(0, len(needed), width):
            block = needed[start : start + width]
            lo, hi = np.searchsorted(which[order], [start, start + len(block)])
            mine = order[lo:hi]
            clock = self._compute(block, clock)
            result[mine] = clock[row[mine], which[mine] - start] >= value[mine]
        return result

    def _compute(self, block: Longs, reuse: Clock | None = None) -> Clock:
        """The clocks [launches x nodes + 1, columns of the block], in memory to use again."""
        nodes = len(self._graph)
        shape = (self._launches * nodes + 1, len(block))
        clock = np.empty(shape, self._dtype) if reuse is None or reuse.shape != shape else reuse
        clock.fill(-1)
        self._sow(clock, block)
        for launch in range(self._launches):
            back = launch - self._edge_lag
            source = np.where(back < 0, len(clock) - 1, back * nodes + self._edge_source)
            self._sweep(clock, source, launch * nodes)
        return clock

    def _sow(self, clock: Clock, block: Longs) -> None:
        """What nodes know by themselves; later launches know all of the first on the lane."""
        node, column, value, lasting = self._seeds
        place = np.minimum(np.searchsorted(block, column), len(block) - 1)
        mine = block[place] == column
        node, place, value = node[mine], place[mine], value[mine]
        order = np.argsort(value, kind="stable")  # the last of equal places stays
        clock[node[order], place[order]] = value[order]
        later = lasting[mine] != 0
        for launch in range(1, self._launches):
            clock[launch * len(self._graph) + node[later], place[later]] = self._full

    def _sweep(self, clock: Clock, source: Longs, base: int) -> None:
        for nodes, edges, width in self._steps:
            target = base + self._node[nodes]
            known = clock[target]
            if width:
                for k in range(width):
                    np.maximum(known, clock[source[edges][k::width]], out=known)
            else:
                start = self._node_start[nodes] - edges.start
                each = np.maximum.reduceat(clock[source[edges]], start, axis=0)
                np.maximum(known, each, out=known)
            clock[target] = known


Seeds = list[tuple[Longs, Longs, Longs, Longs]]


def _seeds(columns: Columns, arrivals: Arrivals, graph: SyncGraph, numbers: ColumnNumbers) -> Seeds:
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
