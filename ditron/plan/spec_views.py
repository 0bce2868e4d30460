"""What ops that rearrange elements make of tensors. None of them sends anything to another rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ditron.errors import ShapeError
from ditron.plan.placement import Scope
from ditron.plan.placement_rules import apply_rule
from ditron.plan.placement_table import concat_rule, slice_rule, transpose_rule, update_rule
from ditron.plan.spec import TensorSpec, check_dtypes, show_shape


@dataclass(frozen=True)
class Start:
    """Where a slice begins: at `offset`, plus a run-time number of `most` at most, if there is one.

    `number` is that number's spec.
    """

    offset: int
    number: TensorSpec | None = None
    most: int = 0

    @property
    def specs(self) -> list[TensorSpec]:
        """The number's spec, where there is a number."""
        return [] if self.number is None else [self.number]


def slice(x: TensorSpec, dim: int, start: Start, size: int, scope: Scope) -> TensorSpec:  # noqa: A001
    """`size` elements of `dim` from `start` on; `dim` must be whole."""
    scope = scope.called("x", "start")
    what = f"slice of {scope.names[0]} {show_shape(x.shape)}"
    _check_dims(what, x, dim)
    _check_range(what, x.shape[dim], dim, start, size)
    rule = slice_rule(len(x.shape), dim, numbers=len(start.specs))
    placements = apply_rule(rule, [s.placements for s in (x, *start.specs)], scope)
    return replace(x, shape=_with_size(x.shape, dim, size), placements=placements)


def update(
    state: TensorSpec, value: TensorSpec, dim: int, start: Start, scope: Scope
) -> TensorSpec:
    """The state with `value` written over its `dim` from `start` on."""
    scope = scope.called("state", "value", "at")
    one, other = scope.names[:2]
    what = f"update of {one} {show_shape(state.shape)} with {other} {show_shape(value.shape)}"
    _check_dims(what, state, dim)
    same = len(value.shape) == len(state.shape) and (
        _with_size(value.shape, dim, 0) == _with_size(state.shape, dim, 0)
    )
    if not same:
        message = f"{what}: all sizes but that of dim {dim} must agree"
        raise ShapeError(message)
    check_dtypes("update", [state, value], scope.first(2))
    _check_range(what, state.shape[dim], dim, start, value.shape[dim])
    rule = update_rule(len(state.shape), dim, numbers=len(start.specs))
    operands = [s.placements for s in (state, value, *start.specs)]
    return replace(state, placements=apply_rule(rule, operands, scope))


def transpose(x: TensorSpec, first: int, second: int, scope: Scope) -> TensorSpec:
    """Two dimensions change places."""
    scope = scope.called("x")
    for dim in (first, second):
        _check_dims(f"transpose of {scope.names[0]} {show_shape(x.shape)}", x, dim)
    rule = transpose_rule(len(x.shape), first, second)
    shape = list(x.shape)
    shape[first], shape[second] = shape[second], shape[first]
    return replace(x, shape=tuple(shape), placements=apply_rule(rule, [x.placements], scope))


def concat(values: Sequence[TensorSpec], dim: int, scope: Scope) -> TensorSpec:
    """The values one after the other along `dim`, which must be whole."""
    scope = scope.called(*(f"value {i}" for i in range(len(values))))
    if not values:
        message = "concat takes at least one value"
        raise ShapeError(message)
    came = " and ".join(
        f"{n} {show_shape(v.shape)}" for n, v in zip(scope.names, values, strict=True)
    )
    what = f"concat of {came}"
    _check_dims(what, values[0], dim)
    ndims = {len(v.shape) for v in values}
    if len(ndims) > 1 or len({_with_size(v.shape, dim, 0) for v in values}) > 1:
        message = f"{what}: all sizes but that of dim {dim} must agree"
        raise ShapeError(message)
    check_dtypes("concat", values, scope)
    rule = concat_rule(len(values), len(values[0].shape), dim)
    placements = apply_rule(rule, [v.placements for v in values], scope)
    size = sum(v.shape[dim] for v in values)
    shape = _with_size(values[0].shape, dim, size)
    return replace(values[0], shape=shape, placements=placements)


def _with_size(shape: tuple[int, ...], dim: int, size: int) -> tuple[int, ...]:
    return (*shape[:dim], size, *shape[dim + 1 :])


def _check_dims(what: str, x: TensorSpec, dim: int) -> None:
    if not 0 <= dim < len(x.shape):
        message = f"{what}: there is no dim {dim}"
        raise ShapeError(message)


def _check_range(what: str, extent: int, dim: int, start: Start, size: int) -> None:
    last = start.offset + start.most
    if start.offset < 0 or size < 0 or last + size > extent:
        at = str(start.offset) if start.number is None else f"up to {last}"
        message = (
            f"{what}: {size} elements at {at} do not lie within its dim {dim} of {extent} elements"
        )
        raise ShapeError(message)
