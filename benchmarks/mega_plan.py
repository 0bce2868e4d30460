"""A plan like a MegaKernel's: layers of tiles, each of which reads all that the layer before made.

Activations rotate through three buffers; every sixth layer also reads those of all peers, and two
layers later the buffers are given back. Tiles stand on `workers` static lanes a rank, or on one
queue.
"""

from __future__ import annotations

import numpy as np

from ditron.plan.tables import (
    Accesses,
    After,
    Boundary,
    Buffer,
    LaneKind,
    LaneOrder,
    Lanes,
    Longs,
    Memory,
    Mode,
    Notifies,
    NotifyOp,
    Op,
    OpKind,
    Plan,
    Role,
    Slots,
    Tasks,
    Waits,
)

TILES = 325  # a layer and rank
ROWS = 64  # of a tile
BUFFERS = 3
STRIDE = 6  # layers between those that read from all peers


def mega_plan(tasks: int, ranks: int, workers: int, *, queue: bool) -> Plan:
    """Of about that many tasks."""
    layers = max(STRIDE + 4, round(tasks / ranks / TILES))
    layers += 2 if layers % STRIDE in (1, 2) else 0  # all credits are back before the end
    rank, layer, tile = (_long(a.ravel()) for a in np.indices((ranks, layers, TILES)))
    at = layer * TILES + tile
    lane = rank if queue else rank * workers + at % workers
    seq = at if queue else at // workers
    number = (layer * ranks + rank) * TILES + tile  # ops are layers
    order = np.argsort(number)
    rank, layer, tile, lane, seq = (c[order] for c in (rank, layer, tile, lane, seq))
    number = np.arange(len(order))
    slots = _Counters(ranks, layers)
    note = slots.notifies(number, layer, rank)
    waiters = number if queue else _first_of_layer(layer, lane)
    wait = slots.waits(waiters, layer[waiters], rank[waiters])
    count = np.bincount(note[1], minlength=slots.size)
    engines = ranks if queue else ranks * workers
    return Plan(
        name="mega_queue" if queue else "mega",
        ranks=ranks,
        boundary=Boundary.STREAM,
        copies=1,
        heap_bytes=0,
        ops=tuple(Op(f"layer{k}", OpKind.CALL, "sm", "tile", f"mega:{k}") for k in range(layers)),
        buffers=tuple(_activation(f"act{i}", ranks) for i in range(BUFFERS)),
        signals=("done",),
        lanes=Lanes(
            _i32(np.arange(engines) // (engines // ranks)),
            _i32(np.arange(engines) % (engines // ranks)),
            ("sm",) * engines,
            (LaneKind.WORKER,) * engines,
            (LaneOrder.QUEUE if queue else LaneOrder.STATIC,) * engines,
            np.zeros(engines, np.bool_),
        ),
        tasks=Tasks(
            _i32(layer),
            _i32(rank),
            _i32(lane),
            _i32(seq),
            _i32(np.stack([tile, *[tile * 0] * 5], 1)),
            np.zeros(len(number), np.int64),
            np.zeros(len(number), np.int64),
        ),
        accesses=_accesses(number, layer, rank, tile, ranks),
        slots=Slots(
            *map(_i32, (np.arange(slots.size) // ranks % ranks, count, np.ones(slots.size))),
            *map(_i32, (np.zeros(slots.size), np.arange(slots.size))),
        ),
        waits=Waits(*_sorted(*wait, count[wait[1]], wait[0] * 0)),
        notifies=Notifies(
            *_sorted(
                *note,
                np.ones(len(note[0])),
                np.full(len(note[0]), int(NotifyOp.ADD)),
                np.full(len(note[0]), int(After.END)),
            )
        ),
    )


class _Counters:
    """A slot a (layer, waiting rank, notifying rank): how many tiles of these are done."""

    def __init__(self, ranks: int, layers: int) -> None:
        self._ranks, self._layers = ranks, layers
        self.size = layers * ranks * ranks

    def _slot(self, layer: Longs, at: Longs, by: Longs) -> Longs:
        return (layer * self._ranks + at) * self._ranks + by

    def _gathers(self, layer: Longs) -> np.ndarray:
        return (layer > 0) & (layer % STRIDE == 0) & (layer < self._layers)

    def notifies(self, task: Longs, layer: Longs, rank: Longs) -> tuple[Longs, Longs]:
        """Task and slot: its own rank's, and all where peers read it or wait for its reads."""
        wide = self._gathers(layer + 1) | self._gathers(layer)
        return self._spread(task, layer, rank, wide, own_is_waiter=False)

    def waits(self, task: Longs, layer: Longs, rank: Longs) -> tuple[Longs, Longs]:
        """Task and slot: the layer before, of all ranks where it reads them; and the credits."""
        later = layer > 0
        back = self._gathers(layer - 2)
        parts = [
            self._spread(
                task[later],
                layer[later] - 1,
                rank[later],
                self._gathers(layer[later]),
                own_is_waiter=True,
            ),
            self._spread(task[back], layer[back] - 2, rank[back], back[back], own_is_waiter=True),
        ]
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])

    def _spread(
        self, task: Longs, layer: Longs, rank: Longs, wide: np.ndarray, *, own_is_waiter: bool
    ) -> tuple[Longs, Longs]:
        many = np.where(wide, self._ranks, 1)
        row = np.repeat(np.arange(len(task)), many)
        peer = np.arange(len(row)) - np.repeat(np.cumsum(many) - many, many)
        peer = np.where(wide[row], peer, rank[row])
        at, by = (rank[row], peer) if own_is_waiter else (peer, rank[row])
        return task[row], self._slot(layer[row], at, by)


def _first_of_layer(layer: Longs, lane: Longs) -> Longs:
    """The first task of each layer on each lane; the others follow it."""
    return np.sort(np.unique(layer * (lane.max() + 1) + lane, return_index=True)[1])


def _accesses(number: Longs, layer: Longs, rank: Longs, tile: Longs, ranks: int) -> Accesses:
    """Each tile reads the whole of what came before, of all ranks every so often; writes itself."""
    reads = layer > 0
    wide = reads & (layer % STRIDE == 0)
    many = np.where(wide, ranks, 1)[reads]
    row = np.repeat(np.flatnonzero(reads), many)
    peer = np.arange(len(row)) - np.repeat(np.cumsum(many) - many, many)
    owner = np.where(wide[row], peer, rank[row])
    task = np.concatenate([number[row], number])
    mode = np.repeat([int(Mode.READ), int(Mode.WRITE)], [len(row), len(number)])
    buffer = np.concatenate([(layer[row] - 1) % BUFFERS, layer % BUFFERS])
    lo = np.concatenate([row * 0, tile * ROWS])
    hi = np.concatenate([row * 0 + TILES * ROWS, tile * ROWS + ROWS])
    owner = np.concatenate([owner, rank])
    order = np.argsort(task, kind="stable")
    task, mode, buffer, owner = (_i32(c[order]) for c in (task, mode, buffer, owner))
    return Accesses(task, mode, buffer, owner, lo[order, None], hi[order, None])


def _activation(name: str, ranks: int) -> Buffer:
    shape = (TILES * ROWS,)
    extent = np.tile(np.array(shape, np.int64), (ranks, 1))
    return Buffer(name, "bf16", shape, extent, Memory.SYMMETRIC, Role.SCRATCH)


def _long(values: object) -> Longs:
    return np.asarray(values, np.int64)


def _i32(values: object) -> np.ndarray:
    return np.asarray(values).astype(np.int32)


def _sorted(*columns: np.ndarray) -> list[np.ndarray]:
    order = np.argsort(columns[0], kind="stable")
    return [_i32(c[order]) for c in columns]
