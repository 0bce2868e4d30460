"""Pairing against brute force: what conflicts is ordered, and nothing else is tied together.

The oracle knows program order (ops, then grid coordinates, ranks side by side), lanes, launches and
boxes as sets of elements or bytes, and nothing of cells or groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, combinations_with_replacement, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ditron as dt
from ditron.analysis.pairing import Pairing, pair
from ditron.analysis.slots import needed
from ditron.plan.tables import (
    DTYPE_BYTES,
    Accesses,
    Bools,
    Boundary,
    Buffer,
    Ints,
    LaneKind,
    LaneOrder,
    Lanes,
    Memory,
    Mode,
    Notifies,
    Op,
    OpKind,
    Plan,
    Role,
    Slots,
    Tasks,
    Waits,
)
from tests.unit.lowered import PROGRAMS, plan_of

LAUNCHES = 3
ROWS = 6  # elements of a buffer's first dimension


Row = tuple[int, int, int, int]  # op, rank, lane, point
HAND_OVERS = (OpKind.ACQUIRE, OpKind.RELEASE)


@dataclass(frozen=True)
class Touch:
    """One access of a task: a box [(lo, hi), ...] of a buffer."""

    task: int
    mode: Mode
    buffer: int
    rank: int
    box: tuple[Sequence[int], ...]

    def clashes(self, other: Touch) -> bool:
        return Mode.WRITE in (self.mode, other.mode)

    def meets(self, other: Touch) -> bool:
        """Whether the two boxes share an element."""
        return (self.buffer, self.rank) == (other.buffer, other.rank) and all(
            max(a[0], b[0]) < min(a[1], b[1]) for a, b in zip(self.box, other.box, strict=True)
        )


class Drawn:
    """A plan that prints as a person would write it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def __repr__(self) -> str:
        return f"\n{self.plan.boundary} " + "\n".join(map(self._task, range(len(self.plan.tasks))))

    def _task(self, task: int) -> str:
        a, dims = self.plan.accesses, len(self.plan.buffers[0].capacity)
        kind = self.plan.ops[int(self.plan.tasks.op[task])].kind
        touches = [
            f"{Mode(int(a.mode[row]))!r} {self.plan.buffers[a.buffer[row]].name} at {a.rank[row]}"
            f" {a.lo[row][:dims].tolist()}..{a.hi[row][:dims].tolist()}"
            for row in self.plan.accesses_of(task)
        ]
        return f"{self.plan.describe_task(task)} {kind}: {', '.join(touches)}"


def i32(values: Sequence[int]) -> Ints:
    return np.array(values, np.int32)


@st.composite
def plans(
    draw: st.DrawFn,
    *,
    dims: int = 1,
    aliased: bool = False,
    permuted: bool = False,
    in_place: bool = False,
    overwriting: bool = False,
) -> Drawn:
    """Two to four ops on one to three ranks, each with the same few tasks on every rank.

    `aliased`: buffers may share bytes, used one after the other, none by the host; `permuted`:
    lanes run an op's tasks in another order than the grid's; `in_place`: a task may touch again
    what it writes; `overwriting`: so may other tasks of its op.
    """
    ranks, lanes = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    capacity = (ROWS, 4)[:dims]
    buffers = [
        Buffer(
            f"b{i}",
            "f32",
            capacity,
            np.array([capacity] * ranks, np.int64),
            Memory.SYMMETRIC,
            Role.SCRATCH,
            draw(st.integers(0, 3)) * (2 * ROWS) if aliased else -1,
        )
        for i in range(draw(st.integers(1, 3)))
    ]
    ops = draw(st.integers(2, 4))
    points = [draw(st.integers(1, 3)) for _ in range(ops)]
    host = not aliased and draw(st.booleans())
    calls = [OpKind.CALL] * ops
    kinds = [OpKind.ACQUIRE, *calls, OpKind.RELEASE] if host else calls
    points = [1, *points, 1] if host else points
    uses = sorted(draw(st.integers(0, len(buffers) - 1)) for _ in kinds)
    rows: list[Row] = []
    touches: list[Touch] = []
    for op in range(len(kinds)):
        for rank in range(ranks):
            for point in range(points[op]):
                rows.append((op, rank, rank * lanes + draw(st.integers(0, lanes - 1)), point))
                for _ in range(draw(st.integers(0, 2))):
                    some = [uses[op]] if aliased else range(len(buffers))
                    touch = draw(_touches(len(rows) - 1, kinds[op], rank, ranks, capacity, some))
                    mine = [t for t in touches if rows[t.task][0] == op]
                    others = [t for t in mine if t.meets(touch) and t.clashes(touch)]
                    twice = any(t.task == touch.task for t in others)
                    again = any(t.task != touch.task and t.mode == touch.mode for t in others)
                    # Tasks at one point of the grid, on several ranks: nothing says who is first.
                    tie = any(rows[t.task][3] == point and t.task != touch.task for t in others)
                    if not tie and (in_place or not twice) and (overwriting or not again):
                        touches.append(touch)
    grid = [list(range(p)) for p in points]
    keys = [draw(st.permutations(g)) for g in grid] if permuted else grid
    persistent = not host and draw(st.booleans())
    return Drawn(
        _plan(ranks, lanes, buffers, kinds, rows, _sequence(rows, keys), touches, persistent)
    )


