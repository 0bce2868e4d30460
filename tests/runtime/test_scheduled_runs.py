"""Every scheduler runs on CPU ranks."""

from __future__ import annotations

import pytest
import torch

import ditron as dt
from ditron.plan.options import SCHEDULERS
from tests.unit.lowered import gemm_rs


@pytest.mark.parametrize("policy", SCHEDULERS)
def test_a_scheduler_runs(policy: str):
    program = gemm_rs(2, 16, 16, 16)
    inputs = {"x": torch.randn(16, 16), "w": torch.randn(16, 16)}
    options = dt.Options(scheduler=policy, workers=3, tile=(4, 4))
    with dt.compile(program, options=options) as executable:
        first = executable.run(inputs)["y"]
        torch.testing.assert_close(first, program.reference(inputs)["y"])
        assert torch.equal(executable.run(inputs)["y"], first)
