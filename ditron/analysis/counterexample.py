"""What a failed proof has found, as frozen records; the message is made from them.

Each kind says what to mark in a picture of the lanes (`marks`) and what to draw between tasks
(`arrows`). `lanes` holds the tasks that stand around.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, is_dataclass

from ditron.analysis.plan_records import (
    AccessRecord,
    LaneRecord,
    SlotRecord,
    TaskRecord,
)
from ditron.errors import Counterexample

Mark = tuple[TaskRecord, int]  # a task in one of the launches looked at


@dataclass(frozen=True)
class Edge:
    """A notify of `first` after its end (or put) and a wait of `second` that would mend it."""

    first: TaskRecord
    after: str
    second: TaskRecord
    lag: int


@dataclass(frozen=True)
class Arrow:
    """A line from one task to another; a missing one is dashed."""

    source: Mark
    target: Mark
    label: str
    missing: bool = False


@dataclass(frozen=True)
class Found(Counterexample):
    """The base of all kinds: the lanes around."""

    lanes: tuple[LaneRecord, ...]

    @property
    def where(self) -> str | None:
        """The user's `file:line` that the message is about."""
        return None

    @property
    def text(self) -> str:
        """The message."""
        raise NotImplementedError

    def marks(self) -> tuple[Mark, ...]:
        """The tasks to mark."""
        return ()

    def arrows(self) -> tuple[Arrow, ...]:
        """What to draw between tasks."""
        return ()


def launches_later(gap: int) -> str:
    """When a later launch is, for messages."""
    return {0: "in the same launch", 1: "in the next launch"}.get(gap, f"{gap} launches later")


@dataclass(frozen=True)
class Race(Found):
    """Two accesses to the same bytes that nothing orders, the second `gap` launches later."""

    first: AccessRecord
    second: AccessRecord
    gap: int
    missing: Edge
    more_pairs: int

    @property
    def where(self) -> str:
        return self.second.task.location

    @property
    def text(self) -> str:
        edge = self.missing
        lag = f" of lag {edge.lag}" if edge.lag else ""
        more = f" ({self.more_pairs} more such pairs)" if self.more_pairs else ""
        return (
            f"nothing orders two accesses to the same bytes:\n"
            f"  {self.first} [{self.first.task.location}]\n"
            f"  {self.second} {launches_later(self.gap)} [{self.second.task.location}]\n"
            f"a notify from {edge.first} after {edge.after} and a wait{lag} for it in"
            f" {edge.second} would{more}"
        )

    def marks(self) -> tuple[Mark, Mark]:
        return (self.first.task, 0), (self.second.task, self.gap)

    def arrows(self) -> tuple[Arrow, ...]:
        label = f"missing: notify after {self.missing.after}, wait"
        first, second = self.marks()
        return (Arrow(first, second, label, missing=True),)


@dataclass(frozen=True)
class NotHandedOver(Found):
    """A peer's access to a buffer, or its bytes, that a host fills or reads between launches."""

    access: AccessRecord
    lacks: str
    buffer: str

    @property
    def where(self) -> str:
        return self.access.task.location

    @property
    def text(self) -> str:
        host, name = f"the host of rank {self.access.box.rank}", f"%{self.buffer}"
        need = f"release {name} there after a wait for this task"
        if self.lacks == "acquire":
            need = f"acquire {name} there before, and notify this task"
        what = name if self.access.box.buffer == self.buffer else f"{name}, in the same bytes,"
        return (
            f"nothing orders {self.access} with what {host} does to {what} between launches: {need}"
        )

    def marks(self) -> tuple[Mark, ...]:
        return ((self.access.task, 0),)


@dataclass(frozen=True)
class InexactWait(Found):
    """A wait that may pass after different increments in different runs."""

    waiter: TaskRecord
    slot: SlotRecord
    value: int
    count: int
    total: int
    notifiers: tuple[TaskRecord, ...]
    why: str

    @property
    def where(self) -> str:
        return self.waiter.location

    @property
    def text(self) -> str:
        return (
            f"{self.waiter} waits for {self.slot} >= {self.value}, which does not say which"
            f" increments have come: {self.why}"
        )

    def marks(self) -> tuple[Mark, ...]:
        return (self.waiter, 0), *((t, 0) for t in self.notifiers)

    def arrows(self) -> tuple[Arrow, ...]:
        return tuple(Arrow((t, 0), (self.waiter, 0), str(self.slot)) for t in self.notifiers)


