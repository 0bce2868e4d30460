"""Compiled atomics: values and cyclic comparison (memory order cannot be tested on x86)."""

from __future__ import annotations

import numpy as np
import pytest

from ditron.runtime.atomics import atomics
from ditron.runtime.words import reached


@pytest.fixture
def word() -> np.ndarray:
    return np.zeros(1, np.int32)


def test_load_store_add(word: np.ndarray) -> None:
    a, address = atomics(), word.ctypes.data
    a.store_release(address, 7)
    assert a.fetch_add(address, -10) == 7
    assert a.load_acquire(address) == word[0] == -3


@pytest.mark.parametrize("spins", [0, 3])
@pytest.mark.parametrize(
    ("seen", "want", "expected"),
    [(4, 5, False), (5, 5, True), (6, 5, True), (-(2**31), 2**31 - 1, True), (-2, 1, False)],
)
def test_waits_compare_cyclically(
    word: np.ndarray, seen: int, want: int, spins: int, *, expected: bool
) -> None:
    word[0] = seen
    assert bool(atomics().wait_ge(word.ctypes.data, want, spins)) is expected
    assert reached(seen, want) is expected
