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
Pair = tuple[Instance, Instance]


@dataclass
class Outcome:
    """What some interleaving did: hang, or have two conflicting tasks active at once.

    `unordered` holds (a, b): b was active while a had begun too or had not come yet.
    """

    deadlock: bool = False
    races: set[Pair] = field(default_factory=set[Pair])
    unordered: set[Pair] = field(default_factory=set[Pair])
    states: int = 0

    @property
    def correct(self) -> bool:
        return not self.deadlock and not self.races


# Where each lane stands: (instances begun, whether the last is still running); and what is in
# flight. A queue lane has the set of its instances that run, one worker a task.
# The host of each rank has a lane of its own behind the others: between two launches of its rank it
# releases the buffers of the last and acquires those of the next.
Place = tuple[tuple[tuple[int, bool], ...], frozenset[Instance], frozenset[Instance]]

HAND_OVERS = (OpKind.ACQUIRE, OpKind.RELEASE)


class Explorer:
    """Explores a plan of static lanes (and queues with unbounded workers) over some launches."""

    def __init__(self, plan: Plan, launches: int = 4) -> None:
        self.plan = plan
        self.launches = launches
        self.lists = [
            [(int(t), e) for e in range(launches) for t in tasks] for tasks in plan.lane_tasks()
        ]
        self.static = [o is LaneOrder.STATIC for o in plan.lanes.order]
        self.rank = plan.lanes.rank.tolist()
        ops = [plan.ops[int(o)] for o in plan.tasks.op]
        kinds = [o.kind for o in ops]
        self.hand_over = [k in HAND_OVERS for k in kinds]
        self.hosts: dict[int, list[list[Instance]]] = {}  # lane -> accesses before each launch
        for r in sorted({int(plan.tasks.rank[t]) for t, h in enumerate(self.hand_over) if h}):
            mine = [t for t, h in enumerate(self.hand_over) if h and plan.tasks.rank[t] == r]
            self.hosts[len(self.lists)] = [
                [(t, e if kinds[t] is OpKind.ACQUIRE else e - 1) for t in mine]
                for e in range(launches)
            ]
            self.lists.append([(-1, e) for e in range(launches)])
            self.static.append(True)
            self.rank.append(r)
        self.deferred = [o.deferred for o in ops]
        self.is_put = [o.kind is OpKind.PUT for o in ops]
        self._known: dict[tuple[Instance, Instance], bool] = {}

    def run(self, limit: int = 200_000) -> Outcome | None:
        """All that can happen, or None beyond `limit` states."""
        nowhere: list[tuple[int, bool]] = [(0, False)] * len(self.lists)
        start: Place = (tuple(nowhere), frozenset(), frozenset())
        seen: set[Place] = {start}
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
                if lane in self.hosts:
                    yield self._move(state, lane, (begun + 1, True))
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
        flying = state[1]
        host = lane in self.hosts
        if not host and self.plan.lanes.fifo[lane] and any(i in flying for i in self.lists[lane]):
            return False
        if self.plan.boundary is Boundary.STREAM and not self._launch_may_begin(
            state, self.rank[lane], launch, host=host
        ):
            return False
        if host:
            return True
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

    def _launch_may_begin(self, state: Place, rank: int, launch: int, *, host: bool) -> bool:
        """The rank's earlier launches have ended, and its host is done before this one."""
        places, flying, queued = state
        for other, (begun, running) in enumerate(places):
            if self.rank[other] == rank:
                per_launch = len(self.lists[other]) // self.launches
                before = launch + 1 if other in self.hosts and not host else launch
                if begun - running < per_launch * before:
                    return False
        return not any(self.plan.tasks.rank[t] == rank and e < launch for t, e in flying | queued)

    def _slots(self, state: Place) -> dict[tuple[int, int], int]:
        """What the slots hold; of `set`s the highest."""
        values: dict[tuple[int, int], int] = {}
        for lane in range(len(self.plan.lanes)):
            for i in range(state[0][lane][0]):
                self._signal(state, lane, i, values)
        return values

    def _signal(self, state: Place, lane: int, i: int, values: dict[tuple[int, int], int]) -> None:
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
                level = launch // copies * int(slots.count[slot]) + amount
                values[key] = max(values.get(key, 0), level)
            else:
                values[key] = values.get(key, 0) + amount

    def _has_come(self, state: Place, lane: int, i: int, after: After, slot: int) -> bool:
        places, flying, queued = state
        instance = self.lists[lane][i]
        if instance in queued or (
            self.static[lane] and i == places[lane][0] - 1 and places[lane][1]
        ):
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
        running: list[Instance] = []
        for lane, (begun, run) in enumerate(places):
            if run and lane in self.hosts:
                running += [i for i in self.hosts[lane][begun - 1] if i[1] >= 0]
            elif run and not self.hand_over[self.lists[lane][begun - 1][0]]:
                running.append(self.lists[lane][begun - 1])
        return [*running, *flying, *queued]

    def _observe(self, state: Place, result: Outcome) -> None:
        active = self._active(state)
        for a, b in combinations(sorted(active), 2):
            result.unordered |= {(a, b), (b, a)}
            if not self._same_host(a, b) and self._conflict(a, b):
                result.races.add((a, b))
        for lane, (begun, _) in enumerate(state[0]):
            if lane in self.hosts:
                continue
            for later in self.lists[lane][begun:]:
                result.unordered.update((later, b) for b in active)

    def _same_host(self, a: Instance, b: Instance) -> bool:
        """Hand-overs have no accesses in their lanes, and a host does one thing at a time."""
        return self.plan.tasks.rank[a[0]] == self.plan.tasks.rank[b[0]] and (
            self.hand_over[a[0]] or self.hand_over[b[0]]
        )

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
