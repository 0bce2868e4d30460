"""What a rank's process on a GPU does: kernels of its launches, in program order on two streams.

Started as `python -m ditron.runtime.cuda_rank FD` with a socket to the parent, over which both send
pickled tuples. Parent: ("start", Spec), then ("peers", handles), then commands. The first word of
each answer is "ok", "hang" or "failed".
"""

from __future__ import annotations

import importlib
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from ditron.errors import LaunchError
from ditron.plan.tables import Plan, Role
from ditron.runtime.atomics import atomics
from ditron.runtime.gpu_layout import GpuLayout
from ditron.runtime.gpu_memory import RankMemory
from ditron.runtime.gpu_program import Launch, TritonProgram
from ditron.runtime.gpu_source import load_source
from ditron.runtime.heap import BARRIER_WORD, Heap
from ditron.runtime.ipc import DeviceMemory, close_peer, open_peer

# Of a layer above this one, and with Triton in it: by name, when a GPU needs them.
LIBRARY = "ditron.backends.triton.library.common"
COMPILER = "ditron.backends.triton.compile"
# Between two looks at a launch that runs.
LOOK_S = 20e-6
DRAIN_S = 20.0
BARRIER_SPINS = 1000
# Polls a second of a wait on a device, at most: a bound that the host's clock always beats.
POLLS_S = 5_000_000


@dataclass(frozen=True)
class Spec:
    """What a rank needs to know.

    Attributes:
        source: the file with the kernels.
        heap_fd: shared memory through which inputs and outputs pass, laid out as on the CPU.
        devices: how many GPUs the ranks are spread over.
        wait_bound_s: how long a launch may take.
        epoch: launches that count as done before the first.
    """

    plan: Plan
    program: TritonProgram
    source: Path
    rank: int
    heap_fd: int
    devices: int
    wait_bound_s: float
    epoch: int = 0


