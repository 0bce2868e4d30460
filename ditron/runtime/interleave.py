"""Runs a whole plan in one process, in an order picked by a seed.

An oracle for the proofs and for tests: it does what no lucky real run shows. Any lane may be far
ahead of any other, launches overlap as far as the plan's boundary lets them, a deferred transfer
lands whenever it likes before its rank's launch ends (`stream`) or later (`persistent`), and memory
that nobody wrote holds NaN. It finds wrong orders; it cannot find faults of weak memory.

The host is part of the model: it writes each launch's inputs, takes the outputs and spoils both
(see `ditron.runtime.host`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from ditron.errors import DeadlockError
from ditron.plan.tables import After, Boundary, LaneOrder, OpKind, Plan
from ditron.runtime.heap import Heap
from ditron.runtime.host import Feed, Host, as_feed
from ditron.runtime.kernels import Kernel
from ditron.runtime.lanes import TRANSFERS, Binder
from ditron.runtime.watchdog import Inspector, Progress
from ditron.runtime.words import NotifyWords, WaitWords, notify_words, period, reached, wait_words

QUEUE_WORKERS = (1, 2, 4)
# How often a step redraws a lane's priority: always (a fair shuffle), or rarely (long head starts).
REDRAW = (1.0, 0.2, 0.02)


@dataclass(frozen=True)
class InterleavedRun:
    """What came out: `outputs[launch, buffer, rank]`, the memory at the end, the steps taken."""

    outputs: dict[tuple[int, str, int], torch.Tensor]
    heap: Heap
    steps: int


@dataclass(frozen=True, eq=False)
class _Flight:
    """A deferred transfer between its end and its landing."""

    target_rank: int
    land: Callable[[], object]


@dataclass
class _Signal:
    """A notify; it is sent once the transfers in `after` have landed."""

    word: int
    value: int
    sets: bool
    after: list[_Flight]


class _Lane:
    def __init__(self, row: int, tasks: list[int], workers: int, fifo: bool) -> None:
        self.row, self.tasks, self.workers, self.fifo = row, tasks, workers, fifo
        self.flights: list[_Flight] = []
        self.signals: list[_Signal] = []
        self.epoch = 0
        self.open: list[int] = []  # positions that the lane's workers have taken
        self.next = 0

    def enter(self, epoch: int) -> None:
        """Begin a launch: the first tasks are taken by the lane's workers."""
        self.epoch = epoch
        self.open = list(range(min(self.workers, len(self.tasks))))
        self.next = len(self.open)

    def close(self, position: int) -> None:
        """A worker has finished its task and takes the next."""
        self.open.remove(position)
        if self.next < len(self.tasks):
            self.open.append(self.next)
            self.next += 1


def run_interleaved(
    plan: Plan,
    kernels: Mapping[str, Kernel],
    feed: Feed | Mapping[tuple[str, int], torch.Tensor],
    *,
    seed: int = 0,
    launches: int = 1,
) -> InterleavedRun:
    """Run `launches` launches of a plan with no barrier between them.

    Args:
        plan: what to run.
        kernels: the compiled kernels of its CALL tasks.
        feed: the local shard of each (buffer, rank), or a function of (buffer, rank, launch).
        seed: picks the order; the same seed gives the same run.
        launches: how many launches.

    Raises:
        DeadlockError: nothing can run and something is left; says what waits for what.
    """
    return _Interleaver(plan, kernels, as_feed(feed), random.Random(seed), launches).run()


