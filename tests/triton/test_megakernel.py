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
LLAMA: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 96,
    "vocab_size": 320,
    "tie_word_embeddings": False,
}
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


@pytest.mark.parametrize("batch", [1, 8])
def test_decode_step(worker: Worker, batch: int) -> None:
    sizes: dict[str, Any] = {"tp": 1, "layers": 2, "batch": batch}
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
            ids = torch.arange(token, token + batch)[:, None]
            mine, same, near = (one.run({"ids": ids, "pos": place}) for one in (exe, apart, cpu))
            for name, want in same.items():
                assert torch.equal(mine[name], want)
                torch.testing.assert_close(mine[name], near[name], rtol=0.02, atol=0.02)


@pytest.mark.parametrize("tokens", [1, 5])
def test_steps_of_a_small_llama(worker: Worker, tokens: int) -> None:
    config = dt.models.read_config({"model_type": "llama", **LLAMA})
    step = dt.models.Shape(batch=1, tokens=tokens, ctx=24, dtype=dt.f32)
    program = dt.models.decoder(config, dt.Mesh(tp=1), step)
    exe = dt.compile(program, target="sm_90", options=dt.Options(workers=4, megakernel=True))
    (kernel,) = compile_program(cross(exe).program)
    assert kernel.spills == 0
    interpreted(exe, worker)
    generator = torch.Generator().manual_seed(3)
    weights: dict[str, torch.Tensor] = {}
    for name, spec in exe.tensors(Role.WEIGHT).items():
        drawn = torch.randn(spec.shape, generator=generator) * 0.3
        weights[name] = drawn.to(getattr(torch, DTYPES[str(spec.dtype)]))
    if "tokens" in weights:
        weights["tokens"] = torch.arange(config.vocab).reshape(weights["tokens"].shape)
    with dt.compile(program, target="cpu") as cpu:
        for one in (exe, cpu):
            one.bind(weights)
        for place in (0, tokens, 2 * tokens):
            ids = torch.randint(0, config.vocab, (1, tokens), generator=generator)
            mine, want = (one.run({"ids": ids, "pos": place}) for one in (exe, cpu))
            for name, value in want.items():
                torch.testing.assert_close(mine[name], value, rtol=1e-3, atol=1e-3)
