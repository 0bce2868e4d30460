"""What a model is, read from a Hugging Face config; what ditron cannot compute is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ditron.errors import ModelError
from ditron.plan.placement import Mesh

QK_NORM = {"qwen3": True, "llama": False}
"""Model types that are known, and whether they normalise the heads of q and k."""

_EXPECTED: dict[str, object] = {
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "use_sliding_window": False,
    "quantization_config": None,
}
"""Fields that may be there, with the only value that is known."""


@dataclass(frozen=True)
class Llama3Scaling:
    """How Llama 3.1 stretches rotary positions: long waves by `factor`, short ones not at all."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True)
class Config:
    """A decoder of Llama's kind.

    Attributes:
        family: Hugging Face's model type.
        layers: how many there are.
        hidden: width of the residual stream.
        heads: query heads.
        kv_heads: key and value heads.
        head_dim: width of a head.
        inner: width of the MLP.
        vocab: number of tokens.
        eps: of the norms.
        tied: whether the embedding is the head's matrix too.
        theta: base of the rotary positions' wave lengths.
        scaling: of these, if any.
        dtype: torch's name of the weights' dtype, where the config says it.
    """

    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocab: int
    eps: float
    tied: bool
    theta: float
    scaling: Llama3Scaling | None = None
    dtype: str | None = None

    @property
    def qk_norm(self) -> bool:
        """Whether the heads of q and k are normalised."""
        return QK_NORM[self.family]


def read_config(source: object) -> Config:
    """A config from Hugging Face's: an object with `to_dict()`, or what `config.json` holds.

    Raises:
        ModelError: an unknown architecture, or a field that is missing or not supported.
    """
    fields = _as_fields(source)
    family = fields.get("model_type")
    if family not in QK_NORM:
        raise ModelError(f"model_type is {family!r}; known are {', '.join(sorted(QK_NORM))}")
    for name, wanted in _EXPECTED.items():
        if fields.get(name, wanted) != wanted:
            raise ModelError(f"{name} is {fields[name]!r}; only {wanted!r} is supported")
    if any(kind != "full_attention" for kind in fields.get("layer_types") or ()):
        raise ModelError(f"layer_types is {fields['layer_types']!r}; only full_attention is known")
    hidden, heads = _size(fields, "hidden_size"), _size(fields, "num_attention_heads")
    kv_heads = _size(fields, "num_key_value_heads", heads)
    if heads % kv_heads:
        raise ModelError(
            f"num_attention_heads is {heads}, which is no multiple of num_key_value_heads,"
            f" {kv_heads}"
        )
    theta, scaling = _read_rope(fields)
    return Config(
        family=family,
        layers=_size(fields, "num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=_head_dim(fields, hidden, heads),
        inner=_size(fields, "intermediate_size"),
        vocab=_size(fields, "vocab_size"),
        eps=_number(fields, "rms_norm_eps", 1e-6),
        tied=bool(fields.get("tie_word_embeddings", False)),
        theta=theta,
        scaling=scaling,
        dtype=_dtype(fields),
    )


def check_ranks(config: Config, mesh: Mesh, axis: str, batch: int) -> None:
    """Every rank along `axis` gets as many heads, columns and tokens' rows; others share the batch.

    Raises:
        ModelError: they cannot; the message names the field and how many ranks would do.
    """
    ranks = mesh.size(axis)
    cut = {
        "num_key_value_heads": config.kv_heads,
        "num_attention_heads": config.heads,
        "intermediate_size": config.inner,
        "vocab_size": config.vocab,
    }
    common = math.gcd(*cut.values())
    fitting = ", ".join(str(n) for n in range(1, common + 1) if common % n == 0)
    for field, size in cut.items():
        if size % ranks:
            raise ModelError(
                f"{field} is {size}, which {ranks} ranks along {axis!r} do not divide evenly; this"
                f" model takes {fitting} of them: Mesh({axis}=...)"
            )
    groups = mesh.ranks // ranks
    if batch % groups:
        raise ModelError(
            f"batch is {batch}, which {groups} groups of ranks beside {axis!r} do not divide"
            f" evenly; use a multiple of {groups}"
        )


def _as_fields(source: object) -> Mapping[str, Any]:
    if isinstance(source, Mapping):
        return cast("Mapping[str, Any]", source)
    if callable(to_dict := getattr(source, "to_dict", None)):
        return cast("Mapping[str, Any]", to_dict())
    raise ModelError(f"a config is Hugging Face's, or a dict of its fields, got {source!r}")


def _size(fields: Mapping[str, Any], name: str, default: int | None = None) -> int:
    found = fields.get(name)
    found = default if found is None else found
    if found is None:
        raise ModelError(f"the config lacks {name}")
    if type(found) is not int or found < 1:
        raise ModelError(f"{name} should be an integer of 1 or more, got {found!r}")
    return found


def _number(fields: Mapping[str, Any], name: str, default: float | None = None) -> float:
    found = fields.get(name, default)
    if found is None:
        raise ModelError(f"the config lacks {name}")
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise ModelError(f"{name} should be a number, got {found!r}")
    return float(found)


def _head_dim(fields: Mapping[str, Any], hidden: int, heads: int) -> int:
    width = _size(fields, "head_dim", max(hidden // heads, 1))
    if width % 2:
        raise ModelError(f"head_dim is {width}; rotary positions turn it in halves: it is even")
    return width


def _dtype(fields: Mapping[str, Any]) -> str | None:
    found = fields.get("dtype") or fields.get("torch_dtype")
    return None if found is None else str(found).removeprefix("torch.")


def _read_rope(fields: Mapping[str, Any]) -> tuple[float, Llama3Scaling | None]:
    """Theta and scaling; new configs have both in one field, older ones in two."""
    nothing: Mapping[str, Any] = {}
    rope: Any = fields.get("rope_parameters") or fields.get("rope_scaling") or nothing
    theta = _number(rope, "rope_theta", fields.get("rope_theta", 10000.0))
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        raise ModelError("rope_parameters has a partial_rotary_factor; only whole heads are turned")
    match kind := rope.get("rope_type", rope.get("type", "default")):
        case "default":
            return theta, None
        case "llama3":
            return theta, Llama3Scaling(
                _number(rope, "factor"),
                _number(rope, "low_freq_factor"),
                _number(rope, "high_freq_factor"),
                _size(rope, "original_max_position_embeddings"),
            )
        case _:
            raise ModelError(f"rope_type is {kind!r}; only default and llama3 are supported")
