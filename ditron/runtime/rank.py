"""What a rank's process does: it takes turns between its lanes, a launch for each command.

Runs in a fork of the zygote. Everything that a launch needs (torch views, closures, tables of
waits and notifies) is made once before the first; a task then costs one call into compiled code
(`atomics.advance`: notifies of the task before, polls, the next task) and the body itself.
"""

from __future__ import annotations

import json
import mmap
import os
import pickle
import socket
import time
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

import numpy as np

from ditron.plan.tables import Plan
from ditron.runtime import wire
from ditron.runtime.atomics import FINISHED, atomics
from ditron.runtime.heap import (
    BARRIER_WORD,
    EPOCH_WORD,
    FINISHED_WORD,
    HEADS_WORD,
    RUNNING_WORD,
    Heap,
)
from ditron.runtime.kernels import Kernel, compile_kernels
from ditron.runtime.lanes import Binder, Body
from ditron.runtime.steps import Steps
from ditron.runtime.words import period

# A wait polls this often in compiled code, then gives its core away (ranks > cores is normal).
# After YIELDS times of that it sleeps between looks: a rank that has long to wait costs little.
SPINS = 50
YIELDS = 200
SLEEP_S = 50e-6


class Rank:
    """One rank's lanes and how far it has counted."""

    def __init__(
        self, plan: Plan, heap: Heap, kernels: Mapping[str, Kernel], rank: int, zygote: int
    ) -> None:
        doubled = any(b.copies > 1 for b in plan.buffers)
        binders = [Binder(plan, heap, kernels, p) for p in range(period(plan) if doubled else 1)]
        self.phases = [
            Steps(plan, heap, rank, binders[p % len(binders)]) for p in range(period(plan))
        ]
        self.atomics = atomics()
        self.ranks = plan.ranks
        self._zygote = zygote
        self.epoch = 0
        self.launches = 0
        self.barriers = 0
        self._control = heap.control(rank)
        self._finished = heap.word_address(heap.layout.shared_word + FINISHED_WORD)
        self._barrier = heap.word_address(heap.layout.shared_word + BARRIER_WORD)

    def begin(self) -> Steps:
        """Enter the next launch."""
        self.epoch += 1
        steps = self.phases[(self.epoch - 1) % len(self.phases)]
        steps.enter(self.epoch)
        self._control[HEADS_WORD:] = 0
        self._control[RUNNING_WORD] = -1
        self._control[EPOCH_WORD] = self.epoch & 0x7FFFFFFF  # for reports
        return steps

    def launch(self) -> None:
        """Run one launch of this rank."""
        steps = self.begin()
        advance, tables, lanes = self.atomics.advance, steps.address, len(steps.bodies)
        following: list[Callable[[], Body | None]] = [iter(b).__next__ for b in steps.bodies]
        lane = advance(tables, lanes, -1, SPINS)
        while lane != FINISHED:
            if lane < 0:
                lane = self._idle(tables, lanes)
                continue
            body = following[lane]()
            if body is not None:
                body()
            lane = advance(tables, lanes, lane, SPINS)

    def traced_launch(self) -> np.ndarray:
        """Run one launch; returns (task, begin ns, end ns) of each task, by `time.monotonic_ns`."""
        steps = self.begin()
        advance, tables, lanes = self.atomics.advance, steps.address, len(steps.bodies)
        following = [zip(t, b, strict=True) for t, b in zip(steps.tasks, steps.bodies, strict=True)]
        events: list[tuple[int, int, int]] = []
        lane = advance(tables, lanes, -1, SPINS)
        while lane != FINISHED:
            if lane < 0:
                lane = self._idle(tables, lanes)
                continue
            task, body = next(following[lane])
            begin = time.monotonic_ns()
            if body is not None:
                body()
            events.append((task, begin, time.monotonic_ns()))
            lane = advance(tables, lanes, lane, SPINS)
        return np.array(events, np.int64).reshape(-1, 3)

    def _idle(self, tables: int, lanes: int) -> int:
        """No lane can run: let others have the core until one can, or all have finished."""
        advance, looks = self.atomics.advance, 0
        while (lane := advance(tables, lanes, -1, SPINS)) == -1:
            looks = self._rest(looks)
        return lane

    def finish(self) -> bool:
        """Count this rank as finished; whether it is the last, and so sees all others' results."""
        self.launches += 1
        before = self.atomics.fetch_add(self._finished, 1)
        return (before + 1 - self.launches * self.ranks) & 0xFFFFFFFF == 0

    def meet(self) -> None:
        """Wait for all ranks."""
        self.barriers += 1
        self.atomics.fetch_add(self._barrier, 1)
        want = np.int64(self.barriers * self.ranks).astype(np.int32).item()
        looks = 0
        while not self.atomics.wait_ge(self._barrier, want, SPINS):
            looks = self._rest(looks)

    def _rest(self, looks: int) -> int:
        """Give the core away, for longer after many looks in vain; returns one look more."""
        if looks < YIELDS:
            os.sched_yield()
        else:
            time.sleep(SLEEP_S)
            if os.getppid() != self._zygote:
                os._exit(1)  # nobody would ever end the wait
        return looks + 1


def serve(rank: int, control: socket.socket, heap_fd: int, spec_fd: int, zygote: int) -> None:
    """Do what the parent commands until it hangs up."""
    with _reporting(control):
        plan, source = read_spec(spec_fd)
        heap = Heap.shared(plan, heap_fd)
        for fd in (heap_fd, spec_fd):
            os.close(fd)
        worker = Rank(plan, heap, compile_kernels(source), rank, zygote)
        wire.send_frame(control, wire.READY)
        while (command := wire.receive_command(control)) is not None:
            _obey(worker, control, *command)


def _obey(worker: Rank, control: socket.socket, command: bytes, argument: int) -> None:
    if command == wire.LAUNCH:
        worker.launch()
        if worker.finish():
            wire.send_frame(control, wire.DONE)
    elif command == wire.TRACE:
        worker.meet()
        wire.send_frame(control, wire.DONE, worker.traced_launch().tobytes())
    elif command == wire.MEASURE:
        times = np.zeros((argument, 2), np.int64)
        for i in range(argument):
            worker.meet()
            times[i, 0] = time.monotonic_ns()
            worker.launch()
            times[i, 1] = time.monotonic_ns()
        wire.send_frame(control, wire.DONE, times.tobytes())


@contextmanager
def _reporting(control: socket.socket) -> Generator[None]:
    """Whatever stops this rank is told to the parent, which ends the others."""
    try:
        yield
    except BaseException as error:
        last = traceback.format_exception_only(error)[-1].strip()
        report = {"last": last, "traceback": traceback.format_exc()}
        wire.send_frame(control, wire.FAILED, json.dumps(report).encode())
        raise


def write_spec(plan: Plan, source: str) -> bytes:
    """What a rank needs to know."""
    return pickle.dumps((plan, source), protocol=pickle.HIGHEST_PROTOCOL)


def read_spec(fd: int) -> tuple[Plan, str]:
    """What `write_spec` wrote, from shared memory."""
    with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as memory:
        return pickle.loads(memory)
