"""Ranks that share a GPU under MPS share what it has."""

from __future__ import annotations

import pytest

from ditron.runtime.cuda import rank_environment

# An MPS server's, for all clients of a GPU: 60 clients of 2 each.
QUEUES_OF_A_SERVER = 120


def test_a_rank_of_its_own_takes_all() -> None:
    assert rank_environment(1) == {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}


@pytest.mark.parametrize("share", [2, 3, 4, 8, 16])
def test_three_executables_of_as_many_ranks_fit_one_server(share: int) -> None:
    found = {name: int(value) for name, value in rank_environment(share).items()}
    assert 3 * share * found["CUDA_DEVICE_MAX_CONNECTIONS"] <= QUEUES_OF_A_SERVER
    assert share * found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] <= 100
