"""How long the proofs take on plans of growing size.

    python benchmarks/proofs.py [--ranks 8] [--workers 132] [tasks ...]

The plan is an all-gather by pushes fused with a matmul: on each rank `workers` lanes run the tiles,
and one copy lane a peer pushes chunks of x, each with a signal; credits go back to the senders. Two
launches are compared, as always.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

from ditron.analysis.deadlock import check_deadlock
from ditron.analysis.happens_before import happens_before
from ditron.analysis.races import check_races
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

CHUNK = 64  # rows
TILE = 128  # columns


def ag_gemm_plan(tasks: int, ranks: int, workers: int) -> Plan:
    """An all-gather + matmul plan of about that many tasks, with chunks as high as tiles."""
    across = max(1, round((tasks / ranks / ranks) ** 0.5 / 2))
    chunks = max(1, round(tasks / ranks / ranks / across))  # of one rank
    rows, pushes = chunks * ranks, chunks * (ranks - 1)
    tiles = rows * across

    # Pushes come first: rank, peer offset p, chunk c; then tiles: rank, m (own rows first), n.
    r1, p, c = (a.ravel() for a in np.indices((ranks, ranks - 1, chunks)))
    dst = (r1 + p + 1) % ranks
    r2, m, n = (a.ravel() for a in np.indices((ranks, rows, across)))
    row = (m + r2 * chunks) % rows
    tile = m * across + n
    lanes_a_rank = ranks - 1 + workers
    lane = np.concatenate([r1 * lanes_a_rank + p, r2 * lanes_a_rank + ranks - 1 + tile % workers])
    seq = np.concatenate([c, tile // workers])
    first_tile = ranks * pushes
    number = first_tile + np.arange(ranks * tiles)

    # x [chunk rows] -> xg at the peer; a tile reads xg and w and writes y.
    count = len(lane)
    k = 1024
    buffers = (
        _buffer("x", (chunks * CHUNK, k), ranks, Role.INPUT),
        _buffer("xg", (rows * CHUNK, k), ranks, Role.SCRATCH),
        _buffer("w", (k, across * TILE), ranks, Role.WEIGHT),
        _buffer("y", (rows * CHUNK, across * TILE), ranks, Role.OUTPUT),
    )
    g = r1 * chunks + c
    own = row // chunks == r2
    zero, full = np.zeros_like(row), np.full_like(row, k)
    read_row = np.where(own, row % chunks, row)
    boxes = [
        (np.arange(first_tile), Mode.READ, 0, r1, c * CHUNK, c * CHUNK + CHUNK, c * 0, c * 0 + k),
        (np.arange(first_tile), Mode.WRITE, 1, dst, g * CHUNK, g * CHUNK + CHUNK, g * 0, g * 0 + k),
        (
            number,
            Mode.READ,
            np.where(own, 0, 1),
            r2,
            read_row * CHUNK,
            read_row * CHUNK + CHUNK,
            zero,
            full,
        ),
        (number, Mode.READ, 2, r2, zero, full, n * TILE, n * TILE + TILE),
        (number, Mode.WRITE, 3, r2, row * CHUNK, row * CHUNK + CHUNK, n * TILE, n * TILE + TILE),
    ]
    # A slot a (rank, chunk row) for arrival, and one a (sender, peer) for the credit.
    ready = r2 * rows + row
    waiting = np.flatnonzero(~own)
    base = ranks * rows
    credit = base + r1 * ranks + dst
    # Each tile on a peer's rows gives that peer a credit.
    owner = row[waiting] // chunks
    wait_task = np.concatenate([np.arange(first_tile), number[waiting]])
    wait_slot = np.concatenate([credit, ready[waiting]])
    wait_value = np.concatenate([np.full(first_tile, chunks * across), np.ones(len(waiting))])
    wait_lag = np.concatenate([np.ones(first_tile), np.zeros(len(waiting))])
    note_task = np.concatenate([np.arange(first_tile), number[waiting]])
    note_slot = np.concatenate([dst * rows + g, base + owner * ranks + r2[waiting]])
    slots = base + ranks * ranks
    slot_count = np.bincount(note_slot, minlength=slots)
    op = np.repeat([0, 1], [first_tile, len(number)])
    coords = np.zeros((count, 6), np.int64)
    coords[:first_tile, :2] = np.stack([p, c], 1)
    coords[first_tile:, :2] = np.stack([m, n], 1)
    lane_rank = np.repeat(np.arange(ranks), lanes_a_rank)
    index = np.tile(np.r_[np.arange(ranks - 1), np.arange(workers)], ranks)
    engine = (["copy"] * (ranks - 1) + ["sm"] * workers) * ranks
    return Plan(
        name="ag_gemm",
        ranks=ranks,
        boundary=Boundary.STREAM,
        copies=1,
        heap_bytes=0,
        ops=(
            Op("gather", OpKind.PUT, "copy", "", "benchmark:1", deferred=True),
            Op("matmul", OpKind.CALL, "sm", "matmul", "benchmark:2"),
        ),
        buffers=buffers,
        signals=("ready", "free"),
        lanes=Lanes(
            _i32(lane_rank),
            _i32(index),
            tuple(engine),
            tuple(LaneKind.WORKER for _ in engine),
            tuple(LaneOrder.STATIC for _ in engine),
            np.array([e == "copy" for e in engine], np.bool_),
        ),
        tasks=Tasks(
            _i32(op),
            _i32(np.concatenate([r1, r2])),
            _i32(lane),
            _i32(seq),
            _i32(coords),
            np.zeros(count, np.int64),
            np.zeros(count, np.int64),
        ),
        accesses=_accesses(boxes),
        slots=Slots(
            _i32(np.r_[np.repeat(np.arange(ranks), rows), np.repeat(np.arange(ranks), ranks)]),
            _i32(slot_count),
            np.ones(slots, np.int32),
            _i32(np.arange(slots) >= base),
            _i32(np.r_[np.tile(np.arange(rows), ranks), np.tile(np.arange(ranks), ranks)]),
        ),
        waits=Waits(*_sorted(wait_task, wait_slot, wait_value, wait_lag)),
        notifies=Notifies(
            *_sorted(
                note_task,
                note_slot,
                np.ones(len(note_task)),
                np.full(len(note_task), int(NotifyOp.ADD)),
                np.where(note_task < first_tile, int(After.PUT), int(After.END)),
            )
        ),
    )


def _buffer(name: str, shape: tuple[int, ...], ranks: int, role: Role) -> Buffer:
    extent = np.tile(np.array(shape, np.int64), (ranks, 1))
    return Buffer(name, "bf16", shape, extent, Memory.SYMMETRIC, role)


def _i32(values: object) -> np.ndarray:
    return np.asarray(values).astype(np.int32)


def _sorted(*columns: Longs) -> list[np.ndarray]:
    order = np.argsort(columns[0], kind="stable")
    return [_i32(c[order]) for c in columns]


def _accesses(boxes: list[tuple[object, ...]]) -> Accesses:
    parts = [np.broadcast_arrays(*map(np.asarray, box)) for box in boxes]
    task, mode, buffer, rank, lo0, hi0, lo1, hi1 = map(np.concatenate, zip(*parts, strict=True))
    order = np.argsort(task, kind="stable")
    lo = np.stack([lo0, lo1], 1)[order].astype(np.int64)
    hi = np.stack([hi0, hi1], 1)[order].astype(np.int64)
    return Accesses(*(_i32(c[order]) for c in (task, mode, buffer, rank)), lo, hi)


def main() -> None:
    """Print a row for each size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", type=int, default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--workers", type=int, default=132)
    args = parser.parse_args()
    out = sys.stdout
    out.write("    tasks  lanes    waits   pairs asked  deadlock s  order s  races s    all s\n")
    for tasks in args.tasks:
        plan = ag_gemm_plan(tasks, args.ranks, args.workers)
        t0 = time.perf_counter()
        check_deadlock(plan)
        t1 = time.perf_counter()
        order = happens_before(plan)
        t2 = time.perf_counter()
        report = check_races(plan, order)
        t3 = time.perf_counter()
        out.write(
            f"{len(plan.tasks):9,d} {len(plan.lanes):6,d} {len(plan.waits):8,d}"
            f" {report.pairs:13,d} {t1 - t0:11.3f} {t2 - t1:8.3f} {t3 - t2:8.3f} {t3 - t0:8.3f}\n"
        )
        out.flush()


if __name__ == "__main__":
    main()
