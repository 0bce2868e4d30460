"""What a failed delivery proof has found."""

from __future__ import annotations

from dataclasses import dataclass

from ditron.analysis.counterexample import Found, Mark
from ditron.analysis.plan_records import AccessRecord, BoxRecord, TaskRecord


@dataclass(frozen=True)
class WrongOutput(Found):
    """An output's cell that holds something else: `box` of the output, `cell` of its buffer."""

    output: str
    rank: int
    box: BoxRecord
    cell: BoxRecord
    came: str
    writer: TaskRecord | None
    location: str

    @property
    def where(self) -> str:
        return self.location

    @property
    def text(self) -> str:
        by, need = "never written by a task", "store or put it there"
        if self.writer is not None:
            by = f"last written by {self.writer}, {self.writer.location}"
            need = "look at what that task reads, and from whom"
        lo_hi = zip(self.box.lo, self.box.hi, strict=True)
        box = ", ".join(f"{a}:{b}" for a, b in lo_hi)
        return (
            f"output {self.output!r}[{box}] on rank {self.rank} ({self.cell}) {self.came};"
            f" it is {by}; {need}"
        )

    def marks(self) -> tuple[Mark, ...]:
        return () if self.writer is None else ((self.writer, 0),)


@dataclass(frozen=True)
class MissingOutput(Found):
    """An output that is not all there: a cell that nobody wrote, or terms that do not add up."""

    output: str
    cell: BoxRecord | None
    why: str
    location: str

    @property
    def where(self) -> str:
        return self.location

    @property
    def text(self) -> str:
        return f"output {self.output!r}: {self.why}"


@dataclass(frozen=True)
class LostSource(Found):
    """A cell of an input or weight that a launch overwrites."""

    name: str
    cell: BoxRecord
    writer: TaskRecord | None
    location: str

    @property
    def where(self) -> str:
        return self.location

    @property
    def text(self) -> str:
        by = "a buffer in the same bytes" if self.writer is None else str(self.writer)
        return (
            f"{self.name!r} is to stay for further launches, but this one overwrites {self.cell}:"
            f" {by} does; write a buffer of its own"
        )

    def marks(self) -> tuple[Mark, ...]:
        return () if self.writer is None else ((self.writer, 0),)


@dataclass(frozen=True)
class UninitialisedRead(Found):
    """A read of memory that nobody has written, or that another buffer has overwritten."""

    read: AccessRecord
    cell: BoxRecord
    why: str

    @property
    def where(self) -> str:
        return self.read.task.location

    @property
    def text(self) -> str:
        return (
            f"{self.read}, but {self.why}: an uninitialised read; have it written before, or read"
            " no more than is"
        )

    def marks(self) -> tuple[Mark, ...]:
        return ((self.read.task, 0),)


@dataclass(frozen=True)
class MisfitViews(Found):
    """Two views of one task whose common dimension has two sizes."""

    first: AccessRecord
    first_dim: int
    second: AccessRecord
    second_dim: int

    @property
    def where(self) -> str:
        return self.first.task.location

    @property
    def text(self) -> str:
        return (
            f"{self.first.task} needs as much of dim {self.first_dim} of {self.first.box} as of"
            f" dim {self.second_dim} of {self.second.box}; give both views one size there"
        )

    def marks(self) -> tuple[Mark, ...]:
        return ((self.first.task, 0),)


@dataclass(frozen=True)
class EmptyView(Found):
    """A view with nothing along a dimension whose one element is wanted."""

    view: AccessRecord
    dim: int

    @property
    def where(self) -> str:
        return self.view.task.location

    @property
    def text(self) -> str:
        return (
            f"{self.view}, but needs one element along dim {self.dim}, to go with all of another"
            " view's; give it a view that every rank has, or leave the task out there"
        )

    def marks(self) -> tuple[Mark, ...]:
        return ((self.view.task, 0),)
