"""Views that are places in other buffers: compiled for both vendors, interpreted against torch."""

from __future__ import annotations

import pytest
import torch
from triton_support import cross, interpreted, random_inputs, run

import ditron as dt
from ditron.backends.triton import compile as compiling
from ditron.backends.triton.interpreted import Worker


def program(rows: int, ranks: int = 2) -> dt.Program:
    """Two halves of a product's columns, rows of heads, a matrix from its transpose."""
    with dt.Program("views", dt.Mesh(tp=ranks)) as p:
        x = p.input("x", (rows, 32), dt.bf16, dt.Replicate())
        w = p.input("w", (ranks * 64, 32), dt.bf16, dt.Shard(0))
        parts = dt.reshape(dt.matmul(x, w, transpose_b=True), (rows, ranks, 2, 32))
        gate, up = (dt.reshape(part, (rows, ranks * 32)) for part in dt.split(parts, 1, dim=2))
        joined = dt.concat([dt.silu(gate) * up, dt.relu(up)], dim=0)
        p.output("joined", dt.matmul(joined, p.input("v", (ranks * 32, 24), dt.bf16, dt.Shard(0))))
        p.output("turned", dt.relu(dt.transpose(joined, 0, 1)))
    return p


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_views_compile(target: str) -> None:
    executable = dt.compile(program(48), target=target, options=dt.Options(workers=4))
    assert len(executable.plan.ops) == len(compiling.compile_program(cross(executable).program))
    assert "copy" not in {op.kind for op in executable.plan.ops}


def test_views_agree(worker: Worker) -> None:
    views = program(11)
    exe = dt.compile(views, target="sm_90", options=dt.Options(workers=2))
    interpreted(exe, worker)
    inputs = random_inputs(exe, 1)
    outputs = run(exe, inputs)
    for key, want in views.reference(inputs).items():
        torch.testing.assert_close(outputs[key], want, rtol=0.02, atol=0.05)
