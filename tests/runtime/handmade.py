"""Plans written by hand for the runtime's tests, so that they need no compiler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from ditron.plan import tables as t

Box = tuple[slice, ...]
Access = tuple[t.Mode, str, int, Box]
Wait = tuple[int, int, int]  # slot, value, lag
Notify = tuple[int, int, t.NotifyOp, t.After]  # slot, amount, op, after


@dataclass
class Task:
    op: int
    rank: int
    lane: int
    coords: tuple[int, ...]
    accesses: list[Access] = field(default_factory=list[Access])
    waits: list[Wait] = field(default_factory=list[Wait])
    notifies: list[Notify] = field(default_factory=list[Notify])


class Maker:
    """Collects a plan's rows in any order and sorts them into tables."""

    def __init__(self, ranks: int, boundary: t.Boundary = t.Boundary.STREAM, copies: int = 1):
        self.ranks, self.boundary, self.copies = ranks, boundary, copies
        self.ops: list[t.Op] = []
        self.buffers: dict[str, t.Buffer] = {}
        self.lanes: list[tuple[int, str, int, t.LaneOrder, bool]] = []
        self.slots: list[tuple[int, int, int, int, int]] = []
        self.signals: list[str] = []
        self.tasks: list[Task] = []

    def buffer(
        self,
        name: str,
        extents: Sequence[Sequence[int]],
        dtype: str = "f32",
        role: t.Role = t.Role.SCRATCH,
        copies: int = 1,
    ) -> None:
        extent = np.array(extents, np.int64)
        capacity = tuple(extent.max(axis=0).tolist())
        memory = t.Memory.SYMMETRIC
        self.buffers[name] = t.Buffer(name, dtype, capacity, extent, memory, role, -1, copies)

    def op(self, name: str, kind: t.OpKind, kernel: str = "", *, deferred: bool = False) -> int:
        engine = "sm" if kind is t.OpKind.CALL else "copy"
        self.ops.append(t.Op(name, kind, engine, kernel, f"user.py:{len(self.ops) + 1}", deferred))
        return len(self.ops) - 1

    def lane(
        self,
        rank: int,
        engine: str,
        index: int = 0,
        order: t.LaneOrder = t.LaneOrder.STATIC,
        *,
        fifo: bool = False,
    ) -> int:
        self.lanes.append((rank, engine, index, order, fifo))
        return len(self.lanes) - 1

    def slot(self, signal: str, rank: int, index: int, count: int, copies: int = 1) -> int:
        if signal not in self.signals:
            self.signals.append(signal)
        self.slots.append((rank, count, copies, self.signals.index(signal), index))
        return len(self.slots) - 1

    def task(self, op: int, rank: int, lane: int, *coords: int) -> Task:
        self.tasks.append(Task(op, rank, lane, coords))
        return self.tasks[-1]

    def plan(self, name: str = "handmade") -> t.Plan:
        seqs = dict.fromkeys(range(len(self.lanes)), 0)
        seq: dict[int, int] = {}
        for task in self.tasks:  # lane order is the order in which the tasks were made
            seq[id(task)] = seqs[task.lane]
            seqs[task.lane] += 1
        tasks = sorted(self.tasks, key=lambda x: (x.op, x.rank, x.coords))
        names = list(self.buffers)
        dims = max(len(b.capacity) for b in self.buffers.values())
        accesses = [(i, *a) for i, x in enumerate(tasks) for a in x.accesses]
        lo = [[s.start for s in a[4]] + [0] * (dims - len(a[4])) for a in accesses]
        hi = [[s.stop for s in a[4]] + [1] * (dims - len(a[4])) for a in accesses]
        waits = [(i, *w) for i, x in enumerate(tasks) for w in x.waits]
        notifies = [(i, *n) for i, x in enumerate(tasks) for n in x.notifies]
        zeros = np.zeros(len(tasks), np.int64)
        return t.Plan(
            name=name,
            ranks=self.ranks,
            boundary=self.boundary,
            copies=self.copies,
            heap_bytes=0,
            ops=tuple(self.ops),
            buffers=tuple(self.buffers.values()),
            signals=tuple(self.signals),
            lanes=t.Lanes(
                ints([x[0] for x in self.lanes]),
                ints([x[2] for x in self.lanes]),
                tuple(x[1] for x in self.lanes),
                (t.LaneKind.PROCESS,) * len(self.lanes),
                tuple(x[3] for x in self.lanes),
                np.array([x[4] for x in self.lanes], np.bool_),
            ),
            tasks=t.Tasks(
                ints([x.op for x in tasks]),
                ints([x.rank for x in tasks]),
                ints([x.lane for x in tasks]),
                ints([seq[id(x)] for x in tasks]),
                np.array([[*x.coords, *[0] * (6 - len(x.coords))] for x in tasks], np.int32),
                zeros,
                zeros,
            ),
            accesses=t.Accesses(
                ints([a[0] for a in accesses]),
                ints([a[1] for a in accesses]),
                ints([names.index(a[2]) for a in accesses]),
                ints([a[3] for a in accesses]),
                np.array(lo, np.int64).reshape(-1, dims),
                np.array(hi, np.int64).reshape(-1, dims),
            ),
            slots=t.Slots(*(ints([s[i] for s in self.slots]) for i in range(5))),
            waits=t.Waits(*(ints([w[i] for w in waits]) for i in range(4))),
            notifies=t.Notifies(*(ints([n[i] for n in notifies]) for i in range(5))),
        )


