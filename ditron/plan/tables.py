"""The plan: what a fixed rank count makes of a device program, as plain numpy tables.

Everything that needs concrete tasks reads these tables: the proofs, the simulator, the CPU runtime,
GPU launchers and the trace. Nothing else computes an order, a slot or a threshold.

Few-row tables are tuples of records (`ops`, `buffers`, `signals`); many-row tables are structs of
arrays, row i of each array being one entry. Ranks, tasks, slots and lanes are global row numbers.

Semantics of a launch e = 1, 2, ...: with q(e) = (e - 1) div copies,
* a notify adds `amount` to its slot (`add`) or stores `q x count + amount` (`set`);
* a wait of lag d holds its task back until slot >= q(e - d) x count + value, and is absent while
  e <= d. Slots are never reset. A slot with `copies` = 2 is doubled: launch e uses copy
  (e - 1) mod copies, and a wait of lag d the copy of launch e - d.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, IntFlag, StrEnum
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ditron.plan.fold import Fold

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Boundary(StrEnum):
    """What orders two launches: `stream` all tasks of one rank, `persistent` only its lanes."""

    STREAM = "stream"
    PERSISTENT = "persistent"


class Memory(StrEnum):
    """Where a buffer lies: `symmetric` has the same offset on every rank and peers may touch it."""

    SYMMETRIC = "symmetric"
    LOCAL = "local"


class Role(StrEnum):
    """Who fills a buffer, and how long it lives."""

    INPUT = "input"
    WEIGHT = "weight"
    STATE = "state"  # zeros at first, then what a launch leaves for the next
    OUTPUT = "output"
    SCRATCH = "scratch"


LIBRARY = "library"
"""The engine of tasks that the host has a library compute, a call each."""


class OpKind(StrEnum):
    """What one task of an op does."""

    PUT = "put"  # copy a local box to a peer's memory
    GET = "get"  # copy a peer's box to local memory
    COPY = "copy"  # copy within a rank
    CALL = "call"  # run a core kernel on views
    # The host hands a buffer to the launch, or gets it back: a write of all of it, which orders the
    # host against tasks of other ranks. Tasks of the same rank need no order with it, since the
    # launch itself begins after the host's accesses and ends before the next ones.
    ACQUIRE = "acquire"
    RELEASE = "release"


class LaneKind(StrEnum):
    """What executes a lane."""

    PROCESS = "process"  # a CPU rank's process, taking turns between its lanes
    WORKER = "worker"  # a persistent block on a GPU
    STREAM = "stream"  # a host-enqueued stream, copy engine or compute
    NIC = "nic"


class LaneOrder(StrEnum):
    STATIC = "static"  # tasks run one after another, in seq order
    QUEUE = "queue"  # workers share the list in order; no order between its tasks


class Mode(IntFlag):
    """How an access touches its box; flags combine."""

    READ = 1
    WRITE = 2
    ADD = 4


class NotifyOp(IntEnum):
    ADD = 0
    SET = 1


class After(IntEnum):
    """What must have happened before a notify's signal is seen."""

    END = 0  # the task's end
    PUT = 1  # this task's own transfer has landed
    FENCE = 2  # all earlier transfers of this lane to the same rank have landed
    QUIET = 3  # all earlier transfers of this lane have landed


@dataclass(frozen=True)
class Op:
    """One op of the device program; its tasks are rows of `tasks`.

    `kernel` names the core kernel of a CALL. `deferred`: its tasks' transfers land after their
    end. `location` is the user's `file:line`. `folds` says for each view of a task how its
    dimensions lie in its box's; empty where all are the same.
    """

    name: str
    kind: OpKind
    engine: str
    kernel: str
    location: str
    deferred: bool = False
    folds: tuple[Fold | None, ...] = ()

    def fold(self, view: int) -> Fold | None:
        """That of one view."""
        return self.folds[view] if self.folds else None


@dataclass(frozen=True)
class Buffer:
    """One buffer on every rank: `capacity` [D] bounds each rank's size, `extent` [ranks, D] is it.

    `offset_bytes` is where it starts in the rank's heap (-1 while memory is not planned); copy k
    of `copies` starts `k x capacity bytes` later. Row-major, with the capacity's strides.
    """

    name: str
    dtype: str
    capacity: tuple[int, ...]
    extent: Longs
    memory: Memory
    role: Role
    offset_bytes: int = -1
    copies: int = 1

    @property
    def size_bytes(self) -> int:
        """Bytes of one copy."""
        return int(np.prod(self.capacity, dtype=np.int64)) * DTYPE_BYTES[self.dtype]


DTYPE_BYTES = {"f32": 4, "bf16": 2, "f16": 2, "i32": 4, "i64": 8, "bool": 1, "f64": 8}


@dataclass(frozen=True)
class Lanes:
    """rank [L], engine [L] (names), index [L] within (rank, engine), kind, order, fifo [L]."""

    rank: Ints
    index: Ints
    engine: tuple[str, ...]
    kind: tuple[LaneKind, ...]
    order: tuple[LaneOrder, ...]
    fifo: Bools

    def __len__(self) -> int:
        return len(self.rank)


@dataclass(frozen=True)
class Tasks:
    """op, rank, lane, seq [T]; coords [T, 6] (grid coordinates, padded with 0).

    Rows are sorted by (op, rank, coords). Within a lane the tasks run by increasing seq, which
    counts 0, 1, 2, ... on each lane. `flops` and `bytes` are the work of one task.
    """

    op: Ints
    rank: Ints
    lane: Ints
    seq: Ints
    coords: Ints
    flops: Longs
    bytes: Longs

    def __len__(self) -> int:
        return len(self.op)


