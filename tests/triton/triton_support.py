from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch

import ditron as dt
from ditron.backends.triton import CrossExecutor
from ditron.backends.triton.interpreted import InterpretedExecutor, Worker
from ditron.executable import Executable
from ditron.plan.tables import Role

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str, **kwargs: Any) -> dt.Program:
    """The program of an example."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.program(**kwargs)


def cross(exe: Executable) -> CrossExecutor:
    """What a cross-compiled executable holds."""
    executor = exe._executor
    assert isinstance(executor, CrossExecutor)
    return executor


def interpreted(exe: Executable, worker: Worker) -> InterpretedExecutor:
    """Give a cross-compiled executable an executor that interprets its kernels."""
    held = cross(exe)
    executor = InterpretedExecutor(held.plan, held.program, worker)
    exe._executor = executor
    return executor


def random_inputs(exe: Executable, seed: int) -> dict[str, torch.Tensor]:
    """Inputs and weights of a program."""
    generator = torch.Generator().manual_seed(seed)
    specs = {**exe.tensors(Role.INPUT), **exe.tensors(Role.WEIGHT)}
    return {
        name: (torch.randn(spec.shape, generator=generator) * 0.3).to(torch.bfloat16)
        for name, spec in specs.items()
    }


def run(exe: Executable, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Bind what is a weight, run with the rest."""
    weights = exe.tensors(Role.WEIGHT)
    exe.bind({n: t for n, t in inputs.items() if n in weights})
    return exe.run({n: t for n, t in inputs.items() if n not in weights})