@st.composite
def _touches(
    draw: st.DrawFn,
    task: int,
    kind: OpKind,
    rank: int,
    ranks: int,
    capacity: Sequence[int],
    buffers: Sequence[int],
) -> Touch:
    box = tuple(sorted((draw(st.integers(0, n)), draw(st.integers(0, n)))) for n in capacity)
    buffer = draw(st.sampled_from(buffers))
    if kind in HAND_OVERS:
        return Touch(task, Mode.WRITE, buffer, rank, box)
    mode = draw(st.sampled_from([Mode.READ, Mode.WRITE]))
    return Touch(task, mode, buffer, draw(st.integers(0, ranks - 1)), box)


def _sequence(rows: list[tuple[int, int, int, int]], keys: list[list[int]]) -> list[int]:
    """Places on the lanes, where an op's tasks run by their keys."""
    order = sorted(range(len(rows)), key=lambda t: (rows[t][0], keys[rows[t][0]][rows[t][3]]))
    place, seq = dict[int, int](), [0] * len(rows)
    for task in order:
        lane = rows[task][2]
        seq[task] = place.get(lane, 0)
        place[lane] = seq[task] + 1
    return seq


def _plan(
    ranks: int,
    lanes_a_rank: int,
    buffers: Sequence[Buffer],
    kinds: Sequence[OpKind],
    rows: Sequence[Row],
    seq: Sequence[int],
    touches: Sequence[Touch],
    persistent: bool,
) -> Plan:
    used = sorted({row[2] for row in rows})
    number = {lane: i for i, lane in enumerate(used)}
    coords = np.zeros((len(rows), 6), np.int32)
    coords[:, 0] = [row[3] for row in rows]
    zeros = np.zeros(len(rows), np.int64)
    dims = len(buffers[0].capacity)
    boxes = np.array([t.box for t in touches], np.int64).reshape(-1, dims, 2)
    none = np.zeros(0, np.int32)
    return Plan(
        name="drawn",
        ranks=ranks,
        boundary=Boundary.PERSISTENT if persistent else Boundary.STREAM,
        copies=1,
        heap_bytes=0,
        ops=tuple(Op(f"op{i}", kind, "sm", "", f"user.py:{i}") for i, kind in enumerate(kinds)),
        buffers=tuple(buffers),
        signals=(),
        lanes=Lanes(
            i32([lane // lanes_a_rank for lane in used]),
            i32([lane % lanes_a_rank for lane in used]),
            ("sm",) * len(used),
            (LaneKind.PROCESS,) * len(used),
            (LaneOrder.STATIC,) * len(used),
            np.zeros(len(used), np.bool_),
        ),
        tasks=Tasks(
            i32([row[0] for row in rows]),
            i32([row[1] for row in rows]),
            i32([number[row[2]] for row in rows]),
            i32(seq),
            coords,
            zeros,
            zeros,
        ),
        accesses=Accesses(
            i32([t.task for t in touches]),
            i32([int(t.mode) for t in touches]),
            i32([t.buffer for t in touches]),
            i32([t.rank for t in touches]),
            boxes[:, :, 0],
            boxes[:, :, 1],
        ),
        slots=Slots(*(none,) * 5),
        waits=Waits(*(none,) * 4),
        notifies=Notifies(*(none,) * 5),
    )


@dataclass(frozen=True)
class Access:
    """What an access covers: elements, and the bytes from the first of them to the last."""

    rank: int
    buffer: int
    writes: bool
    elements: frozenset[tuple[int, ...]]
    bytes: range


class Oracle:
    """Conflicts and orders of a plan, task by task."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.n = len(plan.tasks)
        self.shared = [
            any(
                a is not b and a.offset_bytes < _end(b) and b.offset_bytes < _end(a)
                for b in plan.buffers
                if min(a.offset_bytes, b.offset_bytes) >= 0
            )
            for a in plan.buffers
        ]
        self.touches = [[self._touch(row) for row in plan.accesses_of(t)] for t in range(self.n)]
        self.written = any(
            a.writes and a.bytes and self.shared[a.buffer] for some in self.touches for a in some
        )
        first = np.searchsorted(plan.tasks.op, np.arange(len(plan.ops)))
        each = np.bincount(plan.tasks.op, minlength=len(plan.ops)) // plan.ranks
        op = plan.tasks.op
        self.place = [(int(o), int((t - first[o]) % each[o])) for t, o in enumerate(op)]

    def _touch(self, row: int) -> Access:
        a = self.plan.accesses
        number = int(a.buffer[row])
        buffer = self.plan.buffers[number]
        dims = len(buffer.capacity)
        bounds = zip(a.lo[row][:dims].tolist(), a.hi[row][:dims].tolist(), strict=True)
        elements = frozenset(product(*(range(lo, hi) for lo, hi in bounds)))
        flat = [int(np.ravel_multi_index(e, buffer.capacity)) for e in elements]
        width, start = DTYPE_BYTES[buffer.dtype], buffer.offset_bytes
        first, last = min(flat, default=0), max(flat, default=-1)
        covered = range(start + first * width, start + (last + 1) * width)
        writes = bool(a.mode[row] & int(Mode.WRITE))
        return Access(int(a.rank[row]), number, writes, elements, covered)

    def conflict(self, s: int, t: int) -> bool:
        """Whether the order of two tasks matters: see `_clash`."""
        kinds = {self.plan.ops[int(self.plan.tasks.op[x])].kind for x in (s, t)}
        if kinds & set(HAND_OVERS) and self.plan.tasks.rank[s] == self.plan.tasks.rank[t]:
            return False
        return any(
            a.rank == b.rank and self._clash(a, b) for a in self.touches[s] for b in self.touches[t]
        )

    def _clash(self, a: Access, b: Access) -> bool:
        """One writes, and they share elements; or two buffers' boxes share bytes.

        What a box may share lies between its first byte and its last. Buffers take turns whatever
        they do, unless nobody writes.
        """
        if a.buffer == b.buffer:
            return (a.writes or b.writes) and not a.elements.isdisjoint(b.elements)
        shared = self.shared[a.buffer] and self.shared[b.buffer] and self.written
        return shared and max(a.bytes.start, b.bytes.start) < min(a.bytes.stop, b.bytes.stop)

    def demands(self) -> Iterator[tuple[int, int, int]]:
        """(before, after, lag): pairs that must be ordered."""
        for s, t in combinations_with_replacement(range(self.n), 2):
            if not self.conflict(s, t):
                continue
            a, b = (s, t) if self.place[s] <= self.place[t] else (t, s)
            if a != b:
                yield a, b, 0
            yield b, a, 1

    def follows(self, pairing: Pairing) -> Bools:
        """[LAUNCHES * n, LAUNCHES * n]: done before begin, by lanes, launches and the pairing."""
        tasks, lanes = self.plan.tasks, self.plan.lanes
        direct = np.zeros((LAUNCHES, self.n, LAUNCHES, self.n), np.bool_)
        lane_order = (tasks.lane[:, None] == tasks.lane) & (tasks.seq[:, None] < tasks.seq)
        same = lanes.rank[tasks.lane][:, None] == lanes.rank[tasks.lane]
        kinds = [self.plan.ops[int(op)].kind for op in tasks.op]
        first = np.array([kind is OpKind.ACQUIRE for kind in kinds], np.bool_)
        last = np.array([kind is OpKind.RELEASE for kind in kinds], np.bool_)
        host = first[:, None] | last
        lane_order |= same & host & ~np.eye(self.n, dtype=np.bool_)
        if self.plan.boundary is Boundary.PERSISTENT:
            same = tasks.lane[:, None] == tasks.lane
        for e in range(LAUNCHES):
            direct[e, :, e, :] |= lane_order
            for later in range(e + 1, LAUNCHES):
                direct[e, :, later, :] |= same
        groups = pairing.groups
        for before, after, lag in zip(pairing.before, pairing.after, pairing.lag, strict=True):
            a = groups.tasks[groups.start[before] : groups.start[before + 1]]
            b = groups.tasks[groups.start[after] : groups.start[after + 1]]
            for e in range(LAUNCHES - int(lag)):
                direct[e, a[:, None], e + int(lag), b[None, :]] = True
        closure = direct.reshape(LAUNCHES * self.n, LAUNCHES * self.n)
        for k in range(len(closure)):
            closure |= closure[:, k, None] & closure[None, k, :]
        return closure.reshape(LAUNCHES, self.n, LAUNCHES, self.n)


def _end(buffer: Buffer) -> int:
    return buffer.offset_bytes + buffer.size_bytes * buffer.copies


def check(plan: Plan) -> None:
    oracle, pairing = Oracle(plan), pair(plan)
    if any(oracle.shared):
        pairing = needed(plan, pairing)
    follows = oracle.follows(pairing)
    tasks = range(oracle.n)
    assert not any(follows[0, t, 0, t] for t in tasks), "a task waits for itself"
    for a, b, lag in oracle.demands():
        assert follows[0, a, lag, b], (
            f"{plan.describe_task(a)} -> {plan.describe_task(b)}, {lag} launches later"
        )
    groups = pairing.groups
    for before, after in zip(pairing.before, pairing.after, strict=True):
        a = groups.tasks[groups.start[before] : groups.start[before + 1]].tolist()
        b = groups.tasks[groups.start[after] : groups.start[after + 1]].tolist()
        pairs = [(s, t) for s in a for t in b]
        # One box a group: if two of its tasks conflict, all do.
        assert any(oracle.conflict(s, t) for s, t in pairs), (a, b)


def grid_conflicts(plan: Plan) -> bool:
    """Whether two tasks of one op conflict, so that only the grid's order is right."""
    oracle, op = Oracle(plan), plan.tasks.op
    pairs = combinations(range(oracle.n), 2)
    return any(op[s] == op[t] and oracle.conflict(s, t) for s, t in pairs)


@given(plans())
@settings(max_examples=150, deadline=None)
def test_rows(drawn: Drawn):
    check(drawn.plan)


@given(plans(dims=2))
@settings(max_examples=100, deadline=None)
def test_boxes(drawn: Drawn):
    check(drawn.plan)


@given(st.sampled_from([1, 2]).flatmap(lambda dims: plans(dims=dims, aliased=True)))
@settings(max_examples=100, deadline=None)
def test_buffers_that_share_bytes(drawn: Drawn):
    check(drawn.plan)


@given(plans(permuted=True).filter(lambda drawn: not grid_conflicts(drawn.plan)))
@settings(max_examples=50, deadline=None)
def test_permuted_grids(drawn: Drawn):
    check(drawn.plan)


@given(plans(in_place=True))
@settings(max_examples=50, deadline=None)
def test_in_place(drawn: Drawn):
    check(drawn.plan)


@given(plans(overwriting=True))
@settings(max_examples=50, deadline=None)
def test_grids_that_overwrite(drawn: Drawn):
    check(drawn.plan)


def test_bytes_that_a_buffer_in_between_only_reads():
    zero = Buffer("", "f32", (1,), np.ones((1, 1), np.int64), Memory.LOCAL, Role.SCRATCH, 0)
    buffers = [replace(zero, name=name) for name in "abc"]
    rows = [(0, 0, 0, 0), (1, 0, 2, 0), (2, 0, 1, 0), (3, 0, 0, 0)]  # on lanes 0, 2, 1, 0
    modes = [(Mode.WRITE, 0), (Mode.READ, 0), (Mode.READ, 1), (Mode.WRITE, 2)]
    touches = [Touch(i, mode, b, 0, ((0, 1),)) for i, (mode, b) in enumerate(modes)]
    kinds = [OpKind.CALL] * 4
    check(_plan(1, 3, buffers, kinds, rows, [0, 0, 0, 1], touches, persistent=False))


OPTIONS = {
    "push": dt.Options(algorithm="mesh-push", chunk_bytes=32, tile=(3, 4)),
    "pull": dt.Options(algorithm="mesh-pull", workers=2, tile=(2, 8)),
    "in place": dt.Options(algorithm="mesh-in-place", copy_lanes=2, tile=(4, 4)),
    "ring": dt.Options(algorithm="ring", tile=(4, 4)),
    "two-shot": dt.Options(algorithm="two-shot-push", tile=(4, 4), order="natural"),
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, ranks: int, options: dt.Options):
    check(plan_of(PROGRAMS[name](ranks), options, "schedule-tasks"))
