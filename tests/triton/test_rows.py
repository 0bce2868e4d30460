"""Kernels that sum over rows: compiled for both vendors, and interpreted against torch."""

from __future__ import annotations

import pytest
import torch
from triton_support import cross, interpreted, random_inputs, run

import ditron as dt
from ditron.backends.triton import compile as compiling
from ditron.backends.triton.interpreted import Worker


def program(m: int, n: int) -> dt.Program:
    with dt.Program("rows", dt.Mesh(tp=2)) as p:
        x = p.input("x", (m, n), dt.bf16, dt.Shard(0))
        gain = p.input("gain", (n,), dt.bf16, dt.Replicate())
        p.output("y", dt.rms_norm(x, gain))
        p.output("z", dt.softmax(x))
    return p


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_rows_compile(target: str) -> None:
    executable = dt.compile(program(64, 1000), target=target, options=dt.Options(workers=4))
    assert len(compiling.compile_program(cross(executable).program)) == 2


def test_rows_agree(worker: Worker) -> None:
    rows = program(11, 200)
    exe = dt.compile(rows, target="sm_90", options=dt.Options(workers=2))
    interpreted(exe, worker)
    inputs = random_inputs(exe, 1)
    outputs = run(exe, inputs)
    for key, want in rows.reference(inputs).items():
        torch.testing.assert_close(outputs[key], want, rtol=0.02, atol=0.02)
