"""What a rank's process on a GPU does.

Started as `python -m ditron.runtime.cuda_rank FD` with a socket to the parent, over which both send
pickled tuples. Parent: ("start", Spec), then ("peers", offers), then commands. The first word of
each answer is "ok", "hang" or "failed".
"""

from __future__ import annotations

import os
import sys
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from ditron.errors import DitronError, LaunchError
from ditron.plan.tables import Plan, Role
from ditron.runtime.atomics import atomics
from ditron.runtime.gpu_program import TritonProgram
from ditron.runtime.gpu_rank import GpuRank, keep_busy
from ditron.runtime.heap import BARRIER_WORD, Heap

BARRIER_SPINS = 1000


@dataclass(frozen=True)
class Spec:
    """What a rank needs to know.

    Attributes:
        source: the file with the kernels.
        heap_fd: shared memory through which inputs and outputs pass, laid out as on the CPU.
        devices: how many GPUs the ranks are spread over.
        wait_bound_s: how long a launch may take.
        heap: what makes the rank's memory, as `Options.heap`.
        epoch: launches that count as done before the first.
    """

    plan: Plan
    program: TritonProgram
    source: Path
    rank: int
    heap_fd: int
    devices: int
    wait_bound_s: float
    heap: str = "ipc"
    epoch: int = 0


class RankProcess:
    """A rank that does what its parent says; inputs and outputs pass through shared memory."""

    def __init__(self, spec: Spec, connection: Connection) -> None:
        self.spec, self.connection, self.plan = spec, connection, spec.plan
        torch.cuda.set_device(spec.rank % spec.devices)
        self.gpu = GpuRank(spec.plan, spec.program, spec.rank, spec.wait_bound_s, spec.heap)
        self.host = Heap.shared(spec.plan, spec.heap_fd)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.barriers = 0

    def connect(self, offers: list[Any]) -> dict[str, Any]:
        """Map the peers' memory and load every kernel; returns what they take."""
        bases = self.gpu.heap.join(offers)
        return self.gpu.connect(self.spec.source, bases, epoch=self.spec.epoch)

    def copy_in(self, buffers: list[str]) -> None:
        """Bring inputs from the host."""
        for name in buffers:
            local = self.host.local(self.host.buffer_row(name), self.spec.rank)
            self.gpu.memory.buffer(name).copy_(local)
        torch.cuda.synchronize()

    def copy_out(self, buffers: list[str]) -> None:
        """Bring outputs and states to the host."""
        for name in buffers:
            local = self.host.local(self.host.buffer_row(name), self.spec.rank)
            local.copy_(self.gpu.memory.buffer(name))

    def launch(self) -> None:
        """Run one launch."""
        self.gpu.enqueue()
        self.gpu.finish(self.connection.poll)

    def measure(self, repeats: int) -> list[float]:
        """Milliseconds of each of some launches on the device, from a barrier on.

        A captured graph is launched, unless streams wait: those would take an SM in a graph. Then
        the host enqueues behind a kernel that keeps the device busy meanwhile.
        """
        self.launch()  # everything has run once before it is timed
        times: list[float] = []
        for _ in range(repeats):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            go = self.gpu.enqueue if self.gpu.waits_on_streams else self._captured().replay
            self.meet()
            with torch.cuda.stream(self.gpu.main):
                if self.gpu.waits_on_streams:
                    keep_busy()
                begin.record()
                go()
                end.record()
            self.gpu.finish(self.connection.poll)
            end.synchronize()
            times.append(begin.elapsed_time(end))
        return times

    def _captured(self) -> torch.cuda.CUDAGraph:
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=self.gpu.main):
                self.gpu.enqueue()
        return self.graph

    def meet(self) -> None:
        """Wait for all ranks."""
        self.barriers += 1
        word = self.host.word_address(self.host.layout.shared_word + BARRIER_WORD)
        atomics().fetch_add(word, 1)
        while not atomics().wait_ge(word, self.barriers * self.plan.ranks, BARRIER_SPINS):
            os.sched_yield()

    def close(self) -> None:
        """Let go of the memory, the peers' first."""
        torch.cuda.synchronize()
        self.gpu.heap.close()


def _obey(rank: RankProcess, command: tuple[Any, ...]) -> tuple[Any, ...]:
    answer: Any = None
    match command:
        case ("peers", offers):
            answer = rank.connect(offers)
        case ("copy in", buffers):
            rank.copy_in(buffers)
        case ("launch",):
            rank.launch()
            rank.copy_out([b.name for b in rank.plan.buffers if b.role is Role.OUTPUT])
        case ("copy out", buffers):
            rank.copy_out(buffers)
        case ("measure", repeats):
            answer = rank.measure(repeats)
        case ("trace",):
            answer = rank.gpu.traced(rank.meet)
        case ("reset", epoch):
            rank.gpu.reset(epoch)
        case ("stop",):  # of a launch that has ended already
            pass
        case _:
            raise LaunchError(f"a rank does not know {command[0]!r}")
    return ("ok", answer)


def serve(connection: Connection) -> None:
    """Do what the parent says until it hangs up."""
    try:
        _, spec = connection.recv()
        rank = RankProcess(spec, connection)
        connection.send(("ok", rank.gpu.heap.offer()))
        while (command := _next(connection)) is not None:
            try:
                answer = _obey(rank, command)
            except TimeoutError:
                answer = ("hang", rank.gpu.record(), rank.gpu.slots())
            if not _tell(connection, answer):
                break
        rank.close()
    except DitronError as error:
        _tell(connection, ("failed", str(error)))
        sys.exit(1)
    except BaseException:
        _tell(connection, ("failed", traceback.format_exc()))
        raise


def _next(connection: Connection) -> tuple[Any, ...] | None:
    """The next command; None when the parent has hung up."""
    try:
        return connection.recv()
    except (EOFError, ConnectionResetError):
        return None


def _tell(connection: Connection, answer: tuple[Any, ...]) -> bool:
    """Answer the parent; whether it is still there."""
    try:
        connection.send(answer)
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