@dataclass(frozen=True)
class Accesses:
    """One row a view of a task, in operand order, sorted by task: task, mode, buffer, rank [A].

    `rank` owns the memory touched (not always the task's rank). lo, hi [A, D] is the half-open
    box in elements, clipped to the owner's extent; D is the most dimensions of any buffer and the
    rest are [0, 1). An empty box (some hi <= lo) touches nothing and keeps its row.
    """

    task: Ints
    mode: Ints
    buffer: Ints
    rank: Ints
    lo: Longs
    hi: Longs

    def __len__(self) -> int:
        return len(self.task)

    @property
    def empty(self) -> Bools:
        return np.any(self.hi <= self.lo, axis=1)


@dataclass(frozen=True)
class Arguments:
    """Numbers that a CALL's kernel is given after its views: task, value [N], sorted by task."""

    task: Ints
    value: Longs

    @staticmethod
    def none() -> Arguments:
        """No numbers."""
        return Arguments(np.zeros(0, np.int32), np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.task)


@dataclass(frozen=True)
class Slots:
    """rank [S] of the waiter that owns the word, count [S] = increments a launch, copies [S].

    `signals` [S] is the row of `Plan.signals` (the IR op that declared it), `index` [S] its
    position there.
    """

    rank: Ints
    count: Ints
    copies: Ints
    signals: Ints
    index: Ints

    def __len__(self) -> int:
        return len(self.rank)


@dataclass(frozen=True)
class Waits:
    """task, slot, value (1..count), lag [W], sorted by task."""

    task: Ints
    slot: Ints
    value: Ints
    lag: Ints

    def __len__(self) -> int:
        return len(self.task)


@dataclass(frozen=True)
class Notifies:
    """task, slot, amount, op (`NotifyOp`), after (`After`) [N], sorted by task."""

    task: Ints
    slot: Ints
    amount: Ints
    op: Ints
    after: Ints

    def __len__(self) -> int:
        return len(self.task)


@dataclass(frozen=True)
class Plan:
    """A device program on a fixed number of ranks."""

    name: str
    ranks: int
    boundary: Boundary
    copies: int
    heap_bytes: int
    ops: tuple[Op, ...]
    buffers: tuple[Buffer, ...]
    signals: tuple[str, ...]
    lanes: Lanes
    tasks: Tasks
    accesses: Accesses
    slots: Slots
    waits: Waits
    notifies: Notifies
    arguments: Arguments = field(default_factory=Arguments.none)

    def lane_tasks(self) -> list[Ints]:
        """The tasks of each lane in the order they run."""
        order = np.lexsort((self.tasks.seq, self.tasks.lane)).astype(np.int32)
        bounds = np.searchsorted(self.tasks.lane[order], np.arange(len(self.lanes) + 1))
        return [order[a:b] for a, b in pairwise(bounds.tolist())]

    def fold_of(self, access: int) -> Fold | None:
        """How the view of an access lies in its box."""
        task = int(self.accesses.task[access])
        op = self.ops[int(self.tasks.op[task])]
        return op.fold(access - self.accesses_of(task).start) if op.folds else None

    def tasks_of(self, op: int) -> Longs:
        """The tasks of an op, on all ranks."""
        rows = _rows(self.tasks.op, op)
        return np.arange(rows.start, rows.stop, dtype=np.int64)

    def accesses_of(self, task: int) -> range:
        """Rows of `accesses` that belong to a task."""
        return _rows(self.accesses.task, task)

    def arguments_of(self, task: int) -> list[int]:
        """The numbers that a task's kernel is given."""
        rows = _rows(self.arguments.task, task)
        return self.arguments.value[rows.start : rows.stop].tolist()

    def waits_of(self, task: int) -> range:
        """Rows of `waits` that belong to a task."""
        return _rows(self.waits.task, task)

    def notifies_of(self, task: int) -> range:
        """Rows of `notifies` that belong to a task."""
        return _rows(self.notifies.task, task)

    def describe_task(self, task: int) -> str:
        """`@matmul[3, 0] on rank 2 (sm 0, 5th)`, for messages."""
        op = self.ops[int(self.tasks.op[task])]
        lane = int(self.tasks.lane[task])
        coords = ", ".join(map(str, self.tasks.coords[task][: self.grid_rank(task)]))
        return (
            f"@{op.name}[{coords}] on rank {self.tasks.rank[task]}"
            f" ({self.lanes.engine[lane]} lane {self.lanes.index[lane]},"
            f" task {self.tasks.seq[task]})"
        )

    def grid_rank(self, task: int) -> int:
        """How many coordinates of a task's op are ever used (at least one)."""
        used = self.tasks.coords[self.tasks.op == self.tasks.op[task]].any(axis=0)
        return int(np.flatnonzero(used)[-1]) + 1 if used.any() else 1

    def describe_slot(self, slot: int) -> str:
        """`%ready[3] at rank 1`, for messages."""
        name = self.signals[int(self.slots.signals[slot])]
        return f"%{name}[{self.slots.index[slot]}] at rank {self.slots.rank[slot]}"


def _rows(key: Ints, value: int) -> range:
    lo, hi = np.searchsorted(key, [value, value + 1])
    return range(int(lo), int(hi))