class GpuRank:
    """One rank's memory, streams and kernels."""

    def __init__(self, spec: Spec, connection: Connection) -> None:
        self.spec, self.connection = spec, connection
        self.plan = spec.plan
        torch.cuda.set_device(spec.rank % spec.devices)
        self.device = DeviceMemory(GpuLayout.of(spec.plan).total)
        self.host = Heap.shared(spec.plan, spec.heap_fd)
        self.main, self.side = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
        self.rescue = torch.cuda.Stream(priority=-1)
        # Copied to the stop word by a copy engine: a kernel might find no SM that is free.
        self.one = torch.ones(1, dtype=torch.int32, pin_memory=torch.cuda.is_available())
        self.peers: list[int] = []
        self.graph: torch.cuda.CUDAGraph | None = None
        self.barriers = 0

    def connect(self, handles: list[bytes]) -> dict[str, Any]:
        """Map the peers' memory and load every kernel; returns what they take."""
        bases = [
            self.device.address if rank == self.spec.rank else open_peer(handle)
            for rank, handle in enumerate(handles)
        ]
        self.peers = [b for rank, b in enumerate(bases) if rank != self.spec.rank]
        spec = self.spec
        self.memory = RankMemory(self.plan, spec.program, spec.rank, self.device.tensor, bases)
        self.reset(spec.epoch)
        self.calls = [self._call(launch) for launch in spec.program.launches]
        self.advance = importlib.import_module(LIBRARY).advance
        return {launch.kernel: self._load(launch) for launch in spec.program.launches}

    def reset(self, epoch: int = 0) -> None:
        """Back to before the first launch."""
        self.memory.poison()
        self.memory.start(epoch, min(int(self.spec.wait_bound_s * POLLS_S), (1 << 31) - 1))
        torch.cuda.synchronize()

    def _call(self, launch: Launch) -> Callable[[], object]:
        kernel = getattr(load_source(self.spec.source), launch.kernel)[(launch.programs,)]
        arguments = [self.memory.argument(a) for a in launch.arguments]
        options = _options(launch)
        return lambda: kernel(*arguments, **options)

    def _load(self, launch: Launch) -> dict[str, int]:
        """Compile a kernel and load it, so that no launch has to: that may wait for the device."""
        kernel = getattr(load_source(self.spec.source), launch.kernel)
        arguments = [self.memory.argument(a) for a in launch.arguments]
        made = kernel.warmup(*arguments, grid=(launch.programs,), **_options(launch))
        made._init_handles()
        importlib.import_module(COMPILER).check_loaded(launch, made, self.spec.program)
        self.advance.warmup(self.memory.control(), grid=(1,))._init_handles()
        return {
            "programs": launch.programs,
            "registers": made.n_regs,
            "spills": made.n_spills,
            "shared_bytes": made.metadata.shared,
        }

    def copy_in(self, buffers: list[str]) -> None:
        """Bring inputs from the host."""
        for name in buffers:
            local = self.host.local(self.host.buffer_row(name), self.spec.rank)
            self.memory.buffer(name).copy_(local)
        torch.cuda.synchronize()

    def copy_out(self) -> None:
        """Bring outputs to the host."""
        for row, buffer in enumerate(self.plan.buffers):
            if buffer.role is Role.OUTPUT:
                self.host.local(row, self.spec.rank).copy_(self.memory.buffer(buffer.name))

    def enqueue(self) -> None:
        """Put a launch on the streams."""
        self.side.wait_stream(self.main)
        for launch, call in zip(self.spec.program.launches, self.calls, strict=True):
            with torch.cuda.stream(self.side if launch.copies else self.main):
                call()
        self.main.wait_stream(self.side)
        with torch.cuda.stream(self.main):
            self.advance[(1,)](self.memory.control())

    def launch(self) -> None:
        """Run one launch."""
        self.enqueue()
        self._finish()

    def _finish(self) -> None:
        """Wait for the device, with a bound; on its end, or if a peer gave up, stop the launch."""
        done = torch.cuda.Event()
        done.record(self.main)
        start = time.monotonic()
        while not done.query():
            time.sleep(LOOK_S)
            late = time.monotonic() - start > self.spec.wait_bound_s
            if late or self.connection.poll():
                self._stop(done)
                break
        if self.memory.stop_word().item():
            raise TimeoutError

    def _stop(self, done: torch.cuda.Event) -> None:
        with torch.cuda.stream(self.rescue):
            self.memory.stop_word().copy_(self.one, non_blocking=True)
        until = time.monotonic() + DRAIN_S
        while not done.query():
            if time.monotonic() > until:
                raise LaunchError(f"rank {self.spec.rank}: kernels do not end after a stop")
            time.sleep(LOOK_S)

    def measure(self, repeats: int) -> list[float]:
        """Milliseconds of each of some launches, by a captured graph, from a barrier on."""
        if self.graph is None:
            self.launch()  # everything has run once before it is captured
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=self.main):
                self.enqueue()
        times: list[float] = []
        for _ in range(repeats):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self.meet()
            with torch.cuda.stream(self.main):
                begin.record()
                self.graph.replay()
                end.record()
            self._finish()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        return times

    def meet(self) -> None:
        """Wait for all ranks."""
        self.barriers += 1
        word = self.host.word_address(self.host.layout.shared_word + BARRIER_WORD)
        atomics().fetch_add(word, 1)
        while not atomics().wait_ge(word, self.barriers * self.plan.ranks, BARRIER_SPINS):
            os.sched_yield()

    def slots(self) -> list[tuple[str, int, int]]:
        """(array, index, word) of every slot of this rank."""
        slots = self.plan.slots
        rows = [int(r) for r in (slots.rank == self.spec.rank).nonzero()[0]]
        found = [(self.plan.signals[int(slots.signals[r])], int(slots.index[r])) for r in rows]
        return [(name, index, self.memory.slot(name, index)) for name, index in found]

    def close(self) -> None:
        """Let go of the peers' memory, then of one's own."""
        torch.cuda.synchronize()
        for address in self.peers:
            close_peer(address)


def _options(launch: Launch) -> dict[str, Any]:
    return {"num_warps": launch.warps, "num_stages": launch.stages, "enable_fp_fusion": True}


def _obey(rank: GpuRank, command: tuple[Any, ...]) -> tuple[Any, ...]:
    match command:
        case ("peers", handles):
            return ("ok", rank.connect(handles))
        case ("copy in", buffers):
            rank.copy_in(buffers)
            return ("ok", None)
        case ("launch",):
            rank.launch()
            rank.copy_out()
            return ("ok", None)
        case ("measure", repeats):
            return ("ok", rank.measure(repeats))
        case ("reset", epoch):
            rank.reset(epoch)
            return ("ok", None)
        case ("stop",):  # of a launch that has ended already
            return ("ok", None)
        case _:
            raise LaunchError(f"a rank does not know {command[0]!r}")


def serve(connection: Connection) -> None:
    """Do what the parent says until it hangs up."""
    try:
        _, spec = connection.recv()
        rank = GpuRank(spec, connection)
        connection.send(("ok", rank.device.handle))
        while (command := _next(connection)) is not None:
            try:
                answer = _obey(rank, command)
            except TimeoutError:
                answer = ("hang", rank.memory.record(), rank.slots())
            if not _tell(connection, answer):
                break
        rank.close()
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
