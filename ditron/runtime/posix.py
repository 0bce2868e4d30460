"""Runs a plan on the CPU: a process a rank, buffers and signals in shared memory."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from ditron.errors import InputError, LaunchError
from ditron.plan.tables import Longs, Plan
from ditron.runtime import wire
from ditron.runtime.heap import Heap, Layout, open_shared
from ditron.runtime.pool import Pool
from ditron.runtime.trace import write_trace


class CpuExecutor:
    """One plan, ready to launch. Memory and processes are made when first needed.

    Args:
        plan: what to run.
        kernels_source: the Python source of its kernels.
        wait_bound_s: how long the ranks may go without finishing a task before it is a hang.
    """

    def __init__(self, plan: Plan, kernels_source: str, *, wait_bound_s: float = 30.0) -> None:
        self._plan = plan
        self._source = kernels_source
        self._wait_bound_s = wait_bound_s
        self._memory: _Memory | None = None
        self.pool: Pool | None = None
        self._launches = 0
        self._unusable = ""

    def write(self, buffer: str, rank: int, tensor: torch.Tensor) -> None:
        """Put a rank's shard of an input or weight in place, in all copies of the buffer.

        Raises:
            InputError: its shape or dtype is not that of the buffer on the rank.
        """
        heap = self._heap()
        row = heap.buffer_row(buffer)
        view = heap.local(row, rank)
        if (tensor.shape, tensor.dtype) != (view.shape, view.dtype):
            msg = (
                f"buffer {buffer!r} on rank {rank} takes {tuple(view.shape)} {view.dtype},"
                f" got {tuple(tensor.shape)} {tensor.dtype}"
            )
            raise InputError(msg)
        for copy in range(self._plan.buffers[row].copies):
            heap.local(row, rank, copy).copy_(tensor)

    def read(self, buffer: str, rank: int) -> torch.Tensor:
        """A copy of what a rank holds of a buffer after the last launch."""
        heap = self._heap()
        return heap.local(heap.buffer_row(buffer), rank, max(0, self._launches - 1)).clone()

    def launch(self) -> None:
        """Run one launch on all ranks.

        Raises:
            LaunchError: a rank failed or died; the executor needs `reset` then.
            HangError: no rank has finished a task for the bound; likewise.
        """
        self._run(wire.LAUNCH)

    def measure(self, repeats: int) -> list[float]:
        """Seconds of each of some launches: from a barrier of all ranks to the slowest one's end.

        Raises:
            LaunchError: as for `launch`.
        """
        answers = self._run(wire.MEASURE, repeats)
        times = np.stack([_longs(answer).reshape(repeats, 2) for answer in answers])
        seconds = (times[:, :, 1].max(axis=0) - times[:, :, 0].min(axis=0)) * 1e-9
        return seconds.tolist()

    def trace(self, path: str | Path) -> None:
        """Run one launch and write what ran when as a Chrome trace.

        Raises:
            LaunchError: as for `launch`.
        """
        answers = self._run(wire.TRACE)
        events = np.concatenate([_longs(answer).reshape(-1, 3) for answer in answers])
        write_trace(path, self._plan, events)

    def start(self) -> None:
        """Start the rank processes now instead of with the first launch."""
        self._ready()

    def reset(self) -> None:
        """Make the executor usable after a launch that did not finish; buffers keep their bytes."""
        self._stop_pool()
        if self._memory is not None:
            self._memory.heap.clear_words()
        self._launches = 0
        self._unusable = ""

    def close(self) -> None:
        """End the rank processes and let go of the memory."""
        self._stop_pool()
        if self._memory is not None:
            self._memory.close()
            self._memory = None
        self._unusable = "it is closed"

    def _run(self, command: bytes, argument: int = 0) -> Sequence[bytes]:
        pool = self._ready()
        try:
            answers = pool.run(command, argument)
        except BaseException as error:
            first = str(error).split("\n", 1)[0] or type(error).__name__
            self._unusable = f"a launch did not finish ({first}); call reset() first"
            self._stop_pool()
            raise
        self._launches += argument if command == wire.MEASURE else 1
        return answers

    def _ready(self) -> Pool:
        memory = self._use()
        if self.pool is None:
            source, bound_s = self._source, self._wait_bound_s
            self.pool = Pool(self._plan, source, memory.heap, memory.fd, bound_s)
        return self.pool

    def _heap(self) -> Heap:
        return self._use().heap

    def _use(self) -> _Memory:
        if self._unusable:
            msg = f"this executable cannot be used: {self._unusable}"
            raise LaunchError(msg)
        if self._memory is None:
            self._memory = _Memory(self._plan)
        return self._memory

    def _stop_pool(self) -> None:
        if self.pool is not None:
            self.pool.stop()
            self.pool = None


class _Memory:
    """The shared memory of a plan, mapped here; its descriptor maps it elsewhere."""

    def __init__(self, plan: Plan) -> None:
        self.fd = open_shared(Layout.of(plan).total_bytes)
        self.close = weakref.finalize(self, os.close, self.fd)
        self.heap = Heap.shared(plan, self.fd)


def _longs(data: bytes) -> Longs:
    return np.frombuffer(data, np.int64)
