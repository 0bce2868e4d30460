"""How a tensor gets from one placement to another: one collective, or local cut, at a time.

A move changes the placement on one mesh axis, inside each group of ranks along that axis. That is
enough only where the dimension it cuts or joins is cut by no later axis: those cut within it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from ditron.errors import PlacementError
from ditron.plan.placement import (
    Mesh,
    Partial,
    Placed,
    Placement,
    Placements,
    Replicate,
    Scope,
    Shard,
    cutting_axes,
    local_capacity,
    show,
)

_R, _P = Replicate(), Partial()


@dataclass(frozen=True)
class Move:
    """One step on the mesh axis at index `axis`; `kind` is the task op that makes it."""

    kind: str
    axis: int
    before: Placement
    after: Placement

    @property
    def dim(self) -> int | None:
        """The dimension that is joined, else the one that is cut, if any."""
        for placement in (self.before, self.after):
            if isinstance(placement, Shard):
                return placement.dim
        return None

    def of(self, placements: Placements) -> Placements:
        """The placements after the move."""
        return (*placements[: self.axis], self.after, *placements[self.axis + 1 :])

    def call(self, name: str, scope: Scope) -> str:
        """How a user writes it."""
        if isinstance(self.before, Shard) and isinstance(self.after, Shard):
            dims = f", split_dim={self.after.dim}, concat_dim={self.before.dim}"
        else:
            dims = "" if self.dim is None else f", dim={self.dim}"
        return f"{self.kind}({name}{dims}{scope.over(self.axis)})"


def moves(placements: Placements, axis: int, ndim: int) -> Iterator[Move]:
    """Every move of a tensor on one axis, except to where it lies already."""
    have = placements[axis]
    if isinstance(have, Shard) and inner_axes(placements, axis, have.dim):
        return
    open_dims = [dim for dim in range(ndim) if not inner_axes(placements, axis, dim)]
    match have:
        case Shard(dim):
            yield Move("all_gather", axis, have, _R)
            for other in open_dims:
                if other != dim:
                    yield Move("all_to_all", axis, have, Shard(other))
        case Partial():
            yield Move("all_reduce", axis, have, _R)
            for dim in open_dims:
                yield Move("reduce_scatter", axis, have, Shard(dim))
        case Replicate():
            for dim in open_dims:
                yield Move("shard", axis, have, Shard(dim))


def inner_axes(placements: Placements, axis: int, dim: int) -> tuple[int, ...]:
    """The later axes that cut a dimension, within its parts on this one."""
    return tuple(inner for inner in cutting_axes(placements, dim) if inner > axis)


def check_move(move: Move, placements: Placements, call: str, scope: Scope) -> None:
    """A tensor must lie as the move needs it.

    Args:
        move: what is wanted.
        placements: how the tensor lies.
        call: the move as the message calls it.
        scope: mesh and name of the tensor.

    Raises:
        PlacementError: it does not; the message names what mends it.
    """
    name, have = scope.names[0], placements[move.axis]
    several = scope.mesh is not None and len(scope.mesh.axes) > 1
    where = f" on {scope.mesh.axes[move.axis]}" if scope.mesh is not None and several else ""
    if have != move.before:
        advice = _advice(move, have, scope)
        message = f"{call} needs {name} {move.before}{where}, but it is {have}: {advice}"
        raise PlacementError(message)
    for dim in _joined_or_cut(move):
        inner = inner_axes(placements, move.axis, dim)
        if inner:
            first = Move("all_gather", inner[-1], Shard(dim), _R).call(name, scope)
            message = (
                f"{call}: {name} is {show(placements)}, so its dim {dim} is cut once more within"
                f" each part{where}; use {first} first, or redistribute({name}, ...)"
            )
            raise PlacementError(message)


def _joined_or_cut(move: Move) -> tuple[int, ...]:
    if move.before == move.after:
        return ()
    return tuple(p.dim for p in (move.before, move.after) if isinstance(p, Shard))


def _advice(move: Move, have: Placement, scope: Scope) -> str:
    name, over = scope.names[0], scope.over(move.axis)
    match have:
        case Replicate() if move.before == move.after or move.after == have:
            return f"{name} is whole on every rank already, so leave this collective out"
        case Replicate():
            cut = Move("shard", move.axis, have, move.after).call(name, scope)
            return f"{name} is whole on every rank already; {cut} keeps a part"
        case Partial():
            return f"all_reduce({name}{over}) or reduce_scatter({name}, dim=...{over}) sums it"
        case Shard() if have == move.after:
            return f"{name} lies as wanted already, so leave this collective out"
        case Shard() if isinstance(move.after, Shard):
            moved = Move("all_to_all", move.axis, have, move.after).call(name, scope)
            return f"{moved} makes it {move.after}"
        case Shard(dim):
            return f"all_gather({name}, dim={dim}{over}) makes it whole"


def shortest_path(tensor: Placed, goal: Placements, mesh: Mesh) -> list[Move]:
    """The moves that lead to other placements: the fewest collectives, then the fewest elements.

    Raises:
        PlacementError: the goal has partial sums that the tensor has not.
    """
    start = tensor.placements
    for axis, wanted in enumerate(goal):
        if wanted == _P != start[axis]:
            message = f"nothing makes {show(goal)} of {show(start)}: only a computation leaves sums"
            raise PlacementError(message)
    order = count()
    queue = [((0, 0.0, 0), next(order), start, list[Move]())]
    done: set[Placements] = set()
    while queue:
        cost, _, at, path = heappop(queue)
        if at == goal:
            return path
        if at in done:
            continue
        done.add(at)
        for axis in range(len(mesh.axes)):
            for move in moves(at, axis, len(tensor.shape)):
                after = move.of(at)
                price = _price(move, tensor.shape, at, mesh)
                total = (cost[0] + price[0], cost[1] + price[1], cost[2] + price[2])
                heappush(queue, (total, next(order), after, [*path, move]))
    raise AssertionError(goal)


@dataclass(frozen=True)
class _Placed:
    shape: tuple[int, ...]
    placements: Placements


def _price(
    move: Move, shape: tuple[int, ...], before: Placements, mesh: Mesh
) -> tuple[int, float, int]:
    """Collectives, elements that a rank receives, moves."""
    if move.kind == "shard":
        return 0, 0.0, 1
    n = mesh.sizes[move.axis]
    held = math.prod(local_capacity(_Placed(shape, before), mesh))
    held_after = math.prod(local_capacity(_Placed(shape, move.of(before)), mesh))
    received = {
        "all_gather": held_after - held,
        "reduce_scatter": (n - 1) * held_after,
        "all_reduce": 2 * (n - 1) * held / n,
        "all_to_all": (n - 1) * held / n,
    }
    return 1, float(received[move.kind]), 1
