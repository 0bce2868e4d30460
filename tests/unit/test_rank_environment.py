"""Ranks that share a GPU under MPS share what it has."""

from __future__ import annotations

import pytest

from ditron.runtime.gpu_processes import rank_environment


def test_a_rank_alone_has_all_queues() -> None:
    assert rank_environment(1) == {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}


@pytest.mark.parametrize("share", [2, 3, 4, 8, 16])
def test_ranks_that_share_take_no_queues_from_each_other(share: int) -> None:
    ((name, value),) = rank_environment(share).items()
    assert name == "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
    assert share * int(value) <= 100
