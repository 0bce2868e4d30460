"""Whole models against transformers: logits, greedy tokens, and what is refused.

The programs run by their reference here, which knows global tensors only; `tests/runtime` has them
on ranks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

import ditron as dt
from ditron.errors import InputError, MeshError, ModelError
from ditron.ir import task
from ditron.models.programs import ReferenceRun
from ditron.models.weights import by_rank, checkpoint_shapes, fuse, rotary_tables
from tests.unit.mesh_run import run_program

TINY: dict[str, Any] = {
    "hidden_size": 48,
    "num_attention_heads": 12,
    "num_key_value_heads": 6,
    "head_dim": 8,
    "intermediate_size": 36,
    "vocab_size": 96,
    "num_hidden_layers": 2,
    "initializer_range": 0.2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
FAMILIES: dict[str, tuple[Any, Any]] = {
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "llama": (LlamaConfig, LlamaForCausalLM),
}


def make(family: str, dtype: torch.dtype = torch.float32, **fields: Any) -> Any:
    """A tiny model with random weights, norms included."""
    torch.manual_seed(0)
    config, model = FAMILIES[family]
    found = model(config(**TINY | fields)).to(dtype).eval()
    for name, parameter in found.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(parameter, 1.0, 0.1)
    return found


def on_ditron(hf: object, tp: int = 2, **arguments: Any) -> dt.models.Model:
    given: dict[str, Any] = {
        "mesh": dt.Mesh(tp=tp),
        "ctx": 40,
        "target": "reference",
        "batch": 2,
        **arguments,
    }
    return dt.models.from_hf(hf, **given)


def theirs(hf: Any, ids: torch.Tensor, new: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Their logits in float32, and their greedy continuation."""
    hf.generation_config.eos_token_id = None
    every = torch.ones_like(ids)
    with torch.no_grad():
        told = hf.generate(ids, attention_mask=every, max_new_tokens=new, do_sample=False)
        return hf(ids).logits.float(), told


IDS = torch.tensor([[5, 17, 80, 3, 44], [95, 0, 1, 2, 2]])


@pytest.mark.parametrize(
    ("family", "tied", "mesh"),
    [
        ("qwen3", False, dt.Mesh(tp=1)),
        ("qwen3", True, dt.Mesh(tp=2)),
        ("qwen3", False, dt.Mesh(dp=2, tp=3)),
        ("llama", True, dt.Mesh(tp=3)),
        ("llama", False, dt.Mesh(tp=2, dp=2)),
    ],
    ids=str,
)
def test_float32_is_transformers(family: str, tied: bool, mesh: dt.Mesh):
    scaling: dict[str, Any] = {"rope_parameters": LLAMA3} if family == "llama" else {}
    hf = make(family, tie_word_embeddings=tied, max_position_embeddings=256, **scaling)
    logits, tokens = theirs(hf, IDS, 32)
    model = on_ditron(hf, mesh=mesh)
    torch.testing.assert_close(model.logits(IDS), logits, rtol=1e-5, atol=1e-5)
    assert torch.equal(model.generate(IDS, 32, prefill=True), tokens)
    assert torch.equal(model.generate(IDS, 32), tokens)


@pytest.mark.parametrize("family", FAMILIES)
def test_bfloat16_is_as_near_to_the_truth_as_transformers(family: str):
    hf = make(family, torch.bfloat16)
    logits, tokens = theirs(hf, IDS, 16)
    model = on_ditron(hf)
    mine, said = model.logits(IDS), model.generate(IDS, 16)
    told = torch.cat([tokens, said])
    exact = hf.double()
    with torch.no_grad():
        truth, after = exact(IDS).logits, exact(told).logits[:, 4:-1]
    assert 0 < (mine - truth).abs().max() <= 2 * (logits - truth).abs().max()
    # A token may differ from the likeliest one where rounding is larger than what is between them.
    short = after.amax(-1) - after.gather(-1, told[:, 5:, None])[..., 0]
    assert short[2:].max() <= max(2 * short[:2].max(), (logits - truth).abs().max())


def test_decode_against_the_cache_is_prefill():
    """Steps of one and of three tokens give the logits of a whole prompt at once."""
    hf = make("qwen3")
    model = on_ditron(hf, batch=1)
    ids = IDS[:1]
    whole = model.logits(ids)
    weights = fuse(model.config, hf.state_dict(), 2, 40, torch.float32)
    states: dict[str, torch.Tensor] = {}
    for at, count in ((0, 3), (3, 1), (4, 1)):
        shape = dt.models.Shape(batch=1, tokens=count, ctx=40, dtype=dt.f32)
        program = dt.models.decoder(model.config, dt.Mesh(tp=2), shape, ["logits", "next"])
        out = program.reference({**weights, **states, "ids": ids[:, at : at + count], "pos": at})
        here = out.pop("logits")
        torch.testing.assert_close(here, whole[:, at : at + count])
        assert torch.equal(out.pop("next"), here[:, -1].argmax(-1, keepdim=True))
        states = out


