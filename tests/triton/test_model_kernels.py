"""Whole models: their programs compile for both vendors, and interpreted say what a CPU says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from triton_support import cross, interpreted

import ditron as dt
from ditron.backends.triton import compile as compiling
from ditron.backends.triton.interpreted import Worker
from ditron.executable import Executable
from ditron.plan.tables import Role

QWEN: dict[str, Any] = {
    "model_type": "qwen3",
    "num_hidden_layers": 1,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 48,
    "vocab_size": 64,
    "tie_word_embeddings": True,
}
LLAMA: dict[str, Any] = {
    **QWEN,
    "model_type": "llama",
    "head_dim": 8,
    "intermediate_size": 40,
    "tie_word_embeddings": False,
}
FAMILIES = pytest.mark.parametrize("fields", [QWEN, LLAMA], ids=["qwen3", "llama"])
CTX = 12
OPTIONS = dt.Options(workers=2, splits=5)


def hf_model(fields: dict[str, Any]) -> Any:
    transformers = pytest.importorskip("transformers")
    family = {"qwen3": "Qwen3", "llama": "Llama"}[fields["model_type"]]
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**fields, initializer_range=0.2)
    return getattr(transformers, f"{family}ForCausalLM")(config).eval()


def model_on(hf: Any, target: str, ranks: int) -> Any:
    mesh = dt.Mesh(tp=ranks)
    options = OPTIONS if target != "cpu" else None
    return dt.models.from_hf(hf, mesh=mesh, ctx=CTX, target=target, options=options)


def interpret(model: dt.models.Model, name: str, worker: Worker) -> None:
    """Give one of a model's programs an executor that interprets its kernels."""
    held = model.programs
    exe = held._target.build(held.source(name))
    assert isinstance(exe, Executable)
    interpreted(exe, worker)
    exe.bind({weight: held._weights[weight] for weight in exe.tensors(Role.WEIGHT)})
    held._built[name] = exe


@FAMILIES
@pytest.mark.parametrize("ranks", [1, 2])
def test_tokens_are_those_of_a_cpu(worker: Worker, fields: dict[str, Any], ranks: int) -> None:
    hf = hf_model(fields)
    prompt = torch.tensor([[5, 9, 2]])
    with model_on(hf, "cpu", ranks) as model:
        wanted = model.generate(prompt, 4)
    with model_on(hf, "sm_90", ranks) as model:
        for name in ("decode", "prefill-3"):
            interpret(model, name, worker)
        assert torch.equal(model.generate(prompt, 4), wanted)
        assert torch.equal(model.generate(prompt, 4, prefill=True), wanted)


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
@pytest.mark.parametrize(("fields", "tokens", "ranks"), [(QWEN, 1, 2), (LLAMA, 8, 1)])
def test_programs_compile(fields: dict[str, Any], tokens: int, ranks: int, target: str) -> None:
    """In bfloat16: a step of one token, and one of eight."""
    step = dt.models.Shape(batch=1, tokens=tokens, ctx=CTX, dtype=dt.bf16)
    config = dt.models.read_config(fields)
    program = dt.models.decoder(config, dt.Mesh(tp=ranks), step, outputs=["next"])
    exe = dt.compile(program, target=target, options=OPTIONS)
    assert compiling.compile_program(cross(exe).program)