def ints(values: Sequence[int]) -> t.Ints:
    return np.array(values, np.int32)


KERNELS = """
def matmul(a, b, y):
    torch.mm(a, b, out=y)
"""


@dataclass(frozen=True)
class AgGemm:
    """All-gather by pushes, then tiles of one rank's rows each; [m, k] @ [k, n]."""

    ranks: int = 4
    m: int = 8
    k: int = 16
    n: int = 24
    boundary: t.Boundary = t.Boundary.STREAM
    copies: int = 1
    deferred: bool = True
    credit: bool = True
    after: t.After = t.After.PUT
    ready: bool = True
    kernel: str = "matmul"
    tiles: int = 1  # tiles along n

    def plan(self) -> t.Plan:
        q, mk = -(-self.m // self.ranks), Maker(self.ranks, self.boundary, self.copies)
        rows = [max(0, min(q, self.m - r * q)) for r in range(self.ranks)]
        copies = self.copies
        mk.buffer("x", [(x, self.k) for x in rows], role=t.Role.INPUT, copies=copies)
        mk.buffer("w", [(self.k, self.n)] * self.ranks, role=t.Role.WEIGHT)
        mk.buffer("xg", [(self.m, self.k)] * self.ranks, copies=copies)
        mk.buffer("y", [(self.m, self.n)] * self.ranks, role=t.Role.OUTPUT, copies=copies)
        gather = mk.op("gather", t.OpKind.PUT, deferred=self.deferred)
        matmul = mk.op("matmul", t.OpKind.CALL, self.kernel)
        acquire = mk.op("acquire", t.OpKind.ACQUIRE)
        release = mk.op("release", t.OpKind.RELEASE)
        # At the waiter, a slot a source; at the sender, a slot a peer: done with my rows.
        peers = range(self.ranks)
        ready = [[mk.slot("ready", r, s, 1, copies) for s in peers] for r in peers]
        free = [[mk.slot("free", r, s, self.tiles, copies) for s in peers] for r in peers]
        add, end = t.NotifyOp.ADD, t.After.END
        for r in peers:
            copy, sm = mk.lane(r, "copy"), mk.lane(r, "sm")
            mine = (slice(0, rows[r]), slice(0, self.k))
            persistent = self.boundary is t.Boundary.PERSISTENT
            if persistent:
                task = mk.task(acquire, r, copy)
                task.accesses.append((t.Mode.WRITE, "x", r, mine))
                if self.credit:
                    task.waits += [(free[r][peer], self.tiles, copies) for peer in peers]
            for step in peers:
                peer = (r + step) % self.ranks
                task = mk.task(gather, r, copy, step)
                part = slice(r * q, r * q + rows[r])
                task.accesses += [
                    (t.Mode.READ, "x", r, mine),
                    (t.Mode.WRITE, "xg", peer, (part, slice(0, self.k))),
                ]
                if self.credit and not persistent:
                    task.waits.append((free[r][peer], self.tiles, copies))
                task.notifies.append((ready[peer][r], 1, add, self.after))
            for step in peers:
                source = (r + step) % self.ranks
                part = slice(source * q, source * q + rows[source])
                for tile in range(self.tiles):
                    width = -(-self.n // self.tiles)
                    cols = slice(tile * width, min(self.n, (tile + 1) * width))
                    task = mk.task(matmul, r, sm, step, tile)
                    task.accesses += [
                        (t.Mode.READ, "xg", r, (part, slice(0, self.k))),
                        (t.Mode.READ, "w", r, (slice(0, self.k), cols)),
                        (t.Mode.WRITE, "y", r, (part, cols)),
                    ]
                    if self.ready and tile == 0:
                        task.waits.append((ready[r][source], 1, 0))
                    task.notifies.append((free[source][r], 1, add, end))
            if not persistent:
                continue
            task = mk.task(release, r, sm)
            task.accesses.append((t.Mode.WRITE, "y", r, (slice(0, self.m), slice(0, self.n))))
        return mk.plan("ag_gemm")

    def shards(self, x: torch.Tensor, w: torch.Tensor) -> dict[tuple[str, int], torch.Tensor]:
        q = -(-self.m // self.ranks)
        shards = {("x", r): x[r * q : (r + 1) * q] for r in range(self.ranks)}
        return shards | {("w", r): w for r in range(self.ranks)}

    def data(self, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        g = torch.Generator().manual_seed(seed)
        x = torch.randn(self.m, self.k, generator=g)
        return x, torch.randn(self.k, self.n, generator=g) / self.k**0.5
