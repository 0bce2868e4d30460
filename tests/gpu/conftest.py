"""What tests on GPUs share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from benchmarks import gpu_first_run


@pytest.fixture(scope="session")
def shared_gpu() -> Iterator[None]:
    """Ranks that tests start on one GPU are clients of an MPS daemon of their own."""
    if torch.cuda.device_count() > 1:
        yield
        return
    with gpu_first_run.mps() as environment, pytest.MonkeyPatch.context() as patch:
        for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"):
            patch.setenv(name, environment[name])
        yield
