"""What the layers of a transformer make of their operands: norms, rope, attention, argmax."""

from __future__ import annotations

import math
from dataclasses import replace

from ditron.errors import DTypeError, PlacementError, ProgramError, ShapeError
from ditron.plan.dtypes import Kind
from ditron.plan.placement import Placements, Scope, cutting_axes, show
from ditron.plan.placement_rules import apply_rule
from ditron.plan.placement_table import (
    aligned_rows_rule,
    attention_rule,
    embedding_rule,
    rows_rule,
)
from ditron.plan.reshape import same_parts
from ditron.plan.spec import TensorSpec, check_dtypes, show_shape
from ditron.plan.spec_views import Start


def rms_norm(x: TensorSpec, gain: TensorSpec | None, eps: float, scope: Scope) -> TensorSpec:
    """Of x [..., N] and gain [N] -> [..., N], normalised along N, which must be whole."""
    scope = scope.called("x", "gain")
    if not (math.isfinite(eps) and eps >= 0):
        message = f"rms_norm's eps is a small number, 0 or more, got {eps}"
        raise ProgramError(message)
    operands = [x] if gain is None else [x, gain]
    if gain is not None and gain.shape != x.shape[-1:]:
        message = (
            f"rms_norm of {scope.names[0]} {show_shape(x.shape)} takes a gain of shape"
            f" ({x.shape[-1]},), got {scope.names[1]} {show_shape(gain.shape)}"
        )
        raise ShapeError(message)
    check_dtypes("rms_norm", operands, scope, (Kind.FLOAT,))
    ndim = len(x.shape)
    rule = rows_rule("rms_norm", ndim, ndim - 1, beside=len(operands) - 1)
    placements = apply_rule(rule, [o.placements for o in operands], scope)
    return replace(x, placements=placements)


def softmax(x: TensorSpec, dim: int, scope: Scope) -> TensorSpec:
    """The same shape, normalised along `dim`, which must be whole."""
    scope = scope.called("x")
    if not 0 <= dim < len(x.shape):
        message = f"softmax along dim {dim}, but {scope.names[0]} is {show_shape(x.shape)}"
        raise ShapeError(message)
    check_dtypes("softmax", [x], scope, (Kind.FLOAT,))
    rule = rows_rule("softmax", len(x.shape), dim)
    return replace(x, placements=apply_rule(rule, [x.placements], scope))


def rope(x: TensorSpec, cos: TensorSpec, sin: TensorSpec, scope: Scope) -> TensorSpec:
    """Of x [..., D], D even; cos and sin like x, with size 1 where they are the same for all."""
    scope = scope.called("x", "cos", "sin")
    _check_tables(x, cos, sin, scope)
    check_dtypes("rope", [x], scope, (Kind.FLOAT,))
    if cos.dtype != sin.dtype or cos.dtype not in (x.dtype, "f32"):
        came = " and ".join(
            f"{n} {o.dtype}" for n, o in zip(scope.names, (x, cos, sin), strict=True)
        )
        message = f"rope of {came}: cos and sin are both f32, or both of {scope.names[0]}'s dtype"
        raise DTypeError(message)
    rule = aligned_rows_rule("rope", [x.shape, cos.shape, sin.shape], len(x.shape) - 1)
    placements = apply_rule(rule, [x.placements, cos.placements, sin.placements], scope)
    return replace(x, placements=placements)


def _check_tables(x: TensorSpec, cos: TensorSpec, sin: TensorSpec, scope: Scope) -> None:
    what = f"rope of {scope.names[0]} {show_shape(x.shape)}"
    if x.shape[-1] % 2:
        message = f"{what}: its last dimension is turned in halves, so it must be even"
        raise ShapeError(message)
    for name, table in zip(scope.names[1:], (cos, sin), strict=True):
        like = len(table.shape) == len(x.shape) and table.shape[-1] == x.shape[-1]
        if not like or any(t not in (1, s) for t, s in zip(table.shape, x.shape, strict=True)):
            message = (
                f"{what} and {name} {show_shape(table.shape)}: expected {name} with the same last"
                f" dimension, and with sizes 1 or the same before it"
            )
            raise ShapeError(message)


