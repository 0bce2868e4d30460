"""A GPU rank's process without a GPU: memory in a file, kernels under Triton's interpreter.

Kernels run when they are enqueued, one after another, so only programs whose tasks wait for nothing
in their own grid can run. Everything else (processes, messages, memory, bounds) is as on a GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import mmap
import os
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from typing import Any

import fake_nvshmem
import numpy as np
import torch

from ditron.backends.triton import interpreter_patch
from ditron.runtime import cuda_local, cuda_rank, gpu_rank, ipc

assert interpreter_patch  # imported before Triton: it readies it


class FakeMemory:
    def __init__(self, size_bytes: int) -> None:
        self.file = tempfile.NamedTemporaryFile(prefix="ditron-fake-")  # noqa: SIM115
        os.ftruncate(self.file.fileno(), size_bytes)
        self.array = _map(self.file.name)
        self.address = self.array.ctypes.data
        self.tensor = torch.from_numpy(self.array)

    @property
    def handle(self) -> bytes:
        return self.file.name.encode()


KEPT: list[Any] = []
WAIT_S = 10.0


def _map(name: str) -> Any:
    with open(name, "r+b") as file:
        array = np.frombuffer(mmap.mmap(file.fileno(), 0), np.uint8)
    KEPT.append(array)
    return array


class FakeStream:
    cuda_stream = 0

    def __init__(self, priority: int = 0) -> None:
        pass

    def wait_stream(self, other: FakeStream) -> None:
        pass

    def wait_event(self, event: object) -> None:
        pass


class FakeEvent:
    def __init__(self, **_: object) -> None:
        pass

    def record(self, stream: object = None) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, other: FakeEvent) -> float:
        return 1.0


class FakeCalls:
    """Copies at once; a wait polls until a peer has raised the word."""

    def copy(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        ctypes.memmove(target, source, size_bytes)

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
        for line in range(height):
            ctypes.memmove(target + line * target_pitch, source + line * source_pitch, width)

    def wait(self, word: int, value: int, stream: int) -> None:
        seen = ctypes.c_int32.from_address(word)
        until = time.monotonic() + WAIT_S
        while ctypes.c_int32(seen.value - value).value < 0:
            if time.monotonic() > until:
                raise TimeoutError(f"a stream waits for {value}, seen {seen.value}")
            time.sleep(1e-4)


class FakeGpu(gpu_rank.GpuRank):
    def reset(self, epoch: int = 0) -> None:
        self.memory.poison()
        self.memory.start(epoch, spins=2000)
        self.done = epoch

    def calls(self) -> FakeCalls:
        return FakeCalls()

    def kernel(self, launch: Any) -> Any:
        kernel = getattr(gpu_rank.load_source(self.source), launch.kernel)
        arguments = [self.memory.argument(a) for a in launch.arguments]
        return lambda: kernel[(launch.programs,)](*arguments)

    def load(self) -> dict[str, Any]:
        self.advance = importlib.import_module(gpu_rank.LIBRARY).advance
        return {launch.kernel: {"programs": launch.programs} for launch in self.program.launches}


class FakeRank(cuda_rank.RankProcess):
    def measure(self, repeats: int) -> list[float]:
        for _ in range(repeats):
            self.meet()
            self.launch()
        return [1.0] * repeats


def _nothing(*_: object) -> None:
    pass


def _same_stream(_: object) -> contextlib.nullcontext[None]:
    return contextlib.nullcontext()


def _open(handle: bytes) -> int:
    return int(_map(handle.decode()).ctypes.data)


def pretend() -> None:
    """Take the GPU away from torch and ditron."""
    torch.set_num_threads(1)
    cuda: Any = torch.cuda
    cuda.set_device = _nothing
    cuda.synchronize = _nothing
    cuda.Stream, cuda.Event = FakeStream, FakeEvent
    cuda.stream = _same_stream
    cuda.current_stream = FakeStream
    cuda.is_current_stream_capturing = lambda: False
    module: Any = cuda_rank
    module.RankProcess, module.GpuRank = FakeRank, FakeGpu
    local: Any = cuda_local
    local.GpuRank = FakeGpu
    memory: Any = ipc
    memory.DeviceMemory, memory.open_peer, memory.close_peer = FakeMemory, _open, _nothing
    fake_nvshmem.install()


if __name__ == "__main__":
    pretend()
    cuda_rank.serve(Connection(int(sys.argv[1])))
