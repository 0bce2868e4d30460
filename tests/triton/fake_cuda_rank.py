"""A GPU rank's process without a GPU: memory in a file, kernels under Triton's interpreter.

Kernels run when they are enqueued, one after another, so only programs whose tasks wait for nothing
in their own grid can run. Everything else (processes, messages, memory, bounds) is as on a GPU.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import tempfile
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from ditron.backends.triton import interpreter_patch
from ditron.runtime import cuda_rank

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


def _map(name: str) -> Any:
    with open(name, "r+b") as file:
        array = np.frombuffer(mmap.mmap(file.fileno(), 0), np.uint8)
    KEPT.append(array)
    return array


class FakeStream:
    def __init__(self, priority: int = 0) -> None:
        pass

    def wait_stream(self, other: FakeStream) -> None:
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


class FakeRank(cuda_rank.GpuRank):
    def reset(self, epoch: int = 0) -> None:
        self.memory.poison()
        self.memory.start(epoch, spins=2000)

    def _call(self, launch: Any) -> Any:
        kernel = getattr(cuda_rank.load_source(self.spec.source), launch.kernel)
        arguments = [self.memory.argument(a) for a in launch.arguments]
        return lambda: kernel[(launch.programs,)](*arguments)

    def _load(self, launch: Any) -> dict[str, int]:
        return {"programs": launch.programs}

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


def main() -> None:
    torch.set_num_threads(1)
    cuda: Any = torch.cuda
    cuda.set_device = _nothing
    cuda.synchronize = _nothing
    cuda.Stream, cuda.Event = FakeStream, FakeEvent
    cuda.stream = _same_stream
    module: Any = cuda_rank
    module.DeviceMemory = FakeMemory
    module.open_peer, module.close_peer = _open, _nothing
    module.GpuRank = FakeRank
    cuda_rank.serve(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
