"""Emitted kernels under Triton's interpreter, all ranks interleaved, against torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from triton_support import example, interpreted, random_inputs, run

import ditron as dt
from ditron.backends.triton.interpreted import Worker

AG, RS, AR, MLP = "01_ag_gemm", "02_gemm_rs", "03_gemm_ar", "04_mlp"
SMALL: dict[str, Any] = {"m": 96, "n": 64, "k": 48}
RAGGED: dict[str, Any] = {"m": 83, "n": 50, "k": 40, "tp": 3}

CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("00_matmul", {"m": 40, "n": 36, "k": 20, "tp": 1}, {"workers": 3, "tile": (16, 32)}),
    ("00_matmul", {"m": 300, "n": 536, "k": 72, "tp": 1}, {"workers": 4, "tile": (128, 256)}),
    ("00_matmul", {"m": 1, "n": 48, "k": 21, "tp": 1}, {"workers": 2, "tile": (16, 32)}),
    # A wave of 128x256, then a row of tiles of 128x128.
    ("00_matmul", {"m": 300, "n": 256, "k": 2048, "tp": 1}, {"workers": 2, "tile": (128, 256)}),
    (AG, {**SMALL, "tp": 2}, {"algorithm": "mesh-push", "workers": 2, "tile": (32, 32)}),
    (AG, RAGGED, {"algorithm": "mesh-push", "workers": 3, "chunk_bytes": 800, "tile": (16, 32)}),
    (AG, RAGGED, {"algorithm": "mesh-in-place", "workers": 2, "tile": (32, 32)}),
    (AG, RAGGED, {"algorithm": "ring", "workers": 2, "tile": (32, 32)}),
    (AG, {**RAGGED, "m": 2}, {"algorithm": "mesh-pull", "workers": 2, "tile": (16, 16)}),
    (RS, {**SMALL, "tp": 2}, {"algorithm": "mesh-push", "workers": 2, "tile": (32, 32)}),
    (RS, RAGGED, {"algorithm": "mesh-in-place", "workers": 3, "tile": (16, 32)}),
    (RS, RAGGED, {"algorithm": "ring", "workers": 2, "tile": (32, 32)}),
    (AR, {**RAGGED, "tp": 4}, {"algorithm": "one-shot", "workers": 2, "tile": (32, 32)}),
    (AR, RAGGED, {"algorithm": "two-shot-push", "workers": 2, "tile": (32, 32)}),
    (MLP, {"tokens": 50, "hidden": 36, "inner": 44, "tp": 2}, {"workers": 2, "tile": (16, 32)}),
]


@pytest.mark.parametrize(("name", "sizes", "options"), CASES)
def test_examples(
    worker: Worker, name: str, sizes: dict[str, Any], options: dict[str, Any]
) -> None:
    check(worker, name, sizes, options, seed=1)


@pytest.mark.parametrize("seed", range(3))
def test_counters_wrap_around(worker: Worker, seed: int) -> None:
    options = {"algorithm": "mesh-push", "workers": 2, "tile": (32, 32)}
    check(worker, AG, RAGGED, options, seed=seed, launches=4, epoch=(1 << 31) - 2)


def check(
    worker: Worker,
    name: str,
    sizes: dict[str, Any],
    options: dict[str, Any],
    *,
    seed: int,
    launches: int = 2,
    epoch: int = 0,
) -> None:
    program = example(name, **sizes)
    exe = dt.compile(program, target="sm_90", options=dt.Options(**options))
    executor = interpreted(exe, worker)
    executor.seed, executor.launches, executor.epoch = seed, launches, epoch
    inputs = random_inputs(exe, seed)
    outputs = run(exe, inputs)
    for key, want in program.reference(inputs).items():
        torch.testing.assert_close(outputs[key], want, rtol=0.02, atol=0.02)
