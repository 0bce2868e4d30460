"""Every interleaving of a small plan, by brute force: the oracle that the proofs are held against.

It follows the execution model literally and knows nothing of happens-before: a state is where each
lane stands and which transfers are in flight; slots are recomputed from what has been signalled.
Accesses are compared as sets of bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from ditron.plan.tables import (
    DTYPE_BYTES,
    After,
    Boundary,
    LaneOrder,
    Mode,
    NotifyOp,
    OpKind,
    Plan,
)

Instance = tuple[int, int]  # task, launch


@dataclass
class Outcome:
    """What some interleaving did: hang, or have two conflicting tasks active at once.

    `unordered` holds (a, b): b was active while a had begun too or had not come yet.
    """

    deadlock: bool = False
    races: set[tuple[Instance, Instance]] = field(default_factory=set)
    unordered: set[tuple[Instance, Instance]] = field(default_factory=set)
    states: int = 0

    @property
    def correct(self) -> bool:
        return not self.deadlock and not self.races


# Where each lane stands: (instances begun, whether the last is still running); and what is in
# flight. A queue lane has the set of its instances that run, one worker a task.
Place = tuple[tuple[tuple[int, bool], ...], frozenset[Instance], frozenset[Instance]]


class Explorer:
    """Explores a plan of static lanes (and queues with unbounded workers) over some launches."""

    def __init__(self, plan: Plan, launches: int = 4) -> None:
        self.plan = plan
        self.launches = launches
        self.lists = [
            [(int(t), e) for e in range(launches) for t in tasks] for tasks in plan.lane_tasks()
        ]
        self.static = [o is LaneOrder.STATIC for o in plan.lanes.order]
        ops = [plan.ops[o] for o in plan.tasks.op]
        self.deferred = [o.deferred for o in ops]
        self.is_put = [o.kind is OpKind.PUT for o in ops]
        self._known: dict[tuple[Instance, Instance], bool] = {}

    def run(self, limit: int = 200_000) -> Outcome | None:
        """All that can happen, or None beyond `limit` states."""
        start: Place = (tuple((0, False) for _ in self.lists), frozenset(), frozenset())
        seen = {start}
        stack = [start]
        result = Outcome()
        done_all = tuple((len(lane), False) for lane in self.lists)
        while stack:
            state = stack.pop()
            self._observe(state, result)
            following = list(self._steps(state))
            if not following and (state[0] != done_all or state[1] or state[2]):
                result.deadlock = True
            for s in following:
                if s not in seen:
                    seen.add(s)
                    stack.append(s)
            if len(seen) > limit:
                return None
        result.states = len(seen)
        return result

    def _steps(self, state: Place) -> Iterator[Place]:
        places, flying, queued = state
        slots = self._slots(state)
        for lane, (begun, running) in enumerate(places):
            if running:
                yield self._move(state, lane, (begun, False))
            elif begun < len(self.lists[lane]):
                task, launch = self.lists[lane][begun]
                if not self._may_begin(state, lane, (task, launch), slots):
                    continue
                air = flying | {(task, launch)} if self.deferred[task] else flying
                if self.static[lane]:
                    after = self._move(state, lane, (begun + 1, not self.deferred[task]))
                    yield after[0], air, queued
                else:
                    held = queued if self.deferred[task] else queued | {(task, launch)}
                    yield self._move(state, lane, (begun + 1, False))[0], air, held
        for instance in flying:
            yield places, flying - {instance}, queued
        for instance in queued:
            yield places, flying, queued - {instance}

    def _move(self, state: Place, lane: int, place: tuple[int, bool]) -> Place:
        places = list(state[0])
        places[lane] = place
        return tuple(places), state[1], state[2]

    def _may_begin(
        self, state: Place, lane: int, instance: Instance, slots: dict[tuple[int, int], int]
    ) -> bool:
        task, launch = instance
        places, flying, queued = state
        if self.plan.lanes.fifo[lane] and any(i in flying for i in self.lists[lane]):
            return False
        if self.plan.boundary is Boundary.STREAM:
            rank = self.plan.tasks.rank[task]
            for other, (begun, running) in enumerate(places):
                if self.plan.lanes.rank[other] == rank:
                    per_launch = len(self.lists[other]) // self.launches
                    if begun - running < per_launch * launch:
                        return False
            if any(self.plan.tasks.rank[t] == rank and e < launch for t, e in queued):
                return False
        waits = self.plan.waits
        for w in self.plan.waits_of(task):
            used = launch - int(waits.lag[w])
            if used < 0:
                continue
            slot = int(waits.slot[w])
            copies = int(self.plan.slots.copies[slot])
            want = used // copies * int(self.plan.slots.count[slot]) + int(waits.value[w])
            if slots.get((slot, used % copies), 0) < want:
                return False
        return True

    def _slots(self, state: Place) -> dict[tuple[int, int], int]:
        """What the slots hold; `set`s are taken in lane order (their plans have one lane a slot)."""
        values: dict[tuple[int, int], int] = {}
        for lane in range(len(self.lists)):
            for i, (task, launch) in enumerate(self.lists[lane][: state[0][lane][0]]):
                self._signal(state, lane, i, values)
        return values

    def _signal(
        self, state: Place, lane: int, i: int, values: dict[tuple[int, int], int]
    ) -> None:
        task, launch = self.lists[lane][i]
        notifies, slots = self.plan.notifies, self.plan.slots
        for n in self.plan.notifies_of(task):
            slot = int(notifies.slot[n])
            if not self._has_come(state, lane, i, After(int(notifies.after[n])), slot):
                continue
            copies = int(slots.copies[slot])
            key = (slot, launch % copies)
            amount = int(notifies.amount[n])
            if notifies.op[n] == NotifyOp.SET:
                values[key] = launch // copies * int(slots.count[slot]) + amount
            else:
                values[key] = values.get(key, 0) + amount

    def _has_come(self, state: Place, lane: int, i: int, after: After, slot: int) -> bool:
        places, flying, queued = state
        instance = self.lists[lane][i]
        if instance in queued or (self.static[lane] and i == places[lane][0] - 1 and places[lane][1]):
            return False
        if after is After.END:
            return True
        if after is After.PUT or not self.static[lane]:
            return instance not in flying
        earlier = [t for t in self.lists[lane][: i + 1] if t in flying]
        if after is After.FENCE:
            rank = int(self.plan.slots.rank[slot])
            earlier = [t for t in earlier if self._lands_at(t[0]) == rank and self.is_put[t[0]]]
        return not earlier

    def _lands_at(self, task: int) -> int:
        return int(self.plan.accesses.rank[self.plan.accesses_of(task)[-1]])

    def _active(self, state: Place) -> list[Instance]:
        places, flying, queued = state
        running = [
            self.lists[lane][begun - 1] for lane, (begun, run) in enumerate(places) if run
        ]
        return [*running, *flying, *queued]

    def _observe(self, state: Place, result: Outcome) -> None:
        active = self._active(state)
        for a, b in combinations(sorted(active), 2):
            result.unordered |= {(a, b), (b, a)}
            if self._conflict(a, b):
                result.races.add((a, b))
        for lane, (begun, _) in enumerate(state[0]):
            for later in self.lists[lane][begun:]:
                result.unordered.update((later, b) for b in active)

    def _conflict(self, a: Instance, b: Instance) -> bool:
        """Whether two instances touch a byte in conflicting ways."""
        known = self._known.get((a, b))
        if known is None:
            known = self._known[a, b] = any(
                not self._calm(x, y) and self._bytes(x, a[1]) & self._bytes(y, b[1])
                for x in self.plan.accesses_of(a[0])
                for y in self.plan.accesses_of(b[0])
            )
        return known

    def _calm(self, x: int, y: int) -> bool:
        either = int(self.plan.accesses.mode[x]) | int(self.plan.accesses.mode[y])
        return either in (Mode.READ, Mode.ADD)

    def _bytes(self, access: int, launch: int) -> frozenset[tuple[int, int]]:
        """(rank, heap byte) that an access of a launch touches."""
        acc = self.plan.accesses
        row, rank = int(acc.buffer[access]), int(acc.rank[access])
        buffer = self.plan.buffers[row]
        base = buffer.offset_bytes if buffer.offset_bytes >= 0 else 1_000_000 * (row + 1)
        base += launch % buffer.copies * buffer.size_bytes
        width = DTYPE_BYTES[buffer.dtype]
        numbers = np.arange(np.prod(buffer.capacity)).reshape(buffer.capacity)
        box = tuple(slice(acc.lo[access, d], acc.hi[access, d]) for d in range(numbers.ndim))
        elements = numbers[box].ravel().tolist()
        return frozenset((rank, base + e * width + i) for e in elements for i in range(width))
