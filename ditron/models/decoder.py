"""A decoder of Llama's kind as a task program: one step of some tokens against a cache.

B is the batch, T the step's tokens, h the hidden width, H and G query and key heads of width D, I
the MLP's width, V the vocabulary, n the ranks along the tensor-parallel axis. Heads, the MLP's
columns and the vocabulary are cut over it, the batch over other axes, and what lies between the
layers is whole.

Weights are Hugging Face's `[out, in]` matrices, fused so that each rank's part is in one piece:
`qkv` has rank by rank its heads of q, k and v, `gate_up` its rows of gate and of up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ditron.builder.collectives import redistribute
from ditron.builder.layers import amax, argmax, attention, embedding, rms_norm, rope
from ditron.builder.task import Program
from ditron.builder.value import Value, matmul, silu
from ditron.builder.views import reshape, slice, split, update  # noqa: A004 - the builder's name
from ditron.errors import ModelError
from ditron.models.config import Config, check_ranks
from ditron.plan.dtypes import DType, f32, i32, i64
from ditron.plan.placement import Mesh, Placements, Replicate, Shard


@dataclass(frozen=True)
class Shape:
    """How large a step is.

    Attributes:
        batch: sequences.
        tokens: of each sequence in a step.
        ctx: places of the cache.
        dtype: of weights, cache and activations.
    """

    batch: int
    tokens: int
    ctx: int
    dtype: DType


def tensor_axis(mesh: Mesh, axis: str | None = None) -> str:
    """The mesh axis that heads are cut over: the one named, else the only one, else `tp`.

    Raises:
        MeshError: the mesh has no such axis.
    """
    axis = axis or (mesh.axes[0] if len(mesh.axes) == 1 else "tp")
    mesh.index(axis)
    return axis


def decoder(
    config: Config,
    mesh: Mesh,
    shape: Shape,
    outputs: Sequence[str] = ("next",),
    axis: str | None = None,
) -> Program:
    """The program of a step: inputs `ids` [B, T] and `pos`, the place of their first token.

    Args:
        config: the model.
        mesh: its ranks.
        shape: sizes of the step.
        outputs: `next` [B, 1], the likeliest token after the last; `logits` [B, T, V].
        axis: the mesh axis of tensor parallelism, where the mesh has several and none called tp.

    Raises:
        ModelError: ranks that do not divide the model, or tokens that the cache has no place for.
    """
    axis = tensor_axis(mesh, axis)
    check_ranks(config, mesh, axis, shape.batch)
    if not 0 < shape.tokens <= shape.ctx:
        raise ModelError(f"{shape.tokens} tokens do not fit a cache of ctx={shape.ctx} places")
    with Program(f"{config.family}_{shape.tokens}", mesh) as p:
        _Decoder(p, config, shape, axis).build(outputs)
    return p


class _Decoder:
    """Writes the ops of one program."""

    def __init__(self, p: Program, config: Config, shape: Shape, axis: str) -> None:
        self.p, self.config, self.shape, self.axis = p, config, shape, axis
        self.ranks = p.mesh.size(axis)
        self.rows = shape.batch * shape.tokens

    def build(self, outputs: Sequence[str]) -> None:
        config, (batch, tokens) = self.config, (self.shape.batch, self.shape.tokens)
        ids = self.p.input("ids", (batch, tokens), i64, self._placed(batch=True))
        self.pos = self.p.scalar("pos", i32, max=self.shape.ctx - tokens)
        table = self._weight("embed", (config.vocab, config.hidden), cut=True)
        self.cos, self.sin = self._angles("cos"), self._angles("sin")
        x = self._whole(embedding(ids, table, name="embed"), "embed.sum")
        x = reshape(x, (self.rows, config.hidden))
        for i in range(config.layers):
            x = self._layer(f"layers.{i}", x)
        every = "logits" in outputs
        logits = self._head(x if every else self._last(x), table)
        if every:
            self.p.output("logits", reshape(logits, (batch, tokens, config.vocab)))
        if "next" in outputs:
            self.p.output("next", self._greedy(self._last(logits) if every else logits))

    def _last(self, x: Value) -> Value:
        """Each sequence's last row: [B T, ...] -> [B, ...]."""
        shape, width = self.shape, x.shape[1]
        if shape.tokens == 1:
            return x
        by_token = reshape(x, (shape.batch, shape.tokens, width))
        return reshape(slice(by_token, 1, shape.tokens - 1, 1), (shape.batch, width))

    def _layer(self, at: str, x: Value) -> Value:
        x = x + self._attention(at, self._norm(f"{at}.norm_1", x))
        return x + self._mlp(at, self._norm(f"{at}.norm_2", x))

    def _attention(self, at: str, x: Value) -> Value:
        config, shape = self.config, self.shape
        own = (config.heads // self.ranks, *[config.kv_heads // self.ranks] * 2)
        width = config.head_dim
        qkv = self._linear(f"{at}.qkv", x, (self.ranks * sum(own) * width, config.hidden))
        parts = reshape(qkv, (shape.batch, shape.tokens, self.ranks, sum(own), width))
        q, k, v = (
            reshape(part, (shape.batch, shape.tokens, self.ranks * count, width))
            for part, count in zip(split(parts, own, dim=3), own, strict=True)
        )
        if config.qk_norm:
            q = self._norm(f"{at}.q_norm", q)
            k = self._norm(f"{at}.k_norm", k)
        q = rope(q, self.cos, self.sin, name=f"{at}.q_rope")
        k = rope(k, self.cos, self.sin, name=f"{at}.k_rope")
        keys, values = self._cached(f"{at}.k", k), self._cached(f"{at}.v", v)
        found = attention(q, keys, values, at=self.pos, name=f"{at}.attention")
        found = reshape(found, (self.rows, config.heads * width))
        return self._joined(f"{at}.o", found, (config.hidden, config.heads * width))

    def _mlp(self, at: str, x: Value) -> Value:
        config = self.config
        both = self._linear(f"{at}.gate_up", x, (2 * config.inner, config.hidden))
        parts = reshape(both, (self.rows, self.ranks, 2, config.inner // self.ranks))
        gate, up = (reshape(part, (self.rows, config.inner)) for part in split(parts, 1, dim=2))
        inner = silu(gate, name=f"{at}.silu") * up
        return self._joined(f"{at}.down", inner, (config.hidden, config.inner))

    def _cached(self, name: str, value: Value) -> Value:
        """The cache [B, C, G, D] with this step's places written."""
        shape, config = self.shape, self.config
        size = (shape.batch, shape.ctx, config.kv_heads, config.head_dim)
        state = self.p.state(name, size, shape.dtype, self._placed(2, batch=True))
        return update(state, value, at=self.pos, dim=1, name=f"{name}.write")

    def _head(self, x: Value, table: Value) -> Value:
        """Logits [rows, V], cut by vocabulary."""
        x = self._norm("norm", x)
        size = (self.config.vocab, self.config.hidden)
        matrix = table if self.config.tied else self._weight("head", size, cut=True)
        return matmul(x, matrix, transpose_b=True, name="head")

    def _greedy(self, logits: Value) -> Value:
        """The likeliest token [B, 1]: each rank finds that of its part, then the parts' best."""
        vocab, ranks = self.config.vocab, self.ranks
        parts = reshape(logits, (self.shape.batch, ranks, vocab // ranks))
        labels = self.p.weight("tokens", (1, ranks, vocab // ranks), i64, self._placed(1))
        best = self._whole(amax(parts, name="best"), "best.all")
        token = self._whole(argmax(parts, labels, name="token"), "token.all")
        return reshape(argmax(best, token, dim=1, name="next"), (self.shape.batch, 1))

    def _angles(self, name: str) -> Value:
        """This step's rows of a table of cos or sin, [1, T, 1, D]."""
        size = (self.shape.ctx, self.config.head_dim)
        table = self.p.weight(name, size, f32, self._placed())
        rows = slice(table, 0, self.pos, self.shape.tokens, name=f"{name}.rows")
        return reshape(rows, (1, self.shape.tokens, 1, self.config.head_dim))

    def _norm(self, name: str, x: Value) -> Value:
        gain = self._weight(name, x.shape[-1:])
        return rms_norm(x, gain, self.config.eps, name=name)

    def _linear(self, name: str, x: Value, size: tuple[int, int]) -> Value:
        """Columns of the result cut over the ranks; `size` is the weight's, [out, in]."""
        return matmul(x, self._weight(name, size, cut=True), transpose_b=True, name=name)

    def _joined(self, name: str, x: Value, size: tuple[int, int]) -> Value:
        """Columns of x are cut over the ranks, whose terms are added; `size` is [out, in]."""
        weight = self.p.weight(f"{name}.weight", size, self.shape.dtype, self._placed(1))
        return self._whole(matmul(x, weight, transpose_b=True, name=name), f"{name}.sum")

    def _weight(self, name: str, size: Sequence[int], *, cut: bool = False) -> Value:
        """A weight; its first dimension is cut over the ranks if so said."""
        placed = self._placed(0) if cut else self._placed()
        return self.p.weight(f"{name}.weight", size, self.shape.dtype, placed)

    def _placed(self, dim: int | None = None, *, batch: bool = False) -> Placements:
        """`dim` cut over the ranks along the axis; over other axes the batch, dim 0, if it has one.

        On an axis of one rank everything is whole.
        """
        cut = Replicate() if dim is None else Shard(dim)
        rest = Shard(0) if batch else Replicate()
        axes = zip(self.p.mesh.axes, self.p.mesh.sizes, strict=True)
        wanted = ((cut if axis == self.axis else rest, size) for axis, size in axes)
        return tuple(place if size > 1 else Replicate() for place, size in wanted)

    def _whole(self, x: Value, name: str) -> Value:
        """The same, whole along the axis: terms are added, parts are joined."""
        here = self.p.mesh.index(self.axis)
        goal = tuple(Replicate() if i == here else p for i, p in enumerate(x.placements))
        return redistribute(x, goal, name=name)