class _Interleaver:
    def __init__(
        self,
        plan: Plan,
        kernels: Mapping[str, Kernel],
        feed: Feed,
        rng: random.Random,
        launches: int,
    ) -> None:
        self.plan, self.rng, self.launches = plan, rng, launches
        self.heap = Heap.private(plan)
        self.heap.poison()
        self.host = Host(plan, self.heap, feed)
        self.binders = [Binder(plan, self.heap, kernels, phase) for phase in range(period(plan))]
        self.lanes = [
            _Lane(row, tasks.tolist(), self._workers(row), bool(plan.lanes.fifo[row]))
            for row, tasks in enumerate(plan.lane_tasks())
        ]
        self.groups = self._groups()
        self.redraw = rng.choice(REDRAW)
        self.priority = [[rng.random(), rng.random()] for _ in self.lanes]
        tasks = np.arange(len(plan.tasks) + 1)
        self.wait_rows: list[int] = np.searchsorted(plan.waits.task, tasks).tolist()
        self.waits: dict[int, WaitWords] = {}
        self.notifies: dict[int, NotifyWords] = {}

    def _workers(self, row: int) -> int:
        queue = self.plan.lanes.order[row] is LaneOrder.QUEUE
        return self.rng.choice(QUEUE_WORKERS) if queue else 1

    def run(self) -> InterleavedRun:
        self.host.begin()
        steps = 0
        while self._enter_launches():
            choices = self._choices()
            if not choices:
                raise self._deadlock()
            _, lane, ready = max(choices, key=lambda c: c[0])
            if ready:
                self._run_one(lane, self.rng.choice(ready))
            else:
                self._land(lane)
            self._redraw()
            steps += 1
        self.host.end(self.launches)
        return InterleavedRun(self.host.outputs, self.heap, steps)

    def _redraw(self) -> None:
        if self.redraw == 1.0:
            self.priority = [[self.rng.random(), self.rng.random()] for _ in self.lanes]
        elif self.rng.random() < self.redraw:
            self.rng.choice(self.priority)[self.rng.randrange(2)] = self.rng.random()

    def _groups(self) -> list[list[_Lane]]:
        """The lanes that begin each launch together."""
        if self.plan.boundary is Boundary.PERSISTENT:
            return [[lane] for lane in self.lanes]
        rank = self.plan.lanes.rank
        return [[x for x in self.lanes if rank[x.row] == r] for r in range(self.plan.ranks)]

    def _enter_launches(self) -> bool:
        """Let lanes begin launches as far as the boundary allows; whether anything is left."""
        for group in self.groups:
            while group and group[0].epoch < self.launches and self._ended(group):
                self._end_launch(group)
                for lane in group:
                    lane.enter(lane.epoch + 1)
                if self.plan.boundary is Boundary.STREAM:
                    self.host.begin_launch(self._rank(group), group[0].epoch)
        if any(x.open or x.flights or x.epoch < self.launches for x in self.lanes):
            return True
        for group in self.groups:
            self._end_launch(group)
        return False

    def _ended(self, group: list[_Lane]) -> bool:
        """Under a `stream` boundary a launch ends when its transfers have landed, too."""
        landed = self.plan.boundary is Boundary.STREAM
        return not any(x.open or (landed and x.flights) for x in group)

    def _rank(self, group: list[_Lane]) -> int:
        return int(self.plan.lanes.rank[group[0].row])

    def _end_launch(self, group: list[_Lane]) -> None:
        if group and group[0].epoch and self.plan.boundary is Boundary.STREAM:
            self.host.end_launch(self._rank(group), group[0].epoch)

    def _choices(self) -> list[tuple[float, _Lane, list[int]]]:
        """What may happen next: a lane runs one of these positions, or (none) a transfer lands."""
        found: list[tuple[float, _Lane, list[int]]] = []
        for lane, (run, land) in zip(self.lanes, self.priority, strict=True):
            if lane.flights:
                found.append((land, lane, []))
            if ready := self._ready(lane):
                found.append((run, lane, ready))
        return found

    def _ready(self, lane: _Lane) -> list[int]:
        if lane.flights and lane.fifo:
            return []
        return [p for p in lane.open if self._satisfied(lane.tasks[p], lane.epoch)]

    def _satisfied(self, task: int, epoch: int) -> bool:
        words = self.waits.get(epoch)
        if words is None:
            rows = np.arange(len(self.plan.waits), dtype=np.int64)
            words = wait_words(self.plan, self.heap.layout, rows, epoch)
            self.waits[epoch] = words
        seen = self.heap.words
        return all(
            words.absent[w] or reached(int(seen[words.word[w]]), int(words.want[w]))
            for w in range(self.wait_rows[task], self.wait_rows[task + 1])
        )

    def _run_one(self, lane: _Lane, position: int) -> None:
        task = lane.tasks[position]
        op = self.plan.ops[int(self.plan.tasks.op[task])]
        flight: _Flight | None = None
        if op.kind is OpKind.ACQUIRE or op.kind is OpKind.RELEASE:
            self.host.touch(op.kind, self.plan.accesses_of(task), lane.epoch)
        elif op.deferred and op.kind in TRANSFERS:
            flight = self._take_off(task, lane.epoch)
            lane.flights.append(flight)
        else:
            body = self._binder(lane.epoch).body(task)
            if body is not None:
                body()
        for row in self.plan.notifies_of(task):
            self._notify(lane, row, flight)
        lane.close(position)

    def _binder(self, epoch: int) -> Binder:
        return self.binders[(epoch - 1) % len(self.binders)]

    def _take_off(self, task: int, epoch: int) -> _Flight:
        """The source may be read at any time between now and the landing: pick an end."""
        source, target = self._binder(epoch).views(task)
        if self.rng.random() < 0.5:
            source = source.clone()
        rank = int(self.plan.accesses.rank[self.plan.accesses_of(task)[1]])
        return _Flight(rank, lambda: target.copy_(source))

    def _notify(self, lane: _Lane, row: int, flight: _Flight | None) -> None:
        words = self.notifies.get(lane.epoch)
        if words is None:
            rows = np.arange(len(self.plan.notifies), dtype=np.int64)
            words = notify_words(self.plan, self.heap.layout, rows, lane.epoch)
            self.notifies[lane.epoch] = words
        after = After(int(self.plan.notifies.after[row]))
        slot_rank = int(self.plan.slots.rank[self.plan.notifies.slot[row]])
        signal = _Signal(
            word=int(words.word[row]),
            value=int(words.value[row]),
            sets=bool(words.sets[row]),
            after=_held_by(after, lane, flight, slot_rank),
        )
        lane.signals.append(signal)
        self._send_landed(lane)

    def _land(self, lane: _Lane) -> None:
        index = 0 if lane.fifo else self.rng.randrange(len(lane.flights))
        flight = lane.flights.pop(index)
        flight.land()
        for signal in lane.signals:
            signal.after = [f for f in signal.after if f is not flight]
        self._send_landed(lane)

    def _send_landed(self, lane: _Lane) -> None:
        for signal in lane.signals:
            if not signal.after:
                word = self.heap.words[signal.word : signal.word + 1]
                word[0] = signal.value if signal.sets else (word + np.int32(signal.value))[0]
        lane.signals = [s for s in lane.signals if s.after]

    def _deadlock(self) -> DeadlockError:
        progress = Progress(
            [x.epoch for x in self.lanes],
            [min(x.open, default=x.next) for x in self.lanes],
            [False] * len(self.lanes),
        )
        text, where = Inspector(self.plan, self.heap, progress).report()
        return DeadlockError(f"{self.plan.name}: nothing can run\n{text}", where)


def _held_by(after: After, lane: _Lane, flight: _Flight | None, slot_rank: int) -> list[_Flight]:
    """The transfers in flight that a notify of this kind has to wait for."""
    if after is After.PUT:
        return [flight] if flight is not None else []
    if after is After.FENCE:
        return [f for f in lane.flights if f.target_rank == slot_rank]
    return list(lane.flights) if after is After.QUIET else []
