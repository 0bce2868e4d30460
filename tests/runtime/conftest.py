"""What the tests of rank processes share."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import pytest
import torch
from handmade import KERNELS, AgGemm

from ditron.plan.tables import Plan
from ditron.runtime.posix import CpuExecutor

torch.set_num_threads(1)

Start = Callable[..., CpuExecutor]


def alive(pids: Sequence[int]) -> list[int]:
    """Those of some processes that still run (zombies have ended)."""
    running: list[int] = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        running += [pid] * (state not in "ZX")
    return running


def gone(pids: Sequence[int], seconds: float = 5.0) -> bool:
    """Whether all processes end within some seconds."""
    end = time.monotonic() + seconds
    while alive(pids):
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def pids(executor: CpuExecutor) -> list[int]:
    """The process ids of an executor's ranks."""
    executor.start()
    assert executor.pool is not None
    return list(executor.pool.processes.pids)


def shared_names() -> set[str]:
    """Files in /dev/shm of ours, of torch's or of multiprocessing's."""
    ours = ("ditron", "torch_", "psm_", "pym-")
    return {name for name in os.listdir("/dev/shm") if name.startswith(ours)}


@pytest.fixture
def start() -> Generator[Start]:
    """Makes executors of a hand-written AG+GEMM with data in place, and closes them."""
    made: list[CpuExecutor] = []

    def make(
        shape: AgGemm, kernels: str = KERNELS, plan: Plan | None = None, wait_bound_s: float = 30.0
    ) -> CpuExecutor:
        executor = CpuExecutor(plan or shape.plan(), kernels, wait_bound_s=wait_bound_s)
        made.append(executor)
        for (buffer, rank), shard in shape.shards(*shape.data()).items():
            executor.write(buffer, rank, shard)
        return executor

    yield make
    for executor in made:
        executor.close()


@pytest.fixture(autouse=True)
def nothing_left() -> Generator[None]:
    """No test leaves a file in /dev/shm or a descriptor open."""
    names, descriptors = shared_names(), len(os.listdir("/proc/self/fd"))
    yield
    assert shared_names() <= names
    # The zygote's socket may have come.
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 2
