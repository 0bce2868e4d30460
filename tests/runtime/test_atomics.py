"""Compiled atomics: values, cyclic comparison, and the instructions that order memory on ARM."""

from __future__ import annotations

import importlib
import re
from typing import Any

import numpy as np
import pytest

from ditron.runtime.atomics import SOURCE, atomics
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


def test_arm_gets_acquire_loads_and_release_stores() -> None:
    llvm: Any = importlib.import_module("llvmlite.binding")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("aarch64-unknown-linux-gnu")
    assembly = target.create_target_machine(opt=2).emit_assembly(llvm.parse_assembly(SOURCE))
    bodies = re.split(r"^(\w+):", assembly, flags=re.MULTILINE)
    code = dict(zip(bodies[1::2], bodies[2::2], strict=True))
    expected = {
        "load_acquire": ["ldar"],
        "store_release": ["stlr"],
        "fetch_add": ["ldaxr", "stlxr"],
        "wait_ge": ["ldar"],
        "ready": ["ldar"],
        "notify": ["stlr", "stlxr"],
    }
    for name, instructions in expected.items():
        assert all(re.search(rf"\b{i}\b", code[name]) for i in instructions), code[name]
