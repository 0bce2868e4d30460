"""Programs written by hand at the device level, run on rank processes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import ditron as dt
from ditron.plan.tables import Role
from ditron.tools.loading import load

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("name", ["10_ring_all_gather", "11_double_buffered_reduce_scatter"])
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_a_ring_gives_what_torch_gives(name: str, ranks: int):
    program = load(EXAMPLES / f"{name}.py", ["m=37", "k=20", f"tp={ranks}"]).program
    assert isinstance(program, dt.DeviceProgram)
    with dt.compile(program) as exe:
        for seed in range(3):
            generator = torch.Generator().manual_seed(seed)
            inputs = {  # all sums and products are exact
                name: torch.randint(-1, 2, spec.shape, generator=generator).bfloat16()
                for name, spec in exe.tensors(Role.INPUT).items()
            }
            assert torch.equal(exe.run(inputs)["y"], program.reference(inputs)["y"])
            assert len(exe.measure(inputs, repeats=2)) == 2
