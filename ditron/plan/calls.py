"""What a call of a tile kernel makes of its operands.

A kernel makes its result tile by tile. Each dimension of an operand is either cut into tiles along
with a dimension of the result, or read whole by every tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ditron.errors import PlacementError, ShapeError
from ditron.plan.placement import Placement, Placements, Replicate, Scope, Shard, show
from ditron.plan.placement_rules import Rule, apply_rule, check_within_reach
from ditron.plan.spec import NOWHERE, TensorSpec, show_shape

Cuts = tuple[int | None, ...]
"""For each dimension of an operand the result's dimension that it is cut along; None: whole."""


def call_rule(name: str, cuts: Sequence[Cuts]) -> Rule:
    """Operands lie as the result does, where they are cut along with it, or are replicas."""

    def aligned(placement: Placement, cut: Cuts) -> Placement | None:
        if isinstance(placement, Shard):
            dim = cut[placement.dim]
            return None if dim is None else Shard(dim)
        return placement if placement == Replicate() else None

    def rule(operands: tuple[Placement, ...]) -> Placement | None:
        seen = {aligned(p, c) for p, c in zip(operands, cuts, strict=True)} - {Replicate()}
        return Replicate() if not seen else seen.pop() if len(seen) == 1 else None

    return Rule(f"call of {name}", rule, tuple(cuts))


def call(
    name: str,
    operands: Sequence[TensorSpec],
    result: TensorSpec,
    cuts: Sequence[Cuts],
    scope: Scope = NOWHERE,
) -> TensorSpec:
    """The result of a call that should be like `result`, placed as the operands make it.

    Where all operands are replicas, each rank may make its own shard of the result.

    Raises:
        ShapeError: a dimension is cut along with one of another size.
        PlacementError: no rule fits the operands, or they make another placement.
    """
    scope = scope.called(*(f"operand {i}" for i in range(len(operands))))
    for operand, cut, called in zip(operands, cuts, scope.names, strict=True):
        _check_shape(name, operand, result, cut, called)
    if not all(operand.placements for operand in operands):
        return replace(result, placements=())
    made: Placements = (Replicate(),) * len(result.placements)
    placements = [operand.placements for operand in operands]
    rule = call_rule(name, cuts)
    if operands:
        made = apply_rule(rule, placements, scope)
    if not result.placements:
        return replace(result, placements=made)
    given = zip(made, result.placements, strict=True)
    if all(m == r or (m == Replicate() and isinstance(r, Shard)) for m, r in given):
        check_within_reach(rule, placements, result.placements, scope)
        return result
    message = (
        f"call of {name} makes {show(made)}, but out is {show(result.placements)}: give an out"
        f" that lies as the operands do"
    )
    raise PlacementError(message)


def _check_shape(
    name: str, operand: TensorSpec, result: TensorSpec, cut: Cuts, called: str
) -> None:
    if len(cut) != len(operand.shape) or any(d is not None and d >= len(result.shape) for d in cut):
        message = f"call of {name}: {called} {show_shape(operand.shape)} cannot be cut as {cut}"
        raise ShapeError(message)
    for dim, along in enumerate(cut):
        if along is not None and operand.shape[dim] != result.shape[along]:
            message = (
                f"call of {name}: {called}'s dim {dim} is cut along with the result's dim {along},"
                f" but they are {operand.shape[dim]} and {result.shape[along]} long"
            )
            raise ShapeError(message)
