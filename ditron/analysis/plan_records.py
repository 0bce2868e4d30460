"""Parts of a plan by themselves, as a counterexample names them: no row numbers to look up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ditron.plan.tables import Mode, Plan

# How many tasks before and after a marked one a counterexample shows of its lane.
AROUND = 2


@dataclass(frozen=True)
class TaskRecord:
    """One task; `coords` are its grid coordinates, `location` is the user's `file:line`."""

    op: str
    coords: tuple[int, ...]
    rank: int
    engine: str
    lane: int  # of its rank and engine
    seq: int  # on its lane
    location: str

    @property
    def name(self) -> str:
        """`@matmul[3, 0]`."""
        return f"@{self.op}[{', '.join(map(str, self.coords))}]"

    def __str__(self) -> str:
        place = f"{self.engine} lane {self.lane}, task {self.seq}"
        return f"{self.name} on rank {self.rank} ({place})"


@dataclass(frozen=True)
class SlotRecord:
    """One signal word, at the rank that waits for it."""

    signal: str
    index: int
    rank: int

    def __str__(self) -> str:
        return f"%{self.signal}[{self.index}] at rank {self.rank}"


@dataclass(frozen=True)
class BoxRecord:
    """A half-open box of elements of a buffer, in the memory of a rank."""

    buffer: str
    rank: int
    lo: tuple[int, ...]
    hi: tuple[int, ...]

    def __str__(self) -> str:
        box = ", ".join(f"{a}:{b}" for a, b in zip(self.lo, self.hi, strict=True))
        return f"%{self.buffer}[{box}] at rank {self.rank}"


@dataclass(frozen=True)
class AccessRecord:
    """What a task does to a box: "reads", "writes", "adds to"."""

    task: TaskRecord
    does: str
    box: BoxRecord

    def __str__(self) -> str:
        return f"{self.task} {self.does} {self.box}"


@dataclass(frozen=True)
class LaneRecord:
    """A stretch of a lane in one of the launches looked at (0 is the first).

    `before` and `after` count the lane's tasks that are left out at either end.
    """

    rank: int
    engine: str
    lane: int
    launch: int
    tasks: tuple[TaskRecord, ...]
    before: int
    after: int


def task_record(plan: Plan, task: int) -> TaskRecord:
    """A task of a plan."""
    op, lane = plan.ops[int(plan.tasks.op[task])], int(plan.tasks.lane[task])
    return TaskRecord(
        op=op.name,
        coords=tuple(plan.tasks.coords[task][: plan.grid_rank(task)].tolist()),
        rank=int(plan.tasks.rank[task]),
        engine=plan.lanes.engine[lane],
        lane=int(plan.lanes.index[lane]),
        seq=int(plan.tasks.seq[task]),
        location=op.location,
    )


def slot_record(plan: Plan, slot: int) -> SlotRecord:
    """A signal word of a plan."""
    slots = plan.slots
    signal = plan.signals[int(slots.signals[slot])]
    return SlotRecord(signal, int(slots.index[slot]), int(slots.rank[slot]))


def access_record(plan: Plan, access: int) -> AccessRecord:
    """An access of a plan."""
    accesses = plan.accesses
    buffer = plan.buffers[int(accesses.buffer[access])]
    dims = len(buffer.capacity)
    box = BoxRecord(
        buffer.name,
        int(accesses.rank[access]),
        tuple(accesses.lo[access, :dims].tolist()),
        tuple(accesses.hi[access, :dims].tolist()),
    )
    task = task_record(plan, int(accesses.task[access]))
    return AccessRecord(task, verb(int(accesses.mode[access])), box)


def verb(mode: int) -> str:
    """What an access does, for "@task reads %x"."""
    names = [(Mode.READ, "reads"), (Mode.WRITE, "writes"), (Mode.ADD, "adds to")]
    return " and ".join(name for bit, name in names if mode & bit) or "touches"


def lanes_around(plan: Plan, marked: Iterable[tuple[int, int]]) -> tuple[LaneRecord, ...]:
    """The lanes of some (task, launch), cut to what stands around them, sorted by rank."""
    windows: dict[tuple[int, int], set[int]] = {}
    for task, launch in marked:
        windows.setdefault((launch, int(plan.tasks.lane[task])), set()).add(task)
    found: list[LaneRecord] = []
    for (launch, lane), tasks in windows.items():
        mine = np.flatnonzero(plan.tasks.lane == lane)
        mine = mine[np.argsort(plan.tasks.seq[mine])]
        places = plan.tasks.seq[list(tasks)]
        first = max(0, int(places.min()) - AROUND)
        end = min(len(mine), int(places.max()) + AROUND + 1)
        shown = [t for t in mine[first:end].tolist() if _is_near(plan, t, places.tolist())]
        records = tuple(task_record(plan, t) for t in shown)
        rank, engine = int(plan.lanes.rank[lane]), plan.lanes.engine[lane]
        index = int(plan.lanes.index[lane])
        found.append(LaneRecord(rank, engine, index, launch, records, first, len(mine) - end))
    return tuple(sorted(found, key=lambda r: (r.launch, r.rank, r.engine, r.lane)))


def _is_near(plan: Plan, task: int, places: list[int]) -> bool:
    return any(abs(int(plan.tasks.seq[task]) - place) <= AROUND for place in places)
