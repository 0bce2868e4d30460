"""Weights: from Hugging Face's names and matrices to those of `ditron.models.decoder`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import safetensors
import torch

from ditron.errors import ModelError
from ditron.models.config import Config

Tensors = dict[str, torch.Tensor]


def checkpoint_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """The tensors of a checkpoint by Hugging Face's names."""
    q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    hidden, inner = config.hidden, config.inner
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocab, hidden)}
    for i in range(config.layers):
        at = f"model.layers.{i}"
        shapes |= {
            f"{at}.input_layernorm.weight": (hidden,),
            f"{at}.self_attn.q_proj.weight": (q, hidden),
            f"{at}.self_attn.k_proj.weight": (kv, hidden),
            f"{at}.self_attn.v_proj.weight": (kv, hidden),
            f"{at}.self_attn.o_proj.weight": (hidden, q),
            f"{at}.post_attention_layernorm.weight": (hidden,),
            f"{at}.mlp.gate_proj.weight": (inner, hidden),
            f"{at}.mlp.up_proj.weight": (inner, hidden),
            f"{at}.mlp.down_proj.weight": (hidden, inner),
        }
        if config.qk_norm:
            shapes[f"{at}.self_attn.q_norm.weight"] = (config.head_dim,)
            shapes[f"{at}.self_attn.k_norm.weight"] = (config.head_dim,)
    shapes["model.norm.weight"] = (hidden,)
    if not config.tied:
        shapes["lm_head.weight"] = (config.vocab, hidden)
    return shapes


def check_checkpoint(config: Config, checkpoint: Mapping[str, torch.Tensor]) -> None:
    """A checkpoint must be exactly the config's model.

    Raises:
        ModelError: tensors are missing, misshapen or unknown.
    """
    shapes = checkpoint_shapes(config)
    missing = [name for name in shapes if name not in checkpoint]
    ignored = (
        {"lm_head.weight"} if config.tied else set[str]()
    )  # the embedding under its other name
    unknown = [name for name in checkpoint if name not in shapes and name not in ignored]
    for what, names in (("lacks", missing), ("has unknown", unknown)):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise ModelError(f"the checkpoint {what} {', '.join(names[:3])}{more}")
    for name, shape in shapes.items():
        if tuple(checkpoint[name].shape) != shape:
            raise ModelError(f"{name} should be {shape}, got {tuple(checkpoint[name].shape)}")


def fuse(
    config: Config, checkpoint: Mapping[str, torch.Tensor], ranks: int, ctx: int, dtype: torch.dtype
) -> Tensors:
    """The weights of the programs, with the tables of positions and of tokens.

    Raises:
        ModelError: a checkpoint of another model.
    """
    check_checkpoint(config, checkpoint)
    found = {
        f"{name}.weight": by_rank([checkpoint[f"{n}.weight"] for n in names], ranks).to(dtype)
        for name, names in _sources(config)
    }
    cos, sin = rotary_tables(config, ctx)
    tokens = torch.arange(config.vocab).reshape(1, ranks, -1)
    return {**found, "cos": cos, "sin": sin, "tokens": tokens}


def by_rank(matrices: list[torch.Tensor], ranks: int) -> torch.Tensor:
    """Matrices [out_i, in] as one [sum out_i, in]: rank by rank its rows of all of them."""
    if len(matrices) == 1:
        return matrices[0]
    parts = [m.reshape(ranks, -1, m.shape[1]) for m in matrices]
    return torch.cat(parts, 1).reshape(-1, matrices[0].shape[1])


def _sources(config: Config) -> Iterator[tuple[str, list[str]]]:
    """Weights by the programs' names, and what of the checkpoint they are made of."""
    yield "embed", ["model.embed_tokens"]
    yield "norm", ["model.norm"]
    if not config.tied:
        yield "head", ["lm_head"]
    for i in range(config.layers):
        to, at = f"layers.{i}", f"model.layers.{i}"
        yield f"{to}.norm_1", [f"{at}.input_layernorm"]
        yield f"{to}.norm_2", [f"{at}.post_attention_layernorm"]
        yield f"{to}.qkv", [f"{at}.self_attn.{part}_proj" for part in "qkv"]
        yield f"{to}.o", [f"{at}.self_attn.o_proj"]
        yield f"{to}.gate_up", [f"{at}.mlp.gate_proj", f"{at}.mlp.up_proj"]
        yield f"{to}.down", [f"{at}.mlp.down_proj"]
        if config.qk_norm:
            yield f"{to}.q_norm", [f"{at}.self_attn.q_norm"]
            yield f"{to}.k_norm", [f"{at}.self_attn.k_norm"]


def rotary_tables(config: Config, ctx: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The cos and sin of `ctx` positions, [ctx, D] in float32, the frequencies twice.

    Source: Su et al., "RoFormer" (2021); the stretching of Llama 3.1 as its reference code does it.
    """
    width = config.head_dim
    speed = 1.0 / config.theta ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
    if (scaling := config.scaling) is not None:
        turns = scaling.original_max_position_embeddings * speed / (2 * math.pi)
        span = scaling.high_freq_factor - scaling.low_freq_factor
        kept = ((turns - scaling.low_freq_factor) / span).clamp(0, 1)
        speed = speed * (kept + (1 - kept) / scaling.factor)
    angles = torch.arange(ctx, dtype=torch.float32)[:, None] * speed
    twice = torch.cat((angles, angles), -1)
    return twice.cos(), twice.sin()


def random_checkpoint(config: Config, seed: int = 0) -> Tensors:
    """A checkpoint of seeded normals, scaled by 1 / sqrt(in), in float32; norms are near 1."""
    generator = torch.Generator().manual_seed(seed)
    made: Tensors = {}
    for name, shape in checkpoint_shapes(config).items():
        values = torch.randn(shape, generator=generator)
        made[name] = 1 + values / 8 if len(shape) == 1 else values / math.sqrt(shape[-1])
    return made


def read_folder(folder: Path) -> tuple[dict[str, Any], Tensors | None]:
    """What `config.json` says in a folder of Hugging Face's, and the weights, if any lie there.

    Raises:
        ModelError: they cannot be read.
    """
    try:
        fields = json.loads((folder / "config.json").read_text())
        files = sorted(folder.glob("*.safetensors"))
        tensors = {name: tensor for file in files for name, tensor in _read(file)}
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise ModelError(f"cannot read a model from {folder}: {error}") from error
    return fields, tensors or None


def _read(file: Path) -> Iterator[tuple[str, torch.Tensor]]:
    with cast("Any", safetensors).safe_open(file, "pt") as opened:  # it has no types
        for name in opened.keys():  # noqa: SIM118 - it is no mapping
            yield name, opened.get_tensor(name)
