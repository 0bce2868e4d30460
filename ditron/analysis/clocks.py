"""Vector clocks: what each node of a sync graph knows of the first launch.

A column counts progress that one event implies: of a static lane, of the transfers of a lane that a
fence or a quiet has waited for, or of one task alone. The clock of a node in launch e holds, per
column, how far the first launch's events are sure to have come; happens-before only depends on how
many launches lie between, so that is all there is to know.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ditron.analysis.arrays import changes
from ditron.analysis.arrivals import Arrivals, Columns
from ditron.analysis.clock_seeds import ColumnNumbers, clock_seeds
from ditron.analysis.sync_graph import SyncGraph
from ditron.plan.tables import Longs

Clock = npt.NDArray[np.int16 | np.int32]

# A block of clock columns takes about so many bytes, but has so many columns at least.
BLOCK_BYTES = 1 << 25
BLOCK_COLUMNS = 64
# Nodes with more edges than this are reduced together if so many of a level are alike.
FEW, ALIKE, MIXED = 8, 4, 1 << 40


@dataclass(frozen=True)
class Asked:
    """Questions to sets of clock rows: has `column` of all rows of the set come to `value`?"""

    set: Longs
    column: Longs
    value: Longs


class Clocks:
    """Clocks of every node over `launches` launches, computed column block by column block."""

    def __init__(
        self, columns: Columns, arrivals: Arrivals, graph: SyncGraph, launches: int
    ) -> None:
        self._graph = graph
        self._launches = launches
        self.numbers = ColumnNumbers(columns, graph.source_class)
        top = 2 * int(columns.lane_size.max(initial=0)) + 1
        self._dtype = np.int16 if top < np.iinfo(np.int16).max else np.int32
        self._full = np.iinfo(self._dtype).max
        self._seeds = [
            np.concatenate(part)
            for part in zip(*clock_seeds(columns, arrivals, graph, self.numbers), strict=True)
        ]
        self._plan_levels()
        self._known: Longs = np.zeros(0, np.int64)
        self._clock: Clock = np.zeros((0, 0), np.int16)

    def _plan_levels(self) -> None:
        """Number the nodes level by level, those of a level with as many edges side by side.

        Each step is (first node, end, first edge, edges a node), the last 0 where the nodes have
        different numbers of edges.
        """
        graph = self._graph
        degree = np.bincount(graph.target, minlength=len(graph))
        kind = graph.level * (int(degree.max(initial=0)) + 1) + degree
        _, kind, many = np.unique(kind, return_inverse=True, return_counts=True)
        alike = (degree <= FEW) | (many[kind] >= ALIKE)
        group = np.where(alike, degree, MIXED)
        node = np.lexsort((group, graph.level)).astype(np.int64)
        self._number = np.zeros(len(node) + 1, np.int64)
        self._number[node] = np.arange(len(node))
        order = np.argsort(self._number[graph.target], kind="stable")
        self._edge_source, self._edge_lag = self._number[graph.source[order]], graph.lag[order]
        group, level, degree = group[node], graph.level[node], degree[node]
        self._edge_start = np.cumsum(degree) - degree
        first = np.flatnonzero(changes(level, group))
        ends = np.append(first, len(node))[1:].tolist()
        self._steps: list[tuple[int, int, int, int]] = [
            (a, b, lo, 0 if width == MIXED else width)
            for a, b, lo, width in zip(
                first.tolist(),
                ends,
                self._edge_start[first].tolist(),
                group[first].tolist(),
                strict=True,
            )
            if width
        ]

    @property
    def unknown(self) -> int:
        """The row of a node that knows nothing."""
        return self._launches * len(self._graph)

    def row(self, node: Longs, launch: Longs) -> Longs:
        """The row of a node in a launch."""
        return launch * len(self._graph) + self._number[node]

    def at_least(self, row: Longs, column: Longs, value: Longs) -> npt.NDArray[np.bool_]:
        """Whether the clock in `row` (launch x nodes + node) has come to `value` in `column`."""
        result = np.zeros(len(row), np.bool_)
        needed, which = np.unique(column, return_inverse=True)
        if np.isin(needed, self._known).all():
            place = np.searchsorted(self._known, needed)
            result[:] = self._clock[row, place[which]] >= value
            return result
        width = self._width()
        if len(needed) <= width:
            both = np.union1d(needed, self._known)
            self._known = both if len(both) <= width else needed
            self._clock = self._compute(self._known)
            return self.at_least(row, column, value)
        for clock, mine, place in self._blocks(column):
            result[mine] = clock[row[mine], place] >= value[mine]
        return result

    def all_at_least(self, rows: Longs, start: Longs, asked: Asked) -> npt.NDArray[np.bool_]:
        """Whether, for each question, the clocks of all rows of its set have come to its value.

        `rows[start[i] : start[i + 1]]` is set i, none empty.
        """
        result = np.zeros(len(asked.value), np.bool_)
        size = np.diff(start)
        # Sets of one size are folded together, as many at a time as a block has room for.
        by_size = np.argsort(size, kind="stable")
        heads = np.flatnonzero(changes(size[by_size]))
        groups = np.split(by_size, heads[1:])
        for clock, mine, place in self._blocks(asked.column):
            lowest = np.empty((len(size), clock.shape[1]), clock.dtype)
            for group in groups:
                width = int(size[group[0]])
                many = max(1, BLOCK_BYTES // (clock.shape[1] * clock.itemsize * width))
                for some in np.split(group, np.arange(many, len(group), many)):
                    of = rows[start[some] + np.arange(width)[:, None]]
                    lowest[some] = _fold(np.minimum, clock[of.ravel()], width)
            result[mine] = lowest[asked.set[mine], place] >= asked.value[mine]
        return result

    def _blocks(self, column: Longs) -> Iterator[tuple[Clock, Longs, Longs]]:
        """Clocks of some columns at a time, the questions about them, and their places in it."""
        asked = np.zeros(int(column.max(initial=-1)) + 1, np.bool_)
        asked[column] = True
        needed = np.flatnonzero(asked).astype(np.int64)
        which = (np.cumsum(asked) - 1)[column]
        order = np.argsort(which, kind="stable")
        width, clock = self._width(), None
        for start in range(0, len(needed), width):
            block = needed[start : start + width]
            lo, hi = np.searchsorted(which[order], [start, start + len(block)])
            mine = order[lo:hi]
            clock = self._compute(block, clock)
            yield clock, mine, which[mine] - start

    def _width(self) -> int:
        row_bytes = (self.unknown + 1) * np.dtype(self._dtype).itemsize
        return max(BLOCK_COLUMNS, BLOCK_BYTES // row_bytes)

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
        node, place, value = self._number[node[mine]], place[mine], value[mine]
        order = np.argsort(value, kind="stable")  # the last of equal places stays
        clock[node[order], place[order]] = value[order]
        later = lasting[mine] != 0
        for launch in range(1, self._launches):
            clock[launch * len(self._graph) + node[later], place[later]] = self._full

    def _sweep(self, clock: Clock, source: Longs, base: int) -> None:
        for a, b, lo, width in self._steps:
            known = clock[base + a : base + b]
            if not width:
                start = self._edge_start[a:b]
                end = int(self._edge_start[b]) if b < len(self._edge_start) else len(source)
                each = clock[source[lo:end]]
                np.maximum(known, np.maximum.reduceat(each, start - lo, axis=0), out=known)
                continue
            edges = source[lo : lo + (b - a) * width].reshape(b - a, width)
            if width <= FEW:
                for k in range(width):
                    np.maximum(known, clock[edges[:, k]], out=known)
                continue
            each = _fold(np.maximum, clock[edges.T.ravel()], width)
            np.maximum(known, each, out=known)


def _fold(pick: np.ufunc, rows: Clock, width: int) -> Clock:
    """The lowest or highest of rows `i`, `i + N`, ... of `width x N` rows, for each i < N.

    By halves: that goes through memory in long runs, unlike a reduction.
    """
    each = rows.reshape(width, len(rows) // width, -1)
    while len(each) > 1:
        half = len(each) // 2
        odd = each[2 * half :]
        pick(each[:half], each[half : 2 * half], out=each[:half])
        each = each[:half]
        if len(odd):
            pick(each[0], odd[0], out=each[0])
    return each[0]
