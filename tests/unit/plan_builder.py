"""Plans by hand, for tests: lanes, tasks, accesses, waits and notifies one at a time.

b = PlanBuilder(ranks=2)
x = b.buffer("x", (8,))
ready = b.slot(rank=1)
b.task("put", b.lane(0, "copy"), b.read(x, 0, (0, 8)), b.write(x, 1, (0, 8)), notify=[ready])
b.task("use", b.lane(1), b.read(x, 1, (0, 8)), wait=[ready])
plan = b.plan()
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

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

Box = tuple[int, int]


@dataclass(frozen=True)
class Touch:
    mode: Mode
    buffer: int
    rank: int
    box: tuple[Box, ...]


@dataclass(frozen=True)
class Wait:
    slot: int
    value: int | None = None  # None: the slot's count
    lag: int = 0


@dataclass(frozen=True)
class Notify:
    slot: int
    amount: int = 1
    op: NotifyOp = NotifyOp.ADD
    after: After = After.END


@dataclass(frozen=True)
class Task:
    op: str
    kind: OpKind
    lane: int
    touches: tuple[Touch, ...]
    waits: tuple[Wait, ...]
    notifies: tuple[Notify, ...]
    deferred: bool = False
    kernel: str = ""


@dataclass
class PlanBuilder:
    ranks: int = 1
    boundary: Boundary = Boundary.STREAM
    copies: int = 1
    buffers: list[Buffer] = field(default_factory=list[Buffer])
    lanes: list[tuple[int, str, LaneOrder, bool]] = field(
        default_factory=list[tuple[int, str, LaneOrder, bool]]
    )
    tasks: list[Task] = field(default_factory=list[Task])
    slots: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def buffer(
        self,
        name: str,
        capacity: tuple[int, ...],
        *,
        role: Role = Role.SCRATCH,
        extent: Sequence[tuple[int, ...]] | None = None,
        offset: int = -1,
        copies: int = 1,
    ) -> int:
        extents = np.array(extent or [capacity] * self.ranks, np.int64).reshape(self.ranks, -1)
        memory = Memory.SYMMETRIC
        record = Buffer(name, "f32", capacity, extents, memory, role, offset, copies)
        self.buffers.append(record)
        return len(self.buffers) - 1

    def lane(
        self,
        rank: int,
        engine: str = "sm",
        *,
        order: LaneOrder = LaneOrder.STATIC,
        fifo: bool = False,
    ) -> int:
        self.lanes.append((rank, engine, order, fifo))
        return len(self.lanes) - 1

    def slot(self, rank: int = 0, *, copies: int = 1) -> int:
        self.slots.append((rank, copies))
        return len(self.slots) - 1

    def read(self, buffer: int, rank: int, *box: Box) -> Touch:
        return Touch(Mode.READ, buffer, rank, box)

    def write(self, buffer: int, rank: int, *box: Box) -> Touch:
        return Touch(Mode.WRITE, buffer, rank, box)

    def add(self, buffer: int, rank: int, *box: Box) -> Touch:
        return Touch(Mode.ADD, buffer, rank, box)

    def task(
        self,
        op: str,
        lane: int,
        *touches: Touch,
        wait: Sequence[int | Wait] = (),
        notify: Sequence[int | Notify] = (),
        deferred: bool = False,
        kind: OpKind = OpKind.CALL,
        kernel: str = "",
    ) -> int:
        """Add a task at the end of a lane; an int slot waits for its count or adds 1 at the end."""
        waits = tuple(Wait(w) if isinstance(w, int) else w for w in wait)
        notifies = tuple(Notify(n) if isinstance(n, int) else n for n in notify)
        self.tasks.append(Task(op, kind, lane, touches, waits, notifies, deferred, kernel))
        return len(self.tasks) - 1

    def replace(self, task: int, **changes: object) -> None:
        self.tasks[task] = replace(self.tasks[task], **changes)  # type: ignore[arg-type]

    def plan(self) -> Plan:
        names = list(dict.fromkeys((t.op, t.kind, t.deferred, t.kernel) for t in self.tasks))
        ops = tuple(
            Op(n, kind, "sm", kernel, f"user.py:{i + 1}", deferred)
            for i, (n, kind, deferred, kernel) in enumerate(names)
        )
        counts = self._counts()
        lanes = Lanes(
            _i32([r for r, *_ in self.lanes]),
            _i32(self._lane_indices()),
            tuple(engine for _, engine, *_ in self.lanes),
            tuple(LaneKind.PROCESS for _ in self.lanes),
            tuple(order for *_, order, _ in self.lanes),
            np.array([fifo for *_, fifo in self.lanes], np.bool_),
        )
        waits = [
            (i, w.slot, counts[w.slot] if w.value is None else w.value, w.lag)
            for i, t in enumerate(self.tasks)
            for w in t.waits
        ]
        notifies = [
            (i, n.slot, n.amount, int(n.op), int(n.after))
            for i, t in enumerate(self.tasks)
            for n in t.notifies
        ]
        op = [names.index((t.op, t.kind, t.deferred, t.kernel)) for t in self.tasks]
        return Plan(
            "by_hand",
            self.ranks,
            self.boundary,
            self.copies,
            0,
            ops,
            tuple(self.buffers),
            ("slot",),
            lanes,
            self._tasks(op),
            self._accesses(),
            Slots(
                _i32([r for r, _ in self.slots]),
                _i32(counts),
                _i32([c for _, c in self.slots]),
                _i32([0] * len(self.slots)),
                _i32(list(range(len(self.slots)))),
            ),
            Waits(*_table(waits, 4)),
            Notifies(*_table(notifies, 5)),
        )

    def _counts(self) -> list[int]:
        """What a launch's notifies add up to (or set), slot by slot."""
        counts = [0] * len(self.slots)
        for n in (n for t in self.tasks for n in t.notifies):
            added = counts[n.slot] + n.amount
            is_set = n.op is NotifyOp.SET
            counts[n.slot] = max(counts[n.slot], n.amount) if is_set else added
        return counts

    def _lane_indices(self) -> list[int]:
        seen: dict[tuple[int, str], int] = {}
        indices: list[int] = []
        for rank, engine, *_ in self.lanes:
            indices.append(seen.get((rank, engine), 0))
            seen[rank, engine] = indices[-1] + 1
        return indices

    def _tasks(self, op: list[int]) -> Tasks:
        lane = [t.lane for t in self.tasks]
        seq = [lane[:i].count(n) for i, n in enumerate(lane)]
        coords = np.zeros((len(lane), 6), np.int32)
        coords[:, 0] = [op[:i].count(n) for i, n in enumerate(op)]
        zeros = np.zeros(len(lane), np.int64)
        ranks = [self.lanes[n][0] for n in lane]
        return Tasks(_i32(op), _i32(ranks), _i32(lane), _i32(seq), coords, zeros, zeros)

    def _accesses(self) -> Accesses:
        dims = max((len(b.capacity) for b in self.buffers), default=1)
        rows = [(i, a) for i, t in enumerate(self.tasks) for a in t.touches]
        boxes = [[*a.box, *[(0, 1)] * (dims - len(a.box))] for _, a in rows]
        box = np.array(boxes, np.int64).reshape(len(rows), dims, 2)
        return Accesses(
            _i32([i for i, _ in rows]),
            _i32([int(a.mode) for _, a in rows]),
            _i32([a.buffer for _, a in rows]),
            _i32([a.rank for _, a in rows]),
            box[:, :, 0],
            box[:, :, 1],
        )


def _i32(values: Sequence[int]) -> np.ndarray:
    return np.array(values, np.int32)


def _table(rows: Sequence[tuple[int, ...]], width: int) -> list[np.ndarray]:
    return list(np.array(rows, np.int32).reshape(len(rows), width).T.copy())
