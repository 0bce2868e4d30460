"""Processes of ranks on GPUs: what those that share a GPU leave each other, and how they end."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time

import pytest

from ditron.runtime import gpu_processes
from ditron.runtime.gpu_processes import rank_environment


def test_a_rank_alone_has_all_queues() -> None:
    assert rank_environment(1) == {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}


@pytest.mark.parametrize("share", [2, 3, 4, 8, 16])
def test_ranks_that_share_take_no_queues_from_each_other(share: int) -> None:
    ((name, value),) = rank_environment(share).items()
    assert name == "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
    assert share * int(value) <= 100


def test_ranks_that_do_not_end_share_one_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_processes, "END_BOUND_S", 0.5)
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    processes = [subprocess.Popen(command) for _ in range(4)]
    begin = time.monotonic()
    gpu_processes.end_ranks(processes, [], tempfile.TemporaryDirectory())
    assert time.monotonic() - begin < 4 * 0.5
    assert all(process.returncode == -signal.SIGKILL for process in processes)
