"""Layers of transformers. All are computed in float32 and rounded once.

S is Shard, R Replicate, P Partial.
"""

from __future__ import annotations

from ditron.builder.arguments import as_dim, as_number, at_user_line
from ditron.builder.value import Value, admit, emit
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
