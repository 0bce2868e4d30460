"""How long the proofs take on plans of growing size.

    python -m benchmarks.proofs [--ranks 8] [--workers 132] [--kind ag_gemm] [tasks ...]

Three plans: `mega` and `queue` are those of `mega_plan.py`. `ag_gemm` is an all-gather by pushes
fused with a matmul: on each rank `workers` lanes run the tiles, and one copy lane a peer pushes
chunks of x, each with a signal; credits go back to the senders. Two launches are compared, as
always.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

import numpy as np

from benchmarks.mega_plan import mega_plan
from ditron.analysis.deadlock import check_deadlock
from ditron.analysis.races import check_races
from ditron.plan.tables import (
    Accesses,
    After,
    Boundary,
    Buffer,
    LaneKind,
    LaneOrder,
    Lanes,
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

KINDS = ("ag_gemm", "mega", "queue")
HEAD = (
    "plan         tasks  lanes     waits   accesses questions  deadlock s  races s    all s"
    "    cpu s  plan GB  peak GB\n"
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
    read_row = row - own * (row - row % chunks)
    boxes: list[tuple[object, ...]] = [
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


def _sorted(*columns: np.ndarray) -> list[np.ndarray]:
    order = np.argsort(columns[0], kind="stable")
    return [_i32(c[order]) for c in columns]


def _accesses(boxes: list[tuple[object, ...]]) -> Accesses:
    parts = [np.broadcast_arrays(*map(np.asarray, box)) for box in boxes]
    task, mode, buffer, rank, lo0, hi0, lo1, hi1 = map(np.concatenate, zip(*parts, strict=True))
    order = np.argsort(task, kind="stable")
    lo = np.stack([lo0, lo1], 1)[order].astype(np.int64)
    hi = np.stack([hi0, hi1], 1)[order].astype(np.int64)
    task, mode, buffer, rank = (_i32(c[order]) for c in (task, mode, buffer, rank))
    return Accesses(task, mode, buffer, rank, lo, hi)


def measure(kind: str, tasks: int, ranks: int, workers: int) -> str:
    """A row of the table: one plan, proved in this process."""
    if kind == "ag_gemm":
        plan = ag_gemm_plan(tasks, ranks, workers)
    else:
        plan = mega_plan(tasks, ranks, workers, queue=kind == "queue")
    before = _peak_gb()
    t0, c0 = time.perf_counter(), time.process_time()
    check_deadlock(plan)
    t1 = time.perf_counter()
    report = check_races(plan)
    t2, c2 = time.perf_counter(), time.process_time()
    return (
        f"{kind:8} {len(plan.tasks):9,d} {len(plan.lanes):6,d} {len(plan.waits):9,d}"
        f" {len(plan.accesses):10,d} {report.pairs:10,d} {t1 - t0:11.2f} {t2 - t1:8.2f}"
        f" {t2 - t0:8.2f} {c2 - c0:8.2f} {before:8.2f} {_peak_gb():8.2f}\n"
    )


def _peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> None:
    """Print a row for each plan and size, each from a process of its own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tasks", nargs="*", type=int, default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--workers", type=int, default=132)
    parser.add_argument("--kind", choices=KINDS, help="only this plan, in this process")
    args = parser.parse_args()
    if args.kind:
        for tasks in args.tasks:
            sys.stdout.write(measure(args.kind, tasks, args.ranks, args.workers))
        return
    sys.stdout.write(HEAD)
    for kind in KINDS:
        for tasks in args.tasks:
            sys.stdout.flush()
            more = [f"--ranks={args.ranks}", f"--workers={args.workers}", f"--kind={kind}"]
            command = [sys.executable, "-m", "benchmarks.proofs", str(tasks), *more]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
