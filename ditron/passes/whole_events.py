"""Events of whole grids: on a rank, what one grid makes another waits for as a whole.

    device.grid @up engine sm in (%n = 96) { ... }      96 tiles on 40 lanes
    device.grid @down engine sm in (%n = 40) { ... }    each of which reads all 96
    ->
    %up_done = device.signals "up_done" : !device.signals<1>
    device.grid @up ... { ... device.notify %up_done[0] add 1 after end when 56 le %n }
    device.grid @down ... { ... device.wait %up_done[0, 1] ge 40 ... }

Lanes that stay run the grids of a program one after another, so the last task of each lane tells,
the first of each lane waits, and all lanes watch one word. A grid waits for another if a task of
its own needs one of the other's on another lane, unless what was waited for earlier says that much
already. Between ranks, and for transfers that land later, signals stay as fine as `insert-signals`
makes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ditron.analysis.arrays import changes, distinct_rows, last_of_run, longs
from ditron.analysis.pairing import Pairing
from ditron.ir import device
from ditron.passes.grids import Names
from ditron.passes.signal_ops import GridSignals, NotifyRows, WaitRows
from ditron.plan.tables import Bools, LaneOrder, Longs, Plan


def add_whole_events(
    program: device.ProgramOp, plan: Plan, pairing: Pairing, writers: Sequence[GridSignals]
) -> Pairing:
    """Write the events of whole grids that order what they can; returns the other edges."""
    whole = _between_grids(plan, pairing)
    groups = pairing.groups
    edges = distinct_rows(groups.op[pairing.before[whole]], groups.op[pairing.after[whole]])[0].T
    waiters: dict[int, list[int]] = {}
    for before, after in needed_events(plan, edges):
        waiters.setdefault(before, []).append(after)
    # What the same grids wait for shares a word.
    makers: dict[tuple[int, ...], list[int]] = {}
    for before, waiting in sorted(waiters.items()):
        makers.setdefault(tuple(waiting), []).append(before)
    names = Names()
    for waiting, made in makers.items():
        _write(program, plan, writers, made, waiting, names)
    return pairing.only(~whole)


def _between_grids(plan: Plan, pairing: Pairing) -> Bools:
    """Edges within a launch and rank from one grid to another, of static lanes."""
    groups, before, after = pairing.groups, pairing.before, pairing.after
    lands_late = np.array([op.deferred for op in plan.ops], np.bool_)[groups.op[before]]
    static = np.array([o is LaneOrder.STATIC for o in plan.lanes.order], np.bool_)
    here = (pairing.lag == 0) & (groups.rank[before] == groups.rank[after])
    here &= static[groups.lane[before]] & static[groups.lane[after]]
    return here & ~lands_late & (groups.op[before] != groups.op[after])


def needed_events(plan: Plan, edges: Longs) -> Iterator[tuple[int, int]]:
    """Of edges [2, E] between ops, those that neither lanes nor other ones give.

    All of op A comes before all of op B if B waits for A; if there is an op between them of which
    both holds; if all lanes of B have run an op that comes after all of A; if all lanes of A go on
    to an op that comes before all of B; and if they are on one and the same lane.
    """
    within = _lanes_within(plan)
    many = len(plan.ops)
    number = np.arange(many)
    single = _lane_counts(plan) == plan.ranks
    # By op: those that are over before any of its tasks begins.
    over = np.zeros((many, many), np.bool_)
    order = np.lexsort((-edges[0], edges[1]))
    wanted: dict[int, list[int]] = {}
    for before, after in edges[:, order].T.tolist():
        wanted.setdefault(after, []).append(before)
    for op in range(many):
        ran = within[op] & (number < op)
        over[op] = over[ran].any(axis=0) | (ran & single & single[op])
        for before in wanted.get(op, []):
            if over[op, before]:
                continue
            earlier = within[:, before] & (number <= before)
            over[op] |= earlier | over[before]
            yield before, op


def _lane_counts(plan: Plan) -> Longs:
    """How many lanes each op has, over all ranks."""
    key = np.unique(longs(plan.tasks.op) * len(plan.lanes) + plan.tasks.lane)
    return longs(np.bincount(key // len(plan.lanes), minlength=len(plan.ops)))


def _lanes_within(plan: Plan) -> Bools:
    """[ops, ops]: whether all lanes of one have tasks of the other."""
    there = np.zeros((len(plan.ops), len(plan.lanes)), np.float32)
    there[plan.tasks.op, plan.tasks.lane] = 1
    return (there @ there.T) == there.sum(axis=1)[:, None]


def _write(
    program: device.ProgramOp,
    plan: Plan,
    writers: Sequence[GridSignals],
    made: Sequence[int],
    waiting: Sequence[int],
    names: Names,
) -> None:
    """One slot that grids raise and others wait for."""
    first = writers[made[0]].op
    signals = device.SignalsOp(names.fresh(f"{first.sym_name.data}_done"), 1)
    signals.location = first.location
    program.body.block.insert_op_before(signals, first)
    lanes = np.zeros(plan.ranks, np.int64)
    for op in made:
        task = _ends(plan, op, last=True)
        rank = longs(plan.tasks.rank)[task]
        lanes += np.bincount(rank, minlength=plan.ranks)
        told = NotifyRows(task - int(np.searchsorted(plan.tasks.op, op)), 0 * task, rank)
        writers[op].add_notifies(signals.result, writers[op].notify_forms(told))
    for op in waiting:
        task = _ends(plan, op, last=False)
        value = lanes[plan.tasks.rank[task]]
        rows = WaitRows(task - int(np.searchsorted(plan.tasks.op, op)), 0 * task, value)
        writers[op].add_waits(signals.result, writers[op].wait_forms(rows), 0)


def _ends(plan: Plan, op: int, *, last: bool) -> Longs:
    """The first or the last task of an op on each of its lanes."""
    tasks = np.flatnonzero(plan.tasks.op == op)
    order = tasks[np.lexsort((plan.tasks.seq[tasks], plan.tasks.lane[tasks]))]
    start = changes(longs(plan.tasks.lane)[order])
    return np.sort(order[last_of_run(start) if last else start])
