"""How rules of placements are applied, and mended where none fits.

A rule holds for each mesh axis by itself. Where an operand is whole on an axis that cuts the
result, each rank reads its part of it; so the axes that do cut the operand must be the outermost of
those that cut the result. The rules themselves are in `placement_table.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ditron.errors import PlacementError
from ditron.plan.moves import Move, inner_axes, moves
from ditron.plan.placement import (
    Partial,
    Placement,
    Placements,
    Replicate,
    Scope,
    Shard,
    cutting_axes,
    show,
)

# What one mesh axis makes of the operands' placements: None where the rule has no entry.
AxisRule = Callable[[tuple[Placement, ...]], Placement | None]

_R, _P = Replicate(), Partial()


@dataclass(frozen=True)
class Rule:
    """What an operation makes of its operands' placements.

    Attributes:
        op: its name in messages.
        on_axis: the result's placement on an axis, from the operands' on that axis.
        becomes: for each operand, which dimension of the result each of its own is; None: none.
        fixed: operands that must stay as they lie.
    """

    op: str
    on_axis: AxisRule
    becomes: tuple[tuple[int | None, ...], ...]
    fixed: tuple[int, ...] = ()


@dataclass(frozen=True)
class Mend:
    """A move of one operand, after which a rule fits."""

    operand: int
    move: Move


def apply_rule(rule: Rule, operands: Sequence[Placements], scope: Scope) -> Placements:
    """The result's placement on every mesh axis.

    Raises:
        PlacementError: the rule does not fit; the message names the move that mends it.
    """
    ways = find_mends(rule, operands)
    if ways:
        raise PlacementError(_misfit(rule.op, operands, ways, scope))
    return _results(rule, operands)


def _results(rule: Rule, operands: Sequence[Placements]) -> Placements:
    """Where every axis fits."""
    results = (rule.on_axis(here) for here in zip(*operands, strict=True))
    return tuple(result for result in results if result is not None)


def find_mends(rule: Rule, operands: Sequence[Placements]) -> list[tuple[Mend, ...]]:
    """Ways to make a rule fit on one more axis, the preferred one first; none if it fits.

    Nearly always a single move does. Inner axes come first, as they have to be joined first.
    """
    for axis in reversed(range(len(operands[0]))):
        here = tuple(p[axis] for p in operands)
        if rule.on_axis(here) is None:
            return list(_ways(rule, operands, axis)) or [_whole(rule, operands, axis)]
    return _joins(rule, operands, _results(rule, operands))


def check_within_reach(
    rule: Rule, operands: Sequence[Placements], results: Placements, scope: Scope
) -> None:
    """Each rank must hold what its part of a result that lies so needs.

    Raises:
        PlacementError: it does not.
    """
    if ways := _joins(rule, operands, results):
        raise PlacementError(_misfit(rule.op, operands, ways, scope))


def _ways(rule: Rule, operands: Sequence[Placements], axis: int) -> Iterator[tuple[Mend, ...]]:
    here = tuple(p[axis] for p in operands)
    found: list[tuple[bool, int, Mend]] = []
    for i, placements in enumerate(operands):
        if i in rule.fixed:
            continue
        others_cut = any(isinstance(p, Shard) for j, p in enumerate(here) if j != i)
        for move in moves(placements, axis, len(rule.becomes[i])):
            if rule.on_axis((*here[:i], move.after, *here[i + 1 :])) is not None:
                after = [*operands[:i], move.of(placements), *operands[i + 1 :]]
                preference = _preference(move, others_cut=others_cut)
                found.append((not _fits(rule, after), preference, Mend(i, move)))
    for _, _, mend in sorted(found, key=lambda entry: entry[:2]):
        yield (mend,)


def _fits(rule: Rule, operands: Sequence[Placements]) -> bool:
    on_axes = (rule.on_axis(here) is not None for here in zip(*operands, strict=True))
    return all(on_axes) and not _joins(rule, operands, _results(rule, operands))


def _preference(move: Move, *, others_cut: bool) -> int:
    """Scattered beside shards, else whole; then what a user may not expect."""
    match move.kind:
        case "all_to_all":
            return 2
        case "shard":
            return 3
        case "reduce_scatter":
            return 0 if others_cut else 1
        case "all_reduce":
            return 1 if others_cut else 0
        case _:
            return 0


def _whole(rule: Rule, operands: Sequence[Placements], axis: int) -> tuple[Mend, ...]:
    """Every operand that may move made whole on an axis, which always fits."""
    moving = ((i, p) for i, p in enumerate(operands) if i not in rule.fixed)
    return tuple(Mend(i, move) for i, p in moving for move in _undo(p, axis))


def _undo(placements: Placements, axis: int) -> Iterator[Move]:
    """The moves that make a tensor whole on an axis."""
    match placements[axis]:
        case Shard(dim) as cut:
            for inner in reversed((axis, *inner_axes(placements, axis, dim))):
                yield Move("all_gather", inner, cut, _R)
        case Partial() as terms:
            yield Move("all_reduce", axis, terms, _R)
        case Replicate():
            return


def _joins(
    rule: Rule, operands: Sequence[Placements], results: Placements
) -> list[tuple[Mend, ...]]:
    """What joins an operand of which a rank holds other parts than its part of the result needs."""
    for i, placements in enumerate(operands):
        for dim, becomes in enumerate(rule.becomes[i]):
            if becomes is None:
                continue
            have = cutting_axes(placements, dim)
            want = cutting_axes(results, becomes)
            wrong = next((n for n, axis in enumerate(have) if axis != want[n]), None)
            if wrong is not None:
                joins = reversed(have[wrong:])
                return [tuple(Mend(i, Move("all_gather", a, Shard(dim), _R)) for a in joins)]
    return []


def _misfit(
    op: str, operands: Sequence[Placements], ways: Sequence[tuple[Mend, ...]], scope: Scope
) -> str:
    came = " and ".join(f"{scope.names[i]} {show(p)}" for i, p in enumerate(operands))
    calls = (
        " and ".join(m.move.call(scope.names[m.operand], scope) for m in mends)
        for mends in ways[:3]
    )
    return f"{op} has no rule for {came}; to mend it use {' or '.join(calls)}"
