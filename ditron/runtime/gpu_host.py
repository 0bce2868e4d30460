"""One rank's host program: the launches of the plan, bound to addresses, ready to be enqueued."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch

from ditron.plan.launches import HostCall, Launches, LaunchKind
from ditron.plan.strips import strips
from ditron.plan.tables import Plan
from ditron.runtime.gpu_layout import NEXT_WORD
from ditron.runtime.gpu_memory import RankMemory

FLAG_BYTES = 4

# What a call does with the number of its stream.
Enqueue = Callable[[int], object]


class Calls(Protocol):
    """What a host can put on a stream besides kernels; addresses and streams are the driver's."""

    def copy(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        """Copy bytes."""
        ...

    def copy_lines(
        self,
        target: int,
        target_pitch: int,
        source: int,
        source_pitch: int,
        width: int,
        height: int,
        stream: int,
    ) -> None:
        """Copy lines of a box."""
        ...

    def wait(self, word: int, value: int, stream: int) -> None:
        """Hold the stream until a word has reached a value."""
        ...


@dataclass(frozen=True)
class StreamWait:
    """A wait of a stream: the word's address, and what it has to reach in which launch."""

    row: HostCall
    word: int
    count: int

    def wanted(self, done: int) -> int | None:
        """The value in the launch after `done` others, modulo 2^32; None if nothing is awaited."""
        row = self.row
        return None if done < row.lag else (done - row.lag) * self.count + row.value


# A row, and events before and after it on its stream.
Span = tuple[HostCall, torch.cuda.Event, torch.cuda.Event]
WORK = (LaunchKind.KERNEL, LaunchKind.LIBRARY, LaunchKind.COPY)


@contextmanager
def _noted(spans: list[Span] | None, row: HostCall, stream: torch.cuda.Stream) -> Generator[None]:
    if spans is None or row.kind not in WORK:
        yield
        return
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record(stream)
    yield
    end.record(stream)
    spans.append((row, begin, end))


# The kernel form of a stream's wait.
WaitKernel = Callable[[StreamWait], object]


class HostProgram:
    """Enqueues a rank's launches.

    Args:
        plan: what runs.
        launches: the rows of this rank.
        memory: the rank's memory.
        kernels: what launches each kernel op on the current stream.
        library: what calls a library for a task, on the current stream.
        calls: the driver.
        wait_kernel: launches a wait as a kernel on the current stream.
    """

    def __init__(
        self,
        plan: Plan,
        launches: Launches,
        memory: RankMemory,
        kernels: Mapping[int, Callable[[], object]],
        calls: Calls,
        wait_kernel: WaitKernel,
        library: Callable[[int], Callable[[], object]] | None = None,
    ) -> None:
        self.plan, self.memory, self.calls = plan, memory, calls
        self.kernels, self.wait_kernel = kernels, wait_kernel
        self.rows = list(launches.rows())
        # What is short goes before products, and these one after another.
        called = [r for r in self.rows if r.kind is LaunchKind.LIBRARY]
        products = {r.stream for r in called if plan.tasks.flops[r.task]}
        self.sides = [
            torch.cuda.Stream(priority=0 if side in products else -1)
            for side in range(1, max(r.stream for r in self.rows) + 1)
        ]
        self.waits = {
            at: StreamWait(row, memory.slot_address(row.slot), int(plan.slots.count[row.slot]))
            for at, row in enumerate(self.rows)
            if row.kind is LaunchKind.STREAM_WAIT
        }
        recorded = {row.slot for row in self.rows if row.kind is LaunchKind.RECORD}
        self.events = {slot: torch.cuda.Event() for slot in recorded}
        self.called = {
            row.task: library(row.task)
            for row in self.rows
            if row.kind is LaunchKind.LIBRARY and library is not None
        }
        self.bound = [self._bind(row) for row in self.rows]

    def call_once(self) -> None:
        """Have the library do every task on its stream: it loads kernels and makes room for them.

        Before the first launch: what it writes is garbage.
        """
        for row in self.rows:
            if row.kind is LaunchKind.LIBRARY:
                stream = self.sides[row.stream - 1] if row.stream else torch.cuda.current_stream()
                with torch.cuda.stream(stream):
                    self.called[row.task]()

    def enqueue(
        self, main: torch.cuda.Stream, done: int | None, spans: list[Span] | None = None
    ) -> None:
        """Put one launch on the streams, behind what the main one has been given.

        Args:
            main: the stream that computes.
            done: launches before this one, where the host knows: then streams wait by the driver,
                which takes no SM; else (a captured launch) kernels wait.
            spans: where to note when the rows that work begin and end; they run apart then.
        """
        streams = [main, *self.sides]
        for at, (row, bound) in enumerate(zip(self.rows, self.bound, strict=True)):
            stream = streams[row.stream]
            with _noted(spans, row, stream):
                self._enqueue(at, row, bound, streams, done)

    def _enqueue(
        self,
        at: int,
        row: HostCall,
        bound: Sequence[Enqueue],
        streams: Sequence[torch.cuda.Stream],
        done: int | None,
    ) -> None:
        stream = streams[row.stream]
        match row.kind:
            case LaunchKind.EVENT if row.slot in self.events:
                stream.wait_event(self.events[row.slot])
            case LaunchKind.EVENT:
                stream.wait_stream(streams[row.behind])
            case LaunchKind.RECORD:
                self.events[row.slot].record(stream)
            case LaunchKind.KERNEL:
                with torch.cuda.stream(stream):
                    self.kernels[row.op]()
            case LaunchKind.LIBRARY:
                with torch.cuda.stream(stream):
                    self.called[row.task]()
            case LaunchKind.STREAM_WAIT:
                self._wait(self.waits[at], stream, done)
            case _:
                for one in bound:
                    one(stream.cuda_stream)

    def _wait(self, wait: StreamWait, stream: torch.cuda.Stream, done: int | None) -> None:
        if done is None:
            with torch.cuda.stream(stream):
                self.wait_kernel(wait)
        elif (wanted := wait.wanted(done)) is not None:
            self.calls.wait(wait.word, wanted, stream.cuda_stream)

    def _bind(self, row: HostCall) -> Sequence[Enqueue]:
        match row.kind:
            case LaunchKind.FLAG:
                source = self.memory.control_address(NEXT_WORD)
                return [
                    partial(self.calls.copy, self.memory.slot_address(row.slot), source, FLAG_BYTES)
                ]
            case LaunchKind.COPY:
                return [*self._copies(row.task)]
            case _:
                return []

    def _copies(self, task: int) -> list[Enqueue]:
        source, target = (self.memory.access_address(a) for a in self.plan.accesses_of(task))
        return [
            partial(self.calls.copy, target + s.target, source + s.source, s.width)
            if s.height == 1
            else partial(
                self.calls.copy_lines,
                target + s.target,
                s.target_pitch,
                source + s.source,
                s.source_pitch,
                s.width,
                s.height,
            )
            for s in strips(self.plan, task)
        ]
