"""Layers of transformers. Those of floats are computed in float32 and rounded once.

S is Shard, R Replicate, P Partial.
"""

from __future__ import annotations

import math

from ditron.builder.arguments import as_dim, as_number, at_user_line
from ditron.builder.value import Value, admit, as_place, emit
from ditron.ir import task


@at_user_line()
def rms_norm(
    x: Value, gain: Value | None = None, eps: float = 1e-6, *, name: str | None = None
) -> Value:
    """`x / sqrt(mean(x * x) + eps) * gain` along the last dimension: x [..., N], gain [N].

    As Llama's and Qwen's norms, but rounded once, after the gain. Placements: x R or S of another
    dimension, gain R.
    """
    given = {} if gain is None else {"gain": gain}
    args = admit("rms_norm", name, x=x, **given)
    eps = as_number(eps, "rms_norm's eps")
    return emit(x, task.RmsNormOp(x.ssa, None if gain is None else gain.ssa, eps, **args))


@at_user_line()
def softmax(x: Value, dim: int = -1, *, name: str | None = None) -> Value:
    """`exp(x) / sum(exp(x))` along `dim`. Placements: R or S of another dimension."""
    args = admit("softmax", name, x=x)
    return emit(x, task.SoftmaxOp(x.ssa, as_dim(dim, len(x.shape), "softmax"), **args))


@at_user_line()
def rope(x: Value, cos: Value, sin: Value, *, name: str | None = None) -> Value:
    """Rotary positions as Llama and Qwen apply them: `x * cos + cat(-x2, x1) * sin`.

    x [..., D] is cut into halves x1, x2 along D. cos and sin, [..., D] too, hold the frequencies
    twice, one half after the other, and have size 1 where all share them: x [T, heads, D] goes
    with [T, 1, D]. They are of x's dtype or f32. Placements: as pointwise, but D whole.
    """
    args = admit("rope", name, x=x, cos=cos, sin=sin)
    return emit(x, task.RopeOp(x.ssa, cos.ssa, sin.ssa, **args))


@at_user_line()
def embedding(ids: Value, table: Value, *, name: str | None = None) -> Value:
    """Rows of `table` by `ids`: ids [...] of ints, table [V, D] -> [..., D].

    An id that is not in 0..V-1 makes a row of zeros. Placements of ids and table: (R, R) -> R;
    (S(d), R) -> S(d); (R, S(1)) -> S(D); (R, S(0)) -> P, as each rank has some rows of the table.
    """
    args = admit("embedding", name, ids=ids, table=table)
    return emit(ids, task.EmbeddingOp(ids.ssa, table.ssa, **args))


@at_user_line()
def attention(
    q: Value,
    k: Value,
    v: Value,
    *,
    at: int | Value | None = None,
    causal: bool = True,
    scale: float | None = None,
    name: str | None = None,
) -> Value:
    """`softmax(scale q k^T) v` by heads: q [B, T, H, D], k and v [B, C, G, D] -> [B, T, H, D].

    Token t of q stands at place `at + t` of the C places that k and v hold. It sees places up to
    its own if `causal`, else up to that of the last token. `at` is a number, a scalar of the
    program's declared with a max, or by default C - T, so that the last token stands at the end. G
    divides H: neighbouring query heads share a key head. `scale` is 1 / sqrt(D) by default.
    Placements of q, k, v: all R, all S(0), or all S(2) where ranks have the key heads of their
    query heads.
    """
    given = {"at": at} if isinstance(at, Value) else {}
    args = admit("attention", name, q=q, k=k, v=v, **given)
    if scale is None:
        scale = 1 / math.sqrt(max(q.shape[-1], 1))
    if at is None:
        at = k.shape[1] - q.shape[1] if len(k.shape) == len(q.shape) == 4 else 0
    offset, position = as_place(at, "attention's at")
    scale = as_number(scale, "attention's scale")
    operands = (q.ssa, k.ssa, v.ssa)
    op = task.AttentionOp(operands, offset, position, causal=causal, scale=scale, **args)
    return emit(q, op)


@at_user_line()
def amax(x: Value, dim: int = -1, *, name: str | None = None) -> Value:
    """The largest element along `dim`, whose size becomes 1. Placements: `dim` whole."""
    args = admit("amax", name, x=x)
    return emit(x, task.AmaxOp(x.ssa, as_dim(dim, len(x.shape), "amax"), **args))


@at_user_line()
def argmax(
    x: Value, labels: Value | None = None, dim: int = -1, *, name: str | None = None
) -> Value:
    """Where the first of the largest elements along `dim` stands, i64; `dim`'s size becomes 1.

    With `labels`, ints of x's shape or of size 1 in dimensions other than `dim`, it is the label
    there. So the argmax of parts joins to that of the whole:
    `argmax(amax(parts, 2), argmax(parts, labels, 2), 1)`. Placements: as pointwise, `dim` whole.
    """
    given = {} if labels is None else {"labels": labels}
    args = admit("argmax", name, x=x, **given)
    at = as_dim(dim, len(x.shape), "argmax")
    return emit(x, task.ArgmaxOp(x.ssa, None if labels is None else labels.ssa, at, **args))
