"""order-tiles: run each rank's tiles in the order in which their data comes, or is wanted.

    device.grid @matmul engine sm in (%p = 4, %m = 2, %n = 3) { ... }
    ->
    device.grid @matmul engine sm in (%p = 4, %m = 2, %n = 3) {
      device.schedule order[(%p - %me) mod 4, %p, %m, %n] ...
    }

Needs: decomposed collectives. Ensures: within a grid, tiles whose last chunk arrives earlier come
earlier; among tiles that wait for nothing from other ranks, those that a peer waits for come before
those that only this rank needs, the next rank's first (so that at any time each rank makes what
another one waits for). Tiles that are equal in this stay in grid order.

When a chunk arrives is its transfer's place on its lane; what is read in place is nearer the nearer
its owner is, going up. Keys come out as closed forms where `plan/order.py` finds one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from ditron.analysis.arrays import longs, spans
from ditron.analysis.expand import expand
from ditron.analysis.pairing import Pairing, pair
from ditron.analysis.symbols import device_program
from ditron.passes.signal_ops import GridSignals, grid_signals
from ditron.plan.tables import Longs, OpKind, Plan


@dataclass(frozen=True)
class OrderTilesPass(ModulePass):
    """See the module's docstring; `natural` leaves the grid order."""

    name = "order-tiles"

    order: Literal["arrival", "natural"] = "arrival"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.order == "natural":
            return
        plan = expand(op, nominal=True)
        keys = tile_keys(plan)
        for number, writer in enumerate(grid_signals(device_program(op))):
            if writer.op.engine.data == "sm":
                _order(writer, keys[plan.tasks.op == number])


def _order(writer: GridSignals, key: Longs) -> None:
    per_rank = key.reshape(writer.ranks, -1)
    if (np.diff(per_rank, axis=1) < 0).any():
        writer.order_by([_dense(per_rank)])


def _dense(per_rank: Longs) -> Longs:
    """Each rank's keys numbered from 0."""
    return np.stack([np.unique(row, return_inverse=True)[1] for row in per_rank])


def tile_keys(plan: Plan) -> Longs:
    """A number for each task [T]; tasks of one op and rank run by increasing number."""
    pairing = pair(plan)
    pairing = pairing.only(pairing.lag == 0)
    arrival = _arrival(plan, pairing)
    wanted = _wanted(plan, pairing)
    waits = np.zeros(len(plan.ops), np.bool_)
    waits[plan.tasks.op[arrival > 0]] = True
    return np.where(waits[plan.tasks.op], arrival, wanted)


def _arrival(plan: Plan, pairing: Pairing) -> Longs:
    """When the last thing that a task waits for from another lane comes; 0 if nothing does."""
    groups, tasks = pairing.groups, plan.tasks
    before, after = pairing.before, pairing.after
    handed = np.array([op.kind is OpKind.ACQUIRE for op in plan.ops], np.bool_)
    distance = (groups.rank[before] - groups.rank[after]) % plan.ranks
    place = longs(tasks.seq)[groups.last[before]] + 1
    when = np.where(handed[groups.op[before]], distance, place)
    return _greatest(plan, pairing, after, when)


def _wanted(plan: Plan, pairing: Pairing) -> Longs:
    """How near the nearest other rank is that waits for a task; `ranks` where none does."""
    groups = pairing.groups
    released = np.array([op.kind is OpKind.RELEASE for op in plan.ops], np.bool_)
    there = ~released[groups.op[pairing.after]]
    before, after = pairing.before[there], pairing.after[there]
    distance = (groups.rank[after] - groups.rank[before]) % plan.ranks
    nearness = np.where(distance == 0, 0, plan.ranks - distance)
    return plan.ranks - _greatest(plan, pairing, before, nearness)


def _greatest(plan: Plan, pairing: Pairing, group: Longs, value: Longs) -> Longs:
    """For each task, the greatest value among its groups' edges; 0 without one."""
    groups = pairing.groups
    best = np.zeros(len(groups), np.int64)
    np.maximum.at(best, group, value)
    result = np.zeros(len(plan.tasks), np.int64)
    many = np.diff(groups.start)
    member = groups.tasks[spans(groups.start[:-1], many)]
    np.maximum.at(result, member, np.repeat(best, many))
    return result
