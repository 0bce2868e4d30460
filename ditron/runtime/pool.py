"""A pool of rank processes that runs one plan, launch after launch, and always ends cleanly."""

from __future__ import annotations

import json
import os
import select
import signal
import time
import weakref
from collections.abc import Sequence
from typing import NoReturn

from ditron.errors import HangError, LaunchError
from ditron.plan.tables import Plan
from ditron.runtime import wire
from ditron.runtime.heap import Heap, open_shared
from ditron.runtime.launch import zygote
from ditron.runtime.rank import write_spec
from ditron.runtime.watchdog import Inspector, shared_progress

_START_BOUND_S = 120.0  # until all ranks have made their steps, on a busy machine


class Pool:
    """Rank processes that share a heap. Any failure stops all of them; make a new pool then."""

    def __init__(
        self, plan: Plan, source: str, heap: Heap, heap_fd: int, wait_bound_s: float
    ) -> None:
        self._plan, self._heap = plan, heap
        spec = write_spec(plan, source)
        spec_fd = open_shared(len(spec))
        try:
            os.pwrite(spec_fd, spec, 0)
            self.processes = zygote().fork(plan.ranks, heap_fd, spec_fd)
        finally:
            os.close(spec_fd)
        self.stop = weakref.finalize(self, self.processes.stop)
        self._poll = select.poll()
        self._rank_of: dict[int, int] = {}
        for rank, control in enumerate(self.processes.controls):
            self._poll.register(control, select.POLLIN)
            self._rank_of[control.fileno()] = rank
        self._bound_s = _START_BOUND_S
        self._collect(everyone=True)
        self._bound_s = wait_bound_s

    def run(self, command: bytes, argument: int = 0) -> Sequence[bytes]:
        """Have all ranks obey a command; returns their answers.

        A LAUNCH is answered once, by the rank that ends last.

        Raises:
            LaunchError: a rank failed or died.
            HangError: no rank has finished a task for the bound.
        """
        for control in self.processes.controls:
            wire.send_command(control, command, argument)
        return self._collect(everyone=command != wire.LAUNCH)

    def _collect(self, *, everyone: bool) -> Sequence[bytes]:
        answers: dict[int, bytes] = {}
        wanted = len(self.processes.controls) if everyone else 1
        watch = _Watch(self._heap, self._bound_s)
        try:
            while len(answers) < wanted:
                ready = self._poll.poll(watch.period_ms)
                for fd, _ in ready:
                    rank = self._rank_of[fd]
                    answers[rank] = self._answer(rank)
                if not ready and watch.stands_still():
                    self._hang()
        except BaseException:
            self.stop()
            raise
        return [answers[rank] for rank in sorted(answers)]

    def _answer(self, rank: int) -> bytes:
        frame = wire.receive_frame(self.processes.controls[rank])
        if frame is None:
            self._died(rank)
        kind, payload = frame
        if kind == wire.FAILED:
            self._failed(rank, json.loads(payload))
        return payload

    def _inspect(self) -> Inspector:
        return Inspector(self._plan, self._heap, shared_progress(self._plan, self._heap))

    def _at(self, rank: int) -> tuple[str, str | None]:
        """The task that a rank is inside, as `" in @matmul[...] ..."`, and its op's location."""
        task = self._inspect().running(rank)
        if task is None:
            return "", None
        op = self._plan.ops[int(self._plan.tasks.op[task])]
        return f" in {self._plan.describe_task(task)}", op.location or None

    def _failed(self, rank: int, report: dict[str, str]) -> NoReturn:
        at, where = self._at(rank)
        msg = f"rank {rank} failed{at}: {report['last']}\n{report['traceback']}"
        raise LaunchError(msg, where)

    def _died(self, rank: int) -> NoReturn:
        at, where = self._at(rank)
        status = self.processes.exit_status(rank)
        msg = f"rank {rank} (process {self.processes.pids[rank]}) died{at}: {_cause(status)}"
        raise LaunchError(msg, where)

    def _hang(self) -> NoReturn:
        text, where = self._inspect().report()
        msg = f"{self._plan.name}: no task has finished for {self._bound_s:g} s\n{text}"
        raise HangError(msg, where)


class _Watch:
    """Notices that no rank makes progress."""

    def __init__(self, heap: Heap, bound_s: float) -> None:
        self.period_ms = max(1, int(min(250.0, bound_s * 1000 / 4)))
        self._heap, self._bound_s = heap, bound_s
        self._last = b""
        self._since = time.monotonic()

    def stands_still(self) -> bool:
        """Whether all ranks' control words have been as they are for the bound."""
        heap = self._heap
        words = b"".join(heap.control(rank).tobytes() for rank in range(heap.plan.ranks))
        if words != self._last:
            self._last, self._since = words, time.monotonic()
        return time.monotonic() - self._since > self._bound_s


def _cause(status: int | None) -> str:
    if status is None:
        return "its exit status is unknown"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"killed by signal {number} ({signal.Signals(number).name})"
    return f"exited with status {os.waitstatus_to_exitcode(status)}"
