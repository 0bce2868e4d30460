"""What the layers of a transformer make of their operands: norms, softmax, rope, embeddings."""

from __future__ import annotations

import math
from dataclasses import replace

from ditron.errors import DTypeError, ProgramError, ShapeError
from ditron.plan.dtypes import Kind
from ditron.plan.placement import Scope
from ditron.plan.placement_rules import apply_rule
from ditron.plan.placement_table import embedding_rule, rope_rule, rows_rule
from ditron.plan.spec import TensorSpec, check_dtypes, show_shape


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
    rule = rope_rule([x.shape, cos.shape, sin.shape])
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
