"""What tests on GPUs share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from benchmarks import gpu_first_run


@pytest.fixture
def shared_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ranks that a test starts on one GPU are clients of an MPS daemon of its own."""
    if torch.cuda.device_count() > 1:
        yield
        return
    with gpu_first_run.mps() as environment:
        for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"):
            monkeypatch.setenv(name, environment[name])
        yield
