"""Whole models compiled for ranks: logits and greedy tokens are those of the reference."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import ditron as dt
from ditron.executable import Executable

CONFIG: dict[str, Any] = {
    "hidden_size": 32,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 8,
    "intermediate_size": 24,
    "vocab_size": 48,
    "num_hidden_layers": 1,
}
IDS = torch.tensor([[5, 17, 40, 3], [47, 0, 1, 2]])
NEW = 6


@pytest.mark.parametrize(
    ("fields", "mesh", "layers"),
    [
        ({"model_type": "qwen3", "tie_word_embeddings": True}, dt.Mesh(tp=2), 2),
        ({"model_type": "llama"}, dt.Mesh(dp=2, tp=2), 1),
    ],
    ids=["qwen3-tied-2", "llama-2x2"],
)
def test_float32_on_ranks_is_the_reference(fields: dict[str, Any], mesh: dt.Mesh, layers: int):
    config = CONFIG | fields | {"num_hidden_layers": layers}
    model, expected = both(config, mesh, dt.f32)
    with model:
        tokens = expected.generate(IDS, NEW)
        assert torch.equal(model.generate(IDS, NEW, prefill=True), tokens)
        assert torch.equal(model.generate(IDS, NEW), tokens)
        decode = model.programs["decode"]
        assert isinstance(decode, Executable)
        assert "delivery" in str(decode.report)
        # What a longer sequence left in the cache is not seen by a shorter one.
        assert torch.equal(model.generate(IDS[:, :2], 1), expected.generate(IDS[:, :2], 1))
        torch.testing.assert_close(model.logits(IDS), expected.logits(IDS))


def test_bfloat16_on_ranks_is_as_near_to_the_truth_as_the_reference():
    config = CONFIG | {"model_type": "qwen3"}
    model, expected = both(config, dt.Mesh(tp=4), dt.bf16)
    exact, _ = both(config, dt.Mesh(tp=1), dt.f32, target="reference")
    with model:
        said = model.generate(IDS, NEW)
        mine, reference = model.logits(said), expected.logits(said)
    truth = exact.logits(said)
    allowed = 2 * (reference - truth).abs().max()
    assert 0 < (mine - truth).abs().max() <= allowed
    # A token may differ from the likeliest one where rounding is larger than what is between them.
    after = truth[:, IDS.shape[1] - 1 : -1]
    short = after.amax(-1) - after.gather(-1, said[:, IDS.shape[1] :, None])[..., 0]
    assert short.max() <= allowed


def both(
    config: dict[str, Any], mesh: dt.Mesh, dtype: dt.DType, target: str = "cpu"
) -> tuple[dt.models.Model, dt.models.Model]:
    """A model on its target and by its reference, with the same weights, exact in bfloat16."""
    made: list[dt.models.Model] = []
    for where in (target, "reference"):
        model = dt.models.from_hf(config, mesh=mesh, batch=2, ctx=12, dtype=dtype, target=where)
        checkpoint = dt.models.random_checkpoint(model.config)
        model.load({name: tensor.bfloat16() for name, tensor in checkpoint.items()})
        made.append(model)
    return made[0], made[1]
