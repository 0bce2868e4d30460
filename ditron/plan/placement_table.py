"""The one table of what operations make of placements; collectives are in `moves.py`.

The builder, the IR's verifiers and the pass `infer-placements` all use it. R is Replicate, S(d) is
Shard(d), P is Partial.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ditron.plan.placement import Partial, Placement, Replicate, Shard
from ditron.plan.placement_rules import Rule

_R, _P = Replicate(), Partial()
_LINEAR = frozenset({"add", "sub"})  # of all operands at once: sums of partial sums


def matmul_rule(a_ndim: int = 2, b_ndim: int = 2, *, transpose_b: bool = False) -> Rule:
    """For a [..., M, K] and b [..., K, N], or [..., N, K] if transposed.

    b has as many leading dimensions as a, or none: then it is the same for all of a's.
    """
    batch, own = a_ndim - 2, b_ndim - 2
    m, k = batch, batch + 1
    b_k, b_n = (own + 1, own) if transpose_b else (own, own + 1)
    table: dict[tuple[Placement, ...], Placement] = {
        (_R, _R): _R,
        (Shard(m), _R): Shard(m),
        (_R, Shard(b_n)): Shard(batch + 1),
        (Shard(k), Shard(b_k)): _P,
        (_P, _R): _P,
        (_R, _P): _P,
    }
    for dim in range(batch):
        table[Shard(dim), _R] = Shard(dim)
        if own:
            table[_R, Shard(dim)] = table[Shard(dim), Shard(dim)] = Shard(dim)
    last: dict[int, int | None] = {b_k: None, b_n: batch + 1}
    becomes = ((*range(batch + 1), None), (*range(own), last[own], last[own + 1]))
    return Rule("matmul", table.get, becomes)


def pointwise_rule(fn: str, shapes: Sequence[tuple[int, ...]]) -> Rule:
    """Equal placements or replicas beside one; partial sums only where the function is linear."""
    size = np.broadcast_shapes(*shapes)
    becomes = tuple(
        tuple(dim if shape[dim] == size[dim] else None for dim in range(len(shape)))
        for shape in shapes
    )

    def rule(operands: tuple[Placement, ...]) -> Placement | None:
        if any(
            isinstance(p, Shard) and dims[p.dim] is None
            for p, dims in zip(operands, becomes, strict=True)
        ):
            return None
        return _together(operands, linear=fn in _LINEAR, product=fn == "mul")

    return Rule(fn, rule, becomes)


def _together(
    operands: Sequence[Placement], *, linear: bool = False, product: bool = False
) -> Placement | None:
    """The placement of operands that meet element by element."""
    seen = set(operands)
    if _P in seen:
        scaled = product and list(operands).count(_P) == 1 and seen == {_P, _R}
        return _P if scaled or (linear and seen == {_P}) else None
    seen.discard(_R)
    return _R if not seen else seen.pop() if len(seen) == 1 else None


def cast_rule(op: str, ndim: int, *, keeps_sums: bool) -> Rule:
    """A cast changes no placement; between kinds of dtypes it is not linear, so not of a sum."""

    def rule(operands: tuple[Placement, ...]) -> Placement | None:
        (have,) = operands
        return have if keeps_sums or have != _P else None

    return Rule(op, rule, (tuple(range(ndim)),))


def rows_rule(op: str, ndim: int, dim: int, *, beside: int = 0) -> Rule:
    """A function of whole rows along `dim`: S of another dimension or R, `beside` operands R."""

    def rule(operands: tuple[Placement, ...]) -> Placement | None:
        have, *others = operands
        fits = have not in (Shard(dim), _P) and all(other == _R for other in others)
        return have if fits else None

    becomes = tuple(d if d != dim else None for d in range(ndim))
    return Rule(op, rule, (becomes, *[(None,)] * beside))


def aligned_rows_rule(op: str, shapes: Sequence[tuple[int, ...]], dim: int) -> Rule:
    """As pointwise, but rows along `dim` are whole."""
    pointwise = pointwise_rule(op, shapes)

    def rule(operands: tuple[Placement, ...]) -> Placement | None:
        return None if Shard(dim) in operands else pointwise.on_axis(operands)

    becomes = tuple((*dims[:dim], None, *dims[dim + 1 :]) for dims in pointwise.becomes)
    return Rule(op, rule, becomes)


def attention_rule(*, numbers: int = 0, parts: bool = False) -> Rule:
    """Of q, k, v, all alike: R, S(0) the batch, S(2) the heads; `numbers` of R beside them.

    That the parts of q's heads are those of k's and v's is for `spec_layers.attention` to check.
    In `parts` by ranges of places dimension 1 of the result is those, not tokens.
    """

    def rule(operands: tuple[Placement, ...]) -> Placement | None:
        q, k, v, *others = operands
        fits = q in (_R, Shard(0), Shard(2)) and q == k == v
        return q if fits and all(other == _R for other in others) else None

    keys = (0, None, None, None)
    queries = (0, None if parts else 1, 2, None)
    return Rule("attention", rule, (queries, keys, keys, *[(None,)] * numbers))


def embedding_rule(ndim: int) -> Rule:
    """Of ids with `ndim` dimensions: (S(d), R) -> S(d), (R, S(1)) -> S(ndim), (R, S(0)) -> P.

    A rank that holds some rows of the table makes those rows of the result, zeros for the others.
    """
    table: dict[tuple[Placement, ...], Placement] = {
        (_R, _R): _R,
        (_R, Shard(1)): Shard(ndim),
        (_R, Shard(0)): _P,
    }
    for dim in range(ndim):
        table[Shard(dim), _R] = Shard(dim)
    return Rule("embedding", table.get, (tuple(range(ndim)), (None, ndim)))


def slice_rule(ndim: int, dim: int, *, numbers: int = 0) -> Rule:
    """A part of `dim`, which is whole, from where `numbers` of R say: any other placement stays."""

    def rule(operands: tuple[Placement, ...]) -> Placement | None:
        have, *others = operands
        return have if have != Shard(dim) and all(other == _R for other in others) else None

    becomes = tuple(d if d != dim else None for d in range(ndim))
    return Rule("slice", rule, (becomes, *[(None,)] * numbers))


def update_rule(ndim: int, dim: int, *, numbers: int = 0) -> Rule:
    """The state stays as it lies; the value lies alike, or is R, and is R where `dim` is cut."""

    def rule(operands: tuple[Placement, ...]) -> Placement | None:
        state, value, *others = operands
        if state == _P or value in (_P, Shard(dim)) or any(other != _R for other in others):
            return None
        return state if value in (state, _R) else None

    written = tuple(d if d != dim else None for d in range(ndim))
    becomes = (tuple(range(ndim)), written, *[(None,)] * numbers)
    return Rule("update", rule, becomes, fixed=(0,))


def transpose_rule(ndim: int, first: int, second: int) -> Rule:
    """Any placement; shards change places with the dimensions."""
    becomes = list(range(ndim))
    becomes[first], becomes[second] = second, first

    def rule(operands: tuple[Placement, ...]) -> Placement | None:
        (have,) = operands
        return Shard(becomes[have.dim]) if isinstance(have, Shard) else have

    return Rule("transpose", rule, (tuple(becomes),))


def concat_rule(count: int, ndim: int, dim: int) -> Rule:
    """Equal placements, with `dim` whole, or replicas beside one; P only of P."""

    def rule(operands: tuple[Placement, ...]) -> Placement | None:
        return None if Shard(dim) in operands else _together(operands, linear=True)

    becomes = tuple(d if d != dim else None for d in range(ndim))
    return Rule("concat", rule, (becomes,) * count)
