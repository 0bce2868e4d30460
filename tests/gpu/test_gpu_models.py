"""A small model's greedy tokens beside transformers', in float32; by hand, where a GPU is.

python -m pytest -m gpu tests/gpu
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import ditron as dt

FIELDS: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 96,
    "vocab_size": 320,
    "tie_word_embeddings": False,
    "initializer_range": 0.2,
}
PROMPT = torch.tensor([[5, 9, 2, 301, 77]])
# Two ranks share a GPU where there is one, and all that wait have to fit.
WORKERS = 32


@pytest.mark.gpu
@pytest.mark.usefixtures("shared_gpu")
@pytest.mark.parametrize("family", ["Qwen3", "Llama"])
@pytest.mark.parametrize(("ranks", "megakernel"), [(1, False), (2, False), (1, True), (2, True)])
def test_tokens_are_those_of_transformers(family: str, ranks: int, megakernel: bool) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**FIELDS)
    hf = getattr(transformers, f"{family}ForCausalLM")(config).float().eval()
    wanted = hf.generate(PROMPT, max_new_tokens=12, do_sample=False, eos_token_id=None)
    mesh, options = dt.Mesh(tp=ranks), dt.Options(workers=WORKERS, megakernel=megakernel)
    with dt.models.from_hf(hf, mesh=mesh, ctx=24, target="cuda", options=options) as model:
        assert torch.equal(model.generate(PROMPT, 12), wanted)
        assert torch.equal(model.generate(PROMPT, 12, prefill=True), wanted)