def embedding(ids: TensorSpec, table: TensorSpec, scope: Scope) -> TensorSpec:
    """Of ids [...] and table [V, D] -> [..., D], of the table's dtype."""
    scope = scope.called("ids", "table")
    if len(table.shape) != 2:
        message = (
            f"embedding takes a table of shape (V, D), got {scope.names[1]}"
            f" {show_shape(table.shape)}"
        )
        raise ShapeError(message)
    if ids.kind is not Kind.INT:
        message = f"embedding takes ids of an int dtype, got {scope.names[0]} {ids.dtype}"
        raise DTypeError(message)
    if table.kind is Kind.BOOL:
        message = f"embedding takes a table of numbers, got {scope.names[1]} {table.dtype}"
        raise DTypeError(message)
    rule = embedding_rule(len(ids.shape))
    placements = apply_rule(rule, [ids.placements, table.placements], scope)
    return TensorSpec((*ids.shape, table.shape[1]), table.dtype, placements)


def attention(
    q: TensorSpec,
    k: TensorSpec,
    v: TensorSpec,
    start: Start,
    scale: float,
    scope: Scope,
) -> TensorSpec:
    """Of q [B, T, H, D], k and v [B, C, G, D] -> [B, T, H, D]; G divides H."""
    scope = scope.called("q", "k", "v", "at")
    what = _check_heads(q, k, v, scope)
    check_dtypes("attention", [q, k, v], scope.first(3), (Kind.FLOAT,))
    if not (math.isfinite(scale) and scale > 0):
        message = f"attention's scale is a number above 0, got {scale}"
        raise ProgramError(message)
    (tokens, heads), (places, groups) = q.shape[1:3], k.shape[1:3]
    last = start.offset + start.most
    if start.offset < 0 or last + tokens > places:
        at = str(start.offset) if start.number is None else f"up to {last}"
        message = f"{what}: {tokens} tokens at {at} do not lie within {places} places"
        raise ShapeError(message)
    rule = attention_rule(numbers=len(start.specs))
    placements = apply_rule(rule, [s.placements for s in (q, k, v, *start.specs)], scope)
    axes = cutting_axes(placements, 2)
    if axes and not same_parts((heads, 1), (groups, heads // groups), axes, scope):
        message = (
            f"{what} that are {show(placements)}: the parts of {heads} heads are not those of"
            f" {groups} key heads; use fewer ranks, or all_gather(dim=2) all three first"
        )
        raise PlacementError(message)
    return replace(q, placements=placements)


def attention_parts(
    q: TensorSpec,
    k: TensorSpec,
    v: TensorSpec,
    start: Start,
    scale: float,
    places: int,
    scope: Scope,
) -> TensorSpec:
    """Of q [B, 1, H, D] as in `attention` -> [B, ranges of C, H, D + 2] in f32."""
    whole = attention(q, k, v, start, scale, scope)
    batch, tokens, heads, width = q.shape
    if tokens != 1 or not 0 < places <= k.shape[1]:
        message = (
            f"attention_parts of {tokens} tokens a sequence by {places} of {k.shape[1]} places:"
            f" expected one token, and ranges of 1 to {k.shape[1]} places"
        )
        raise ShapeError(message)
    ranges = -(-k.shape[1] // places)
    return TensorSpec((batch, ranges, heads, width + 2), "f32", whole.placements)


def attention_join(
    sums: TensorSpec, largest: TensorSpec, weights: TensorSpec, dtype: str, scope: Scope
) -> TensorSpec:
    """Of sums [B, ranges, H, D], largest and weights [B, ranges, H, 1] -> [B, 1, H, D]."""
    scope = scope.called("sums", "largest", "weights")
    operands = (sums, largest, weights)
    check_dtypes("attention_join", operands, scope, (Kind.FLOAT,))
    one = (*sums.shape[:3], 1)
    if len(sums.shape) != 4 or not largest.shape == weights.shape == one or 0 in sums.shape[1:2]:
        came = ", ".join(show_shape(o.shape) for o in operands)
        message = (
            f"attention_join of {came}: expected [B, ranges, H, D], and twice [B, ranges, H, 1]"
        )
        raise ShapeError(message)
    rule = aligned_rows_rule("attention_join", [o.shape for o in operands], 1)
    placements = apply_rule(rule, [o.placements for o in operands], scope)
    return TensorSpec((sums.shape[0], 1, *sums.shape[2:]), dtype, placements)


def _check_heads(q: TensorSpec, k: TensorSpec, v: TensorSpec, scope: Scope) -> str:
    named = zip(scope.names, (q, k, v), strict=False)
    what = f"attention of {', '.join(f'{n} {show_shape(s.shape)}' for n, s in named)}"
    fits = len(q.shape) == len(k.shape) == 4 and k.shape == v.shape
    if not fits or (q.shape[0], q.shape[3]) != (k.shape[0], k.shape[3]):
        message = f"{what}: expected [B, T, H, D], [B, C, G, D] and [B, C, G, D]"
        raise ShapeError(message)
    heads, groups = q.shape[2], k.shape[2]
    if not groups or heads % groups:
        message = f"{what}: {groups} key heads do not divide {heads} query heads"
        raise ShapeError(message)
    return what


def amax(x: TensorSpec, dim: int, scope: Scope) -> TensorSpec:
    """The largest along `dim`, which must be whole and becomes 1."""
    scope = scope.called("x")
    _check_reduced("amax", x, dim, scope)
    rule = rows_rule("amax", len(x.shape), dim)
    return _reduced(x, dim, x.dtype, apply_rule(rule, [x.placements], scope))


def argmax(x: TensorSpec, labels: TensorSpec | None, dim: int, scope: Scope) -> TensorSpec:
    """Where the largest along `dim` stands, or its label; labels are like x, or 1 beside `dim`."""
    scope = scope.called("x", "labels")
    _check_reduced("argmax", x, dim, scope)
    if labels is None:
        rule = aligned_rows_rule("argmax", [x.shape], dim)
        return _reduced(x, dim, "i64", apply_rule(rule, [x.placements], scope))
    like = len(labels.shape) == len(x.shape) and labels.shape[dim] == x.shape[dim]
    if not like or any(mine not in (1, s) for mine, s in zip(labels.shape, x.shape, strict=True)):
        message = (
            f"argmax of {scope.names[0]} {show_shape(x.shape)} along dim {dim}, and"
            f" {scope.names[1]} {show_shape(labels.shape)}: expected the same sizes, or 1 in other"
            f" dimensions than {dim}"
        )
        raise ShapeError(message)
    if labels.kind is not Kind.INT:
        message = f"argmax takes labels of an int dtype, got {scope.names[1]} {labels.dtype}"
        raise DTypeError(message)
    rule = aligned_rows_rule("argmax", [x.shape, labels.shape], dim)
    placements = apply_rule(rule, [x.placements, labels.placements], scope)
    return _reduced(x, dim, labels.dtype, placements)


def _check_reduced(op: str, x: TensorSpec, dim: int, scope: Scope) -> None:
    what = f"{op} of {scope.names[0]} {show_shape(x.shape)} along dim {dim}"
    if not 0 <= dim < len(x.shape):
        message = f"{what}: there is no such dim"
        raise ShapeError(message)
    if x.shape[dim] == 0:
        message = f"{what}: there is none of no elements"
        raise ShapeError(message)
    check_dtypes(op, [x], scope.first(1), (Kind.FLOAT, Kind.INT))


def _reduced(x: TensorSpec, dim: int, dtype: str, placements: Placements) -> TensorSpec:
    return TensorSpec((*x.shape[:dim], 1, *x.shape[dim + 1 :]), dtype, placements)
