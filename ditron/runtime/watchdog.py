"""Says what a run that stands still is waiting for.

Works from where each lane stands and the slot words alone, so it serves the interleaved executor,
where that is exact, and the pool of rank processes, where the parent reads it from shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ditron.plan.tables import NotifyOp, Plan
from ditron.runtime.heap import EPOCH_WORD, HEADS_WORD, RUNNING_WORD, Heap
from ditron.runtime.lanes import rank_lanes
from ditron.runtime.words import reached, wait_words

MOST_WAITS = 12
MOST_PRODUCERS = 6


@dataclass(frozen=True)
class Progress:
    """For each lane (row of `Plan.lanes`): its launch, tasks finished in it, if one is running."""

    epoch: Sequence[int]
    finished: Sequence[int]
    running: Sequence[bool]


@dataclass(frozen=True)
class Unmet:
    """A wait that holds a task back: the slot's word was `seen`, `wanted` is what it needs."""

    task: int
    slot: int
    lag: int
    seen: int
    wanted: int


def shared_progress(plan: Plan, heap: Heap) -> Progress:
    """The progress that rank processes keep in their control words."""
    epoch = [0] * len(plan.lanes)
    finished = [0] * len(plan.lanes)
    running = [False] * len(plan.lanes)
    for rank in range(plan.ranks):
        words: list[int] = heap.control(rank).tolist()
        for index, lane in enumerate(rank_lanes(plan, rank)):
            epoch[lane] = words[EPOCH_WORD]
            finished[lane] = words[HEADS_WORD + index]
            running[lane] = words[RUNNING_WORD] == index
    return Progress(epoch, finished, running)


class Inspector:
    """Answers questions about one moment of a run."""

    def __init__(self, plan: Plan, heap: Heap, progress: Progress) -> None:
        self.plan = plan
        self.progress = progress
        self._heap = heap
        self._tasks = plan.lane_tasks()

    def head(self, lane: int) -> int | None:
        """The task a lane is at, or None if it has finished its launch (or not begun one)."""
        tasks, at = self._tasks[lane], self.progress.finished[lane]
        return int(tasks[at]) if self.progress.epoch[lane] and at < len(tasks) else None

    def running(self, rank: int) -> int | None:
        """The task that a rank is inside."""
        lanes = np.flatnonzero(self.plan.lanes.rank == rank).tolist()
        return next((self.head(x) for x in lanes if self.progress.running[x]), None)

    def unmet(self, lane: int) -> list[Unmet]:
        """The waits that hold a lane's head back."""
        task = self.head(lane)
        if task is None or self.progress.running[lane]:
            return []
        rows = np.asarray(self.plan.waits_of(task), np.int64)
        words = wait_words(self.plan, self._heap.layout, rows, self.progress.epoch[lane])
        found: list[Unmet] = []
        for i, row in enumerate(rows):
            seen, want = int(self._heap.words[words.word[i]]), int(words.want[i])
            if not words.absent[i] and not reached(seen, want):
                slot, lag = int(self.plan.waits.slot[row]), int(self.plan.waits.lag[row])
                found.append(Unmet(task, slot, lag, seen, want))
        return found

    def lane_text(self, lane: int) -> str:
        """What a lane is doing."""
        task = self.head(lane)
        epoch = self.progress.epoch[lane]
        if task is None:
            return f"has finished launch {epoch}" if epoch else "has not begun"
        name = f"{self._name(task)} (task {self.plan.tasks.seq[task]}) of launch {epoch}"
        if self.progress.running[lane]:
            return f"is inside {name}"
        unmet = self.unmet(lane)
        if not unmet:
            return f"is free to run {name}"
        slots = ", ".join(
            f"{self.plan.describe_slot(u.slot)} (seen {u.seen}, wanted {u.wanted})" for u in unmet
        )
        return f"waits before {name} for {slots}"

    def missing(self, wait: Unmet) -> list[int]:
        """Rows of the notifies that the launch waited for should have brought and has not."""
        source = self._source(wait)
        rows: list[int] = np.flatnonzero(self.plan.notifies.slot == wait.slot).tolist()
        return [r for r in rows if not self._came(int(self.plan.notifies.task[r]), source)]

    def _missing_text(self, wait: Unmet, row: int) -> str:
        plan = self.plan
        task = int(plan.notifies.task[row])
        verb = "sets it to" if plan.notifies.op[row] == NotifyOp.SET else "adds"
        return (
            f"never came: {plan.describe_task(task)} of launch {self._source(wait)},"
            f" which {verb} {plan.notifies.amount[row]};"
            f" its lane {self.lane_text(int(plan.tasks.lane[task]))}"
        )

    def _source(self, wait: Unmet) -> int:
        """The launch that a wait waits for."""
        return self.progress.epoch[int(self.plan.tasks.lane[wait.task])] - wait.lag

    def _follows(self, wait: Unmet) -> bool:
        """Whether all that it lacks is itself held back by waits: then it is not the cause."""
        tasks = [int(self.plan.notifies.task[row]) for row in self.missing(wait)]
        return bool(tasks) and all(self.unmet(int(self.plan.tasks.lane[t])) for t in tasks)

    def _wait_text(self, wait: Unmet) -> list[str]:
        slot = self.plan.describe_slot(wait.slot)
        lines = [
            f"{self.plan.describe_task(wait.task)} waits for {slot}:"
            f" seen {wait.seen}, wanted {wait.wanted}, lag {wait.lag}"
        ]
        rows = self.missing(wait)
        if not rows:
            lines.append("    all its notifies came: they add up to less than the wait wants")
        lines += [f"    {self._missing_text(wait, row)}" for row in rows[:MOST_PRODUCERS]]
        more = len(rows) - MOST_PRODUCERS
        return lines + [f"    and {more} more"] * (more > 0)

    def _came(self, task: int, epoch: int) -> bool:
        lane = int(self.plan.tasks.lane[task])
        now = self.progress.epoch[lane]
        done = int(self.plan.tasks.seq[task]) < self.progress.finished[lane]
        return now > epoch or (now == epoch and done)

    def _name(self, task: int) -> str:
        return self.plan.describe_task(task).split(" on rank ")[0]

    def report(self) -> tuple[str, str | None]:
        """All waits that hold lanes back, what never came, what runs; and the op's `file:line`."""
        lanes = range(len(self.plan.lanes))
        # A rank that is inside a task is not waiting, whatever its other lanes need.
        busy = {r for r in range(self.plan.ranks) if self.running(r) is not None}
        idle = [lane for lane in lanes if int(self.plan.lanes.rank[lane]) not in busy]
        waits = [wait for lane in idle for wait in self.unmet(lane)]
        waits.sort(key=self._follows)
        lines: list[str] = []
        for wait in waits[:MOST_WAITS]:
            lines += self._wait_text(wait)
        if len(waits) > MOST_WAITS:
            lines.append(f"and {len(waits) - MOST_WAITS} more waits")
        for rank in sorted(busy):
            task = self.running(rank)
            if task is not None:
                lines.append(f"{self.plan.describe_task(task)} is running")
        return "\n".join(lines), self._location(waits[0].task) if waits else None

    def _location(self, task: int) -> str | None:
        return self.plan.ops[int(self.plan.tasks.op[task])].location or None