@pytest.mark.parametrize("mesh", [dt.Mesh(tp=3), dt.Mesh(tp=2, dp=2), dt.Mesh(dp=2, tp=6)], ids=str)
@pytest.mark.parametrize("tokens", [1, 3])
def test_ranks_compute_their_parts_from_what_they_hold(mesh: dt.Mesh, tokens: int):
    config = dt.models.read_config(TINY | {"model_type": "qwen3", "num_hidden_layers": 1})
    shape = dt.models.Shape(batch=2, tokens=tokens, ctx=8, dtype=dt.f32)
    program = dt.models.decoder(config, mesh, shape, ["logits", "next"])
    checkpoint = dt.models.random_checkpoint(config)
    inputs = fuse(config, checkpoint, mesh.size("tp"), 8, torch.float32)
    cache = (2, 8, config.kv_heads, config.head_dim)
    inputs |= {f"layers.0.{name}": torch.randn(cache) for name in "kv"}
    inputs |= {"ids": IDS[:, :tokens], "pos": torch.tensor([4], dtype=torch.int32)}
    got, expected = run_program(program, inputs), program.reference(inputs)
    assert got.keys() == expected.keys()
    assert torch.equal(got.pop("next"), expected.pop("next"))
    for name, tensor in got.items():
        torch.testing.assert_close(tensor, expected[name])


def test_rotary_tables_are_transformers():
    hf = make("llama", rope_parameters=LLAMA3, max_position_embeddings=256)
    cos, sin = hf.model.rotary_emb(torch.zeros(1), torch.arange(200)[None])
    mine = rotary_tables(dt.models.read_config(hf.config), 200)
    torch.testing.assert_close(mine[0], cos[0])
    torch.testing.assert_close(mine[1], sin[0])


def test_fused_matrices_are_cut_in_one_piece_a_rank():
    one, other = torch.arange(4)[:, None], torch.arange(10, 16)[:, None]
    assert by_rank([one, other], 2).flatten().tolist() == [0, 1, 10, 11, 12, 2, 3, 13, 14, 15]


def test_the_decode_program():
    model = on_ditron(TINY | {"model_type": "qwen3"}, tp=3)
    assert list(model.programs) == ["decode"]
    program = model.programs.source("decode")
    ops = [op for op in program.ir.walk() if isinstance(op, task.ComputeOp)]
    sums = [op.label() for op in ops if isinstance(op, task.AllReduceOp)]
    assert sums[:3] == ["embed.sum", "layers.0.o.sum", "layers.0.down.sum"]
    assert len(sums) == 5
    state = next(op for op in program.ir.walk() if isinstance(op, task.StateOp))
    assert task.spec_of(state.result).placements == (dt.Shard(2),)
    assert sum(isinstance(op, task.AttentionOp) for op in ops) == 2
    with pytest.raises(KeyError):
        model.programs.source("encode")


def test_a_config_takes_its_weights_later():
    config = TINY | {"model_type": "llama", "torch_dtype": "float16"}
    with on_ditron(config) as model:
        with pytest.raises(InputError, match="no weights yet"):
            model.logits(IDS)
        model.load(dt.models.random_checkpoint(model.config))
        assert model.logits(IDS).isfinite().all()
        before = model.generate(IDS, 3)
        model.load(dt.models.random_checkpoint(model.config, seed=1))
        assert not torch.equal(model.generate(IDS, 3), before)
        decode = model.programs["decode"]
        assert isinstance(decode, ReferenceRun)
        assert decode.program.ir.walk()


def test_a_folder(tmp_path: Path):
    hf = make("qwen3", torch.bfloat16, tie_word_embeddings=True)
    hf.save_pretrained(tmp_path)
    assert torch.equal(on_ditron(tmp_path).logits(IDS), on_ditron(hf).logits(IDS))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match="cannot read a model"):
        on_ditron(tmp_path)


