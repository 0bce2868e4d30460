"""order-tiles: run each rank's tiles in the order in which their data comes, or is wanted.

    device.grid @matmul engine sm in (%p = 4, %m = 2, %n = 3) { ... }
    ->
    device.grid @matmul engine sm in (%p = 4, %m = 2, %n = 3) {
      device.schedule order[(%p - %me) mod 4, %p, %m, %n] ...
    }

Needs: decomposed collectives. Ensures: within a grid, tiles whose last chunk arrives earlier come
earlier; among tiles that wait for nothing from other ranks, those that a peer waits for come before
those that only this rank needs: what is sent in the order in which it is, then what is fetched, the
next rank's first (so that at any time each rank makes what another one waits for). Among tiles that
are equal in this, `group_rows` rows of tiles run side by side, column by column, so that tiles
which run at the same time share operands in the cache:

    device.schedule order[(%p - %me) mod 4 * 2 + %m floordiv 2, %n, %m mod 2] ...

A group's place is that of its last chunk, and `insert-signals` lets the tiles of one place start
together: tiles that start one by one read the other operand again for each row (47 % lost on an
H200). What is still equal stays in grid order. A product none of whose tiles comes earlier than
another gets a grid in such an order (`passes/regrid.py`), its groups as high as suits that many
`workers`.

When a chunk arrives is its transfer's place on its lane; what is read in place is nearer the nearer
its owner is, going up. Keys come out as closed forms where `plan/order.py` finds one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from ditron.analysis.arrays import longs, spans
from ditron.analysis.expand import expand
from ditron.analysis.pairing import Pairing, pair
from ditron.analysis.symbols import device_program, kernels
from ditron.passes.regrid import regrid
from ditron.passes.signal_ops import GridSignals, grid_signals
from ditron.plan.tables import LIBRARY, Longs, Mode, OpKind, Plan


@dataclass(frozen=True)
class OrderTilesPass(ModulePass):
    """See the module's docstring; `natural` leaves the grid order.

    `group_rows` is the height of a group that starts together, in tiles; 0 makes none.
    """

    name = "order-tiles"

    order: Literal["arrival", "natural"] = "arrival"
    group_rows: int = 0
    workers: int = 1

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.order == "natural":
            return
        plan, funcs = expand(op, nominal=True), kernels(op)
        keys = tile_keys(plan)
        for number, writer in enumerate(grid_signals(device_program(op))):
            if writer.op.engine.data in ("sm", LIBRARY):
                mine = slice(*np.searchsorted(plan.tasks.op, [number, number + 1]).tolist())
                if writer.op.engine.data == LIBRARY:
                    _order(writer, keys[mine].reshape(writer.ranks, -1), [])
                    continue
                if not np.diff(keys[mine].reshape(writer.ranks, -1)).any():
                    regrid(writer.op, funcs, self.workers)
                    continue
                groups = _groups(plan, number, self.group_rows) if self.group_rows else []
                _order(writer, keys[mine].reshape(writer.ranks, -1), groups)


def _order(writer: GridSignals, key: Longs, groups: Sequence[Longs]) -> None:
    """Write the keys, unless they leave the tiles in grid order.

    A tile's row in its group is one, since places in the order have a closed form with it.
    """
    keys = [_dense(key)]
    if groups:
        group, *rest = groups
        keys = [_dense(_last_of_group(key, group)), *rest]
    if (np.diff(_order_of(keys), axis=1) < 0).any():
        writer.order_by(keys)


def _last_of_group(key: Longs, group: Longs) -> Longs:
    """A number for each rank's groups [R, T], that grows with the greatest key of any of its."""
    many = int(group.max()) + 1
    last = np.full((len(key), many), key.min())
    rank = np.arange(len(key))[:, None]
    np.maximum.at(last, (np.broadcast_to(rank, key.shape), group), key)
    return last[rank, group] * many + group


def _order_of(keys: Sequence[Longs]) -> Longs:
    """Each rank's tasks [R, T] in the order of the keys, the first one first."""
    return longs(np.lexsort(list(keys[::-1]), axis=-1))


def _groups(plan: Plan, op: int, rows: int) -> list[Longs]:
    """For each task of a product: its group of tile rows, its column, its row in the group."""
    if not plan.tasks.flops[plan.tasks.op == op].any():
        return []
    accesses = plan.accesses
    written = (accesses.mode & int(Mode.WRITE)) != 0
    at = np.flatnonzero(written & (plan.tasks.op[accesses.task] == op))
    at = at[np.unique(accesses.task[at], return_index=True)[1]]
    dims = len(plan.buffers[int(accesses.buffer[at[0]])].capacity)
    if dims < 2:
        return []
    corner = accesses.lo[at, dims - 2 : dims].T
    row, column = (
        longs(np.unique(c, return_inverse=True)[1]).reshape(plan.ranks, -1) for c in corner
    )
    return [row // rows, column, row % rows]


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
    """How soon a task's result is wanted: first by transfers, in their order, then by other ranks.

    `ranks` where nobody but the rank's own kernels waits for it.
    """
    groups, tasks = pairing.groups, plan.tasks
    moves = np.array([op.engine == "copy" for op in plan.ops], np.bool_)
    released = np.array([op.kind is OpKind.RELEASE for op in plan.ops], np.bool_)
    there = ~released[groups.op[pairing.after]]
    before, after = pairing.before[there], pairing.after[there]
    distance = (groups.rank[after] - groups.rank[before]) % plan.ranks
    sooner = len(tasks) - longs(tasks.seq)[groups.first[after]]
    sent = moves[groups.op[after]] & ~moves[groups.op[before]] & (distance == 0)
    nearness = np.where(distance == 0, 0, plan.ranks - distance)
    nearness = np.where(sent, plan.ranks + sooner, nearness)
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