@dataclass(frozen=True)
class EpochNotSeparated(Found):
    """A slot's next use may begin before a wait for this one: `gap` launches after the wait."""

    waiter: TaskRecord
    slot: SlotRecord
    value: int
    lag: int
    copies: int
    notifier: TaskRecord
    missing: Edge | None

    @property
    def where(self) -> str:
        return self.waiter.location

    @property
    def gap(self) -> int:
        """How many launches after the wait the increment comes."""
        return self.copies - self.lag

    @property
    def text(self) -> str:
        if self.missing is None:
            return (
                f"{self.waiter} waits for {self.slot} of {self.lag} launches ago, but the slot is"
                f" used again after {self.copies}; lower the lag or double the slot"
            )
        return (
            f"nothing orders the wait of {self.waiter} for {self.slot} >= {self.value} before"
            f" {self.notifier} increments the slot for its next use {launches_later(self.gap)},"
            f" so the wait may take that increment for one that it still lacks;"
            f" a credit, a notify from the first to the second after its wait, would"
        )

    def marks(self) -> tuple[Mark, Mark]:
        return (self.waiter, 0), (self.notifier, max(0, self.gap))

    def arrows(self) -> tuple[Arrow, ...]:
        label = f"missing: a credit before {self.slot} is used again"
        first, second = self.marks()
        return (Arrow(first, second, label, missing=True),)


@dataclass(frozen=True)
class UnreachableWait(Found):
    """A wait for more than the notifies of a launch bring its slot to."""

    waiter: TaskRecord
    slot: SlotRecord
    value: int
    count: int
    total: int
    notifies: int
    notifiers: tuple[TaskRecord, ...]

    @property
    def where(self) -> str:
        return self.waiter.location

    @property
    def text(self) -> str:
        text = (
            f"{self.waiter} waits for {self.slot} >= {self.value}, which counts {self.count} a"
            f" launch, but its {self.notifies} notifies bring it to {self.total}"
        )
        if not self.notifiers:
            return f"{text}: no task notifies it; add a notify, or take the wait out"
        listed = "; ".join(map(str, self.notifiers[:3]))
        told = f"{text} ({listed}{'; ...' if len(self.notifiers) > 3 else ''})"
        return f"{told}; wait for {self.total}, or have more tasks notify it"

    def marks(self) -> tuple[Mark, ...]:
        return (self.waiter, 0), *((t, 0) for t in self.notifiers)

    def arrows(self) -> tuple[Arrow, ...]:
        return tuple(Arrow((t, 0), (self.waiter, 0), str(self.slot)) for t in self.notifiers)


@dataclass(frozen=True)
class WaitStep:
    """One task of a cycle: it waits for a slot that `producer` would raise.

    `behind` is the task that the producer's lane is at, if that is another.
    """

    waiter: TaskRecord
    slot: SlotRecord
    value: int
    seen: int
    producer: TaskRecord
    behind: TaskRecord | None

    def __str__(self) -> str:
        text = (
            f"{self.waiter} waits for {self.slot} >= {self.value} (it is {self.seen}), which needs"
            f" {self.producer}"
        )
        if self.behind is not None:
            text += f", behind {self.behind} on its lane"
        return f"{text} [{self.waiter.location}]"


@dataclass(frozen=True)
class Cycle(Found):
    """Tasks that wait for each other; each step's producer is at or behind the next's waiter."""

    steps: tuple[WaitStep, ...]

    @property
    def where(self) -> str:
        return self.steps[0].waiter.location

    @property
    def text(self) -> str:
        many = len(self.steps)
        count = f"{many} task{'s wait for each other' if many > 1 else ' waits for itself'}"
        need = "let one of them go on without its wait, or notify before it waits"
        return "\n  ".join([f"{count}; {need}:", *map(str, self.steps)])

    def marks(self) -> tuple[Mark, ...]:
        tasks = [t for s in self.steps for t in (s.waiter, s.producer)]
        return tuple((t, 0) for t in dict.fromkeys(tasks))

    def arrows(self) -> tuple[Arrow, ...]:
        arrows: list[Arrow] = []
        for step in self.steps:
            label = f"waits for {step.slot} >= {step.value}"
            arrows.append(Arrow((step.waiter, 0), (step.producer, 0), label))
            if step.behind is not None:
                arrows.append(Arrow((step.producer, 0), (step.behind, 0), "behind"))
        return tuple(arrows)


def counterexample_data(found: Counterexample) -> dict[str, object]:
    """A counterexample as plain data, with its kind."""
    assert is_dataclass(found)
    return {"kind": type(found).__name__, **asdict(found)}