def test_old_configs_have_theta_and_scaling_apart():
    scaling = {name: value for name, value in LLAMA3.items() if name != "rope_theta"}
    old = TINY | {"model_type": "llama", "rope_theta": 5e5, "rope_scaling": scaling}
    new = TINY | {"model_type": "llama", "rope_parameters": LLAMA3 | {"rope_theta": 5e5}}
    assert dt.models.read_config(old) == dt.models.read_config(new)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": "gpt2"}, "model_type is 'gpt2'; known are llama, qwen3"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; only 'silu' is supported"),
        ({"attention_bias": True}, "attention_bias is True; only False is supported"),
        ({"use_sliding_window": True}, "use_sliding_window is True"),
        ({"layer_types": ["sliding_attention"]}, "only full_attention is known"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is {'bits': 4}"),
        ({"hidden_size": None}, "the config lacks hidden_size"),
        ({"vocab_size": 9.5}, "vocab_size should be an integer of 1 or more, got 9.5"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps should be a number, got 'small'"),
        ({"head_dim": 7}, "head_dim is 7"),
        ({"num_attention_heads": 8}, "num_attention_heads is 8, which is no multiple of"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type is 'yarn'; only default and"),
        ({"rope_scaling": {"type": "llama3"}}, "the config lacks factor"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"torch_dtype": "float8_e4m3fn"}, "float8_e4m3fn, which ditron has not"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_configs_that_are_refused(fields: dict[str, object], message: str):
    with pytest.raises(ModelError) as caught:
        on_ditron(TINY | {"model_type": "qwen3"} | fields)
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("fields", "arguments", "message"),
    [
        ({}, {"tp": 4}, "num_key_value_heads is 6, which 4 ranks along 'tp' do not divide evenly"),
        ({}, {"tp": 4}, "this model takes 1, 2, 3, 6 of them: Mesh(tp=...)"),
        ({"intermediate_size": 35}, {}, "intermediate_size is 35, which 2 ranks"),
        ({"vocab_size": 97}, {}, "vocab_size is 97, which 2 ranks"),
        ({}, {"mesh": dt.Mesh(dp=4, tp=2)}, "batch is 2, which 4 groups of ranks beside 'tp'"),
        ({}, {"ctx": 0}, "1 tokens do not fit a cache of ctx=0 places"),
    ],
)
def test_ranks_that_do_not_divide_a_model(
    fields: dict[str, object], arguments: dict[str, Any], message: str
):
    with pytest.raises(ModelError) as caught:
        on_ditron(TINY | {"model_type": "qwen3"} | fields, **arguments)
    assert message in caught.value.message


def test_the_axis_of_several():
    config = TINY | {"model_type": "qwen3"}
    mesh = dt.Mesh(data=2, model=3)
    with pytest.raises(MeshError, match="has no axis 'tp'"):
        on_ditron(config, mesh=mesh)
    program = on_ditron(config, mesh=mesh, axis="model").programs.source("decode")
    weights = {op.tensor_name.data: op for op in program.ir.walk() if isinstance(op, task.WeightOp)}
    qkv = task.spec_of(weights["layers.0.qkv.weight"].result)
    assert qkv.placements == (dt.Replicate(), dt.Shard(0))


def test_checkpoints_that_are_refused():
    model = on_ditron(TINY | {"model_type": "qwen3"})
    good = dt.models.random_checkpoint(model.config)
    assert good.keys() == checkpoint_shapes(model.config).keys()
    name = "model.layers.1.self_attn.k_proj.weight"
    for bad, message in (
        ({k: v for k, v in good.items() if k != name}, f"the checkpoint lacks {name}"),
        (good | {"model.layers.0.self_attn.q_proj.bias": good[name]}, "has unknown model.layers.0"),
        (good | {name: good[name].T}, f"{name} should be (48, 48), got"),
        ({}, "and 22 more"),
    ):
        if message.endswith("got"):
            bad[name] = torch.zeros(48, 3)
        with pytest.raises(ModelError) as caught:
            model.load(bad)
        assert message in caught.value.message


@pytest.mark.parametrize(
    ("ids", "new", "message"),
    [
        (torch.zeros(1, 3).long(), 1, "ids are integers [batch=2, seq], got (1, 3) of torch.int64"),
        (torch.zeros(2, 3), 1, "got (2, 3) of torch.float32"),
        (IDS, 37, "a cache of ctx=40 places has no room for 5 tokens and 36 more"),
        (IDS[:, :0], 1, "has no room for 0 tokens"),
        (IDS, 0, "has no room for 5 tokens and -1 more"),
        (IDS + 1, 1, "ids are 0 to 95, got"),
    ],
    ids=str,
)
def test_ids_that_are_refused(ids: torch.Tensor, new: int, message: str):
    model = on_ditron(TINY | {"model_type": "qwen3"})
    model.load(dt.models.random_checkpoint(model.config))
    with pytest.raises(InputError) as caught:
        model.generate(ids, new)
    assert message in caught.value.message
