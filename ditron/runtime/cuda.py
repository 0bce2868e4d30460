"""Runs a plan on GPUs: a process a rank, memory mapped between them, inputs and outputs by host.

Ranks are dealt to the GPUs in turn. Several ranks on one GPU want CUDA MPS (or their kernels run in
time slices, correct and slow); each gets its share of the SMs.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
import weakref
from collections.abc import Mapping
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ditron.errors import HangError, InputError, LaunchError
from ditron.plan.tables import Plan, Role
from ditron.runtime.cuda_driver import sm_count
from ditron.runtime.cuda_local import LocalRank
from ditron.runtime.cuda_rank import Spec
from ditron.runtime.gpu_processes import end_ranks, start_rank
from ditron.runtime.gpu_program import TritonProgram
from ditron.runtime.gpu_report import Hung, hang_report
from ditron.runtime.gpu_source import write_source
from ditron.runtime.gpu_trace import write_gpu_trace
from ditron.runtime.heap import Heap, Layout, open_shared

START_BOUND_S = 600.0  # compiling every kernel, several ranks on few cores
GRACE_S = 60.0  # beyond the bound of waits, until a rank must have answered


class CudaExecutor:
    """One plan, ready to launch on GPUs. Memory and processes are made when first needed.

    Args:
        plan: what to run.
        program: its code.
        wait_bound_s: how long a launch may take before it counts as a hang.
        heap: what makes the ranks' memory, as `Options.heap`.
    """

    def __init__(
        self, plan: Plan, program: TritonProgram, wait_bound_s: float = 30.0, heap: str = "ipc"
    ) -> None:
        self._plan, self._program, self._bound_s = plan, program, wait_bound_s
        self._heap_name = heap
        self._pool: _Pool | None = None
        self._heap: Heap | None = None
        self._fd = -1
        self._dirty: set[str] = set()
        self._unusable = ""
        self._local: LocalRank | None = None

    def write(self, buffer: str, rank: int, tensor: torch.Tensor) -> None:
        """Put a rank's shard of an input or weight in place.

        Raises:
            InputError: its shape or dtype is not that of the buffer on the rank.
        """
        heap = self._use()
        view = heap.local(heap.buffer_row(buffer), rank)
        if (tensor.shape, tensor.dtype) != (view.shape, view.dtype):
            raise InputError(
                f"buffer {buffer!r} on rank {rank} takes {tuple(view.shape)} {view.dtype},"
                f" got {tuple(tensor.shape)} {tensor.dtype}"
            )
        view.copy_(tensor)
        self._dirty.add(buffer)

    def read(self, buffer: str, rank: int) -> torch.Tensor:
        """A copy of what a rank held of an output or a state after the last launch."""
        heap = self._use()
        row = heap.buffer_row(buffer)
        state = self._plan.buffers[row].role is Role.STATE
        if state and self._pool is not None and buffer not in self._dirty:
            self._pool.tell(("copy out", [buffer]), GRACE_S)
        return heap.local(row, rank).clone()

    def launch(self) -> None:
        """Run one launch on all ranks.

        Raises:
            LaunchError: a rank failed or died; the executor needs `reset` then.
            HangError: a wait ran out of its bound; likewise.
        """
        self._do(("launch",))

    def run_local(
        self,
        inputs: Mapping[str, torch.Tensor],
        out: Mapping[str, torch.Tensor] | None,
        stream: torch.cuda.Stream | None,
        group: dist.ProcessGroup | None,
    ) -> dict[str, torch.Tensor]:
        """Enqueue a launch of this process's rank; the first call connects the group.

        Raises:
            LaunchError: the group does not fit, or is not the one of the first call.
        """
        if self._local is None:
            self._local = LocalRank(
                self._plan, self._program, self._bound_s, group, self._heap_name
            )
        if self._local.group is not group:
            raise LaunchError(f"{self._plan.name} runs in the group of its first call only")
        return self._local.run(inputs, out, stream)

    def measure(self, repeats: int) -> list[float]:
        """Seconds of each of some launches by device time, slowest rank, from a barrier on."""
        answers = self._do(("measure", repeats))
        return [max(each) * 1e-3 for each in zip(*answers, strict=True)]

    def trace(self, path: str | Path) -> None:
        """Run one launch and write what ran when: transfers, library calls and kernels.

        With `Options(stamps=True)` also every task of a kernel.

        Where this process runs a rank of a group, all of its processes call this together, and the
        first one writes.

        Raises:
            LaunchError: as for `launch`.
        """
        if self._local is not None:
            ran = self._local.traced()
            if self._local.rank > 0:
                return
        else:
            ran = self._do(("trace",))
        write_gpu_trace(path, self._plan, ran)

    def kernels(self) -> dict[str, dict[str, int]]:
        """What each kernel takes: programs, registers, spills, bytes of shared memory."""
        self._use()
        return self._ready().kernels

    def start_at(self, epoch: int) -> None:
        """Let that many launches count as done: to try what happens when counters wrap."""
        self._use()
        self._ready().tell(("reset", epoch), self._bound_s + GRACE_S)
        self._dirty = {b.name for b in self._plan.buffers if b.role in ("input", "weight")}

    def reset(self) -> None:
        """Make the executor usable after a launch that did not finish."""
        self._stop()
        self._unusable = ""
        self._dirty = {b.name for b in self._plan.buffers if b.role in ("input", "weight")}

    def close(self) -> None:
        """End the rank processes and let go of the memory."""
        self._stop()
        if self._local is not None:
            self._local.close()
        self._heap = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._unusable = "it is closed"

    def _use(self) -> Heap:
        if self._unusable:
            raise LaunchError(f"this executable cannot be used: {self._unusable}")
        if self._heap is None:
            self._fd = open_shared(Layout.of(self._plan).total_bytes)
            self._heap = Heap.shared(self._plan, self._fd)
        return self._heap

    def _ready(self) -> _Pool:
        heap = self._use()
        if self._pool is None:
            heap.clear_words()
            self._pool = _Pool(self._plan, self._program, self._fd, self._bound_s, self._heap_name)
        return self._pool

    def _do(self, command: tuple[Any, ...]) -> list[Any]:
        self._use()
        try:
            pool = self._ready()
            if self._dirty:
                pool.tell(("copy in", sorted(self._dirty)), GRACE_S)
                self._dirty = set()
            repeats = command[1] if len(command) > 1 else 1
            return pool.tell(command, self._bound_s * repeats + GRACE_S)
        except BaseException as error:
            first = str(error).split("\n", 1)[0] or type(error).__name__
            self._unusable = f"a launch did not finish ({first}); call reset() first"
            self._stop()
            raise

    def _stop(self) -> None:
        if self._pool is not None:
            self._pool.stop()
            self._pool = None


class _Pool:
    """Rank processes on GPUs; any failure stops all of them."""

    def __init__(
        self, plan: Plan, program: TritonProgram, heap_fd: int, bound_s: float, heap: str
    ) -> None:
        self._plan, self._program = plan, program
        devices = _devices()
        folder = tempfile.TemporaryDirectory(prefix="ditron-")
        source = write_source(program.source, Path(folder.name))
        self._processes: list[subprocess.Popen[bytes]] = []
        self._connections: list[Connection] = []
        self.stop = weakref.finalize(self, end_ranks, self._processes, self._connections, folder)
        share = -(-plan.ranks // devices)
        for rank in range(plan.ranks):
            ours, theirs = socket.socketpair()
            self._processes.append(start_rank(theirs, heap_fd, share))
            self._connections.append(Connection(ours.detach()))
            spec = Spec(plan, program, source, rank, heap_fd, devices, bound_s, heap)
            self._connections[rank].send(("start", spec))
        offers = self._collect(START_BOUND_S)
        self._check_fit(share)
        self.kernels: dict[str, dict[str, int]] = self.tell(("peers", offers), START_BOUND_S)[0]

    def _check_fit(self, share: int) -> None:
        """All programs that may wait for each other must be resident together.

        Of a launch that waits nowhere one at a time is enough. A persistent kernel is checked by
        what it takes, when it has been compiled.
        """
        if self._program.persistent:
            return
        places = [(x.copies, x.programs if x.waits else 1) for x in self._program.launches]
        most = [max([n for copies, n in places if copies == side], default=0) for side in (0, 1)]
        sms = sm_count(0)
        if share * sum(most) > sms and share > 1:
            raise LaunchError(
                f"{share} ranks share a GPU of {sms} SMs, and each wants {most[0]} programs that"
                f" compute and {most[1]} that copy: compile with Options(workers="
                f"{max(1, sms // share - most[1])}), so that all fit"
            )

    def tell(self, command: tuple[Any, ...], bound_s: float) -> list[Any]:
        """Have all ranks obey a command; returns their answers.

        Raises:
            LaunchError: a rank failed, died or did not answer.
            HangError: a wait ran out of its bound.
        """
        for connection in self._connections:
            connection.send(command)
        return self._collect(bound_s)

    def _collect(self, bound_s: float) -> list[Any]:
        answers: dict[int, Any] = {}
        hung: dict[int, Hung] = {}
        until = time.monotonic() + bound_s
        try:
            while len(answers) + len(hung) < len(self._connections):
                left = [c for r, c in enumerate(self._connections) if r not in {**answers, **hung}]
                ready = wait(left, max(0.0, until - time.monotonic()))
                if not ready:
                    raise LaunchError(f"{self._plan.name}: ranks do not answer for {bound_s:g} s")
                for connection in ready:
                    assert isinstance(connection, Connection)
                    self._take(connection, answers, hung)
        except BaseException:
            self.stop()
            raise
        if hung:
            text, where = hang_report(self._plan, self._program, hung)
            raise HangError(text, where)
        return [answers[rank] for rank in sorted(answers)]

    def _take(self, connection: Connection, answers: dict[int, Any], hung: dict[int, Hung]) -> None:
        rank = self._connections.index(connection)
        try:
            kind, *rest = connection.recv()
        except (EOFError, ConnectionResetError):
            status = self._processes[rank].wait(5)
            raise LaunchError(f"rank {rank} died with exit status {status}") from None
        if kind == "failed":
            raise LaunchError(f"rank {rank} failed: {rest[0]}")
        if kind == "hang":
            if not hung:
                for other, peer in enumerate(self._connections):
                    if other != rank and other not in answers:
                        peer.send(("stop",))
            hung[rank] = (rest[0], rest[1])
        else:
            answers[rank] = rest[0]


def _devices() -> int:
    count = torch.cuda.device_count()
    if not count:
        raise LaunchError("torch finds no GPU here; compile for target cpu, or see ditron doctor")
    return count
