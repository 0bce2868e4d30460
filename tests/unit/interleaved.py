"""Runs an executable's plan in one process, in any order, on whole tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

import ditron as dt
from ditron.plan.placement import Mesh
from ditron.plan.tables import Role
from ditron.runtime.interleave import run_interleaved
from ditron.runtime.kernels import compile_kernels
from ditron.runtime.sharding import assemble, local_box

Tensors = Mapping[str, torch.Tensor]


def run(
    executable: dt.Executable,
    mesh: Mesh,
    inputs: Tensors | Callable[[int], Tensors],
    *,
    seed: int = 0,
    launches: int = 1,
) -> list[dict[str, torch.Tensor]]:
    """The outputs of each launch; `inputs` may differ from launch to launch."""
    specs = executable.tensors(Role.INPUT) | executable.tensors(Role.WEIGHT)
    made = [inputs(e) if callable(inputs) else inputs for e in range(1, launches + 1)]

    def feed(buffer: str, rank: int, launch: int) -> torch.Tensor | None:
        spec = specs.get(buffer)
        return None if spec is None else made[launch - 1][buffer][local_box(spec, mesh, rank)]

    kernels = compile_kernels(executable.kernels)
    outputs = run_interleaved(executable.plan, kernels, feed, seed=seed, launches=launches).outputs
    return [
        {
            name: assemble(spec, mesh, lambda r, e=e, name=name: outputs[e, name, r])
            for name, spec in executable.tensors(Role.OUTPUT).items()
        }
        for e in range(1, launches + 1)
    ]
