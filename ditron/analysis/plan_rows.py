"""A plan's tables while they are collected op by op, and as they stand in the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ditron.analysis.arrays import longs
from ditron.ir import device
from ditron.plan.expr import Values
from ditron.plan.tables import (
    Accesses,
    Arguments,
    Buffer,
    Ints,
    LaneKind,
    LaneOrder,
    Lanes,
    NotifyOp,
    Slots,
    Tasks,
)

LaneOfOp = tuple[str, bool, Values]
"""An op's engine, whether its lanes are queues, and the number of each task's lane."""


@dataclass
class Rows:
    """Columns being collected op by op."""

    columns: dict[str, list[Values]] = field(default_factory=dict[str, list[Values]])

    def add(self, **arrays: Values) -> None:
        """A part of each column."""
        for name, array in arrays.items():
            self.columns.setdefault(name, []).append(np.asarray(array))

    def since(self, mark: Mapping[str, int]) -> dict[str, list[Values]]:
        """What was added after some numbers of parts."""
        return {name: parts[mark.get(name, 0) :] for name, parts in self.columns.items()}

    def mark(self) -> dict[str, int]:
        """The numbers of parts so far."""
        return {name: len(parts) for name, parts in self.columns.items()}

    def get(self, name: str, width: int = 0) -> Values:
        """A column, of rows of `width` numbers if it has any."""
        parts = self.columns.get(name)
        shape = (0, width) if width else (0,)
        return np.concatenate(parts) if parts else np.zeros(shape, dtype=np.int64)

    def sorted(self, *names: str) -> dict[str, Ints]:
        """The columns, stably sorted by task."""
        order = np.argsort(self.get("task"), kind="stable")
        return {name: i32(self.get(name)[order]) for name in names}


def lane_tables(of_op: Sequence[LaneOfOp], rows: Rows) -> tuple[Lanes, Tasks]:
    """The lanes that tasks name, and the tasks with their places on them."""
    op, rank = rows.get("op"), rows.get("rank")
    engines = sorted({engine for engine, _, _ in of_op})
    engine = np.array([engines.index(e) for e, _, _ in of_op], np.int64)[op]
    queue = np.array([q for _, q, _ in of_op], np.int64)[op]
    index = np.concatenate([lane for _, _, lane in of_op] or [op])
    # A queue and a static lane of one number are two lanes.
    width = int(index.max(initial=0)) + 1
    key = ((rank * len(engines) + engine) * 2 + queue) * width + index
    keys, lane = np.unique(key, return_inverse=True)
    order = np.lexsort((rows.get("position"), op, lane))
    seq = np.empty_like(order)
    starts = np.searchsorted(lane[order], np.arange(len(keys)))
    seq[order] = np.arange(len(order)) - starts[lane[order]]
    lane_engine = keys // width // 2 % max(len(engines), 1)
    names = tuple(engines[int(i)] for i in lane_engine)
    is_queue: list[bool] = (keys // width % 2 == 1).tolist()
    lanes = Lanes(
        rank=i32(keys // (width * 2 * max(len(engines), 1))),
        index=i32(keys % width),
        engine=names,
        kind=tuple(LaneKind.PROCESS for _ in names),
        order=tuple(LaneOrder.QUEUE if q else LaneOrder.STATIC for q in is_queue),
        fifo=np.array([n == "copy" for n in names], np.bool_),
    )
    coords = rows.get("coords", device.MAX_GRID_DIMS)
    tasks = Tasks(
        i32(op),
        i32(rank),
        i32(lane),
        i32(seq),
        i32(coords),
        rows.get("flops"),
        rows.get("bytes"),
    )
    return lanes, tasks


def access_table(rows: Rows, buffers: Sequence[Buffer]) -> Accesses:
    """Boxes, padded to the dimensions of the buffer that has most."""
    dims = max((len(b.capacity) for b in buffers), default=1)
    columns = rows.sorted("task", "mode", "buffer", "rank")
    order = np.argsort(rows.get("task"), kind="stable")
    boxes: list[Values] = []
    for name, fill in (("lo", 0), ("hi", 1)):
        box, at = np.full((len(order), dims), fill, np.int64), 0
        for part in rows.columns.get(name, []):
            box[at : at + len(part), : part.shape[1]] = part
            at += len(part)
        boxes.append(box[order])
    return Accesses(**columns, lo=boxes[0], hi=boxes[1])


def argument_table(rows: Rows) -> Arguments:
    """Numbers that kernels are given."""
    task = rows.get("task")
    order = np.argsort(task, kind="stable")
    return Arguments(i32(task[order]), longs(rows.get("value")[order]))


def slot_table(sizes: Sequence[int], ranks: int, notifies: Rows) -> Slots:
    """Arrays of `sizes` slots on every rank, each with what raises it in a launch."""
    per_rank = [np.arange(size) for size in sizes]
    rank = [np.repeat(np.arange(ranks), size) for size in sizes]
    signals = [np.full(ranks * size, i) for i, size in enumerate(sizes)]
    index = [np.tile(p, ranks) for p in per_rank]
    total = sum(sizes) * ranks
    slot, amount = notifies.get("slot"), notifies.get("amount")
    count = np.zeros(total, np.int64)
    sets = notifies.get("op") == NotifyOp.SET
    np.add.at(count, slot[~sets], amount[~sets])
    np.maximum.at(count, slot[sets], amount[sets])
    none = [np.zeros(0, np.int64)]
    return Slots(
        i32(np.concatenate(rank or none)),
        i32(count),
        np.ones(total, np.int32),
        i32(np.concatenate(signals or none)),
        i32(np.concatenate(index or none)),
    )


def moved_slots(slots: Values, bases: Mapping[int, int]) -> Values:
    """Slots of some arrays, by where these begin, as those of others."""
    old = sorted(bases)
    if not old:
        return slots
    by = np.array([bases[base] - base for base in old])
    return slots + by[np.searchsorted(old, slots, side="right") - 1]


def i32(values: Values) -> Ints:
    """As a plan holds it."""
    return np.ascontiguousarray(values, dtype=np.int32)
