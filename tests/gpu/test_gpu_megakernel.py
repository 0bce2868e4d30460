"""MegaKernels of one rank or several that share a GPU (under MPS); by hand, where a GPU is.

python -m pytest -m gpu tests/gpu
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import ditron as dt
from benchmarks.gpu_first_run import example
from ditron.plan.tables import Role

SIZES = {"tokens": 512, "hidden": 1024, "inner": 1024}
SMS = 128  # that all ranks share


@pytest.mark.gpu
@pytest.mark.usefixtures("shared_gpu")
@pytest.mark.parametrize("megakernel", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_an_mlp_is_right_and_every_task_is_stamped(
    ranks: int, megakernel: bool, tmp_path: Path
) -> None:
    program = example("04_mlp", tp=ranks, **SIZES)
    options = dt.Options(
        workers=SMS // ranks - 4, megakernel=megakernel, library=False, stamps=True
    )
    generator = torch.Generator().manual_seed(0)
    with dt.compile(program, target="cuda", options=options) as exe:
        inputs, weights = (
            {
                name: (torch.randn(spec.shape, generator=generator) * 0.05).to(torch.bfloat16)
                for name, spec in exe.tensors(role).items()
            }
            for role in (Role.INPUT, Role.WEIGHT)
        )
        exe.bind(weights)
        found = exe.run(inputs)
        wanted = program.reference({**inputs, **weights})
        for name, want in wanted.items():
            torch.testing.assert_close(found[name], want, rtol=0.02, atol=0.02 * want.abs().max())
        exe.trace(tmp_path / "trace.json")
        slices = [
            event
            for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
            if event["ph"] == "X"
        ]
    tasks = [event for event in slices if "task" in event["args"]]
    assert {event["pid"] for event in tasks} == set(range(ranks))
    assert len(tasks) >= 0.9 * len(exe.plan.tasks)
    for kernel in (event for event in slices if event["cat"] == "kernel"):
        inside = [t["ts"] - kernel["ts"] for t in tasks if t["pid"] == kernel["pid"]]
        assert max(inside) > 0
