"""Whole programs as one persistent kernel a rank: interpreted against torch, and compiled."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from triton_support import cross, example, interpreted, random_inputs, run

import ditron as dt
from ditron.backends.triton.compile import compile_program
from ditron.backends.triton.interpreted import Worker
from ditron.plan.tables import Role

DTYPES = {"bf16": "bfloat16", "f32": "float32", "i64": "int64"}
MLP = "04_mlp"
SMALL: dict[str, Any] = {"tokens": 50, "hidden": 36, "inner": 44}
TILE: dict[str, Any] = {"tile": (16, 32)}

CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (MLP, {**SMALL, "tp": 1}, {"workers": 3, **TILE}),
    (MLP, {**SMALL, "tp": 2}, {"workers": 2, **TILE}),
    (MLP, {**SMALL, "tp": 3}, {"workers": 2, "algorithm": "mesh-push", **TILE}),
    ("03_gemm_ar", {"m": 7, "n": 50, "k": 40, "tp": 2}, {"workers": 2, **TILE}),
]


def mega(name: str, sizes: dict[str, Any], target: str = "sm_90", **options: Any) -> Any:
    chosen = dt.Options(megakernel=True, **options)
    return dt.compile(example(name, **sizes), target=target, options=chosen)


@pytest.mark.parametrize(("name", "sizes", "options"), CASES)
def test_interpreted(
    worker: Worker, name: str, sizes: dict[str, Any], options: dict[str, Any]
) -> None:
    exe = mega(name, sizes, **options)
    executor = interpreted(exe, worker)
    executor.launches, executor.epoch = 3, (1 << 31) - 2
    inputs = random_inputs(exe, 1)
    outputs = run(exe, inputs)
    for key, want in example(name, **sizes).reference(inputs).items():
        torch.testing.assert_close(outputs[key], want, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
@pytest.mark.parametrize("tp", [1, 2])
def test_compiled(target: str, tp: int) -> None:
    exe = mega(MLP, {"tp": tp}, target, workers=16)
    (kernel,) = compile_program(cross(exe).program)
    assert kernel.launch.dots
    assert kernel.spills == 0


def test_decode_step(worker: Worker) -> None:
    sizes: dict[str, Any] = {"tp": 1, "layers": 2}
    exe = mega("20_qwen3_decode", sizes, workers=4)
    (kernel,) = compile_program(cross(exe).program)
    assert kernel.spills == 0
    interpreted(exe, worker)
    apart = dt.compile(example("20_qwen3_decode", **sizes), target="sm_90")
    interpreted(apart, worker)
    weights: dict[str, torch.Tensor] = {}
    generator = torch.Generator().manual_seed(3)
    for name, spec in exe.tensors(Role.WEIGHT).items():
        drawn = torch.randn(spec.shape, generator=generator) * 0.3
        weights[name] = drawn.to(getattr(torch, DTYPES[str(spec.dtype)]))
    weights["tokens"] = torch.arange(128).reshape(weights["tokens"].shape)
    with dt.compile(example("20_qwen3_decode", **sizes), target="cpu") as cpu:
        for one in (exe, apart, cpu):
            one.bind(weights)
        for place, token in enumerate((5, 9)):
            mine, same, near = (
                one.run({"ids": torch.tensor([[token]]), "pos": place}) for one in (exe, apart, cpu)
            )
            for name, want in same.items():
                assert torch.equal(mine[name], want)
                torch.testing.assert_close(mine[name], near[name], rtol=0.02, atol=0.02)
