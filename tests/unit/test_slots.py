"""Slots, waits and notifies of small programs, counted by hand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ditron as dt
from ditron.analysis.happens_before import assume_separation
from ditron.analysis.pairing import pair
from ditron.analysis.slot_plan import SlotPlan
from ditron.analysis.slots import needed, plan_slots, without_queues
from ditron.plan.tables import LaneOrder, Plan
from tests.unit.lowered import PROGRAMS, ag_gemm, gemm_ar, gemm_rs, plan_of

Counts = tuple[int, int, int]  # slots that are used, waits, notifies; over all ranks

# 2n rows, tiles of 2 rows and all columns: one tile a shard. Chunks are shards as well.
TILE = (2, 8)


def ag_in_place(n: int) -> Counts:
    # Each tile from another rank waits for that rank's acquire of x, a slot each: n - 1 a rank.
    # The release of x waits for the n - 1 peers' tiles, which share a slot: 1 a rank.
    # Credits: none, an acquire follows its rank's own release.
    return n * (n - 1) + n, n * (n - 1) + n, 2 * n * (n - 1)


def ag_push(n: int) -> Counts:
    # Each tile waits for its put, or for the copy of the rank's own shard: n a rank.
    # Credits: the first put waits for the last tile of each of the n - 1 peers, one slot.
    return n * n + n, n * n + n, n * n + n * (n - 1)


def ag_pull(n: int) -> Counts:
    # Gets wait for acquires (n - 1 a rank), tiles for gets and the own copy (n), the release of x
    # for the peers' gets (1 slot, n - 1 events). Credits: none, who overwrites is who has read.
    slots = n * (n - 1) + n * n + n
    return slots, slots, n * (n - 1) + n * n + n * (n - 1)


def ag_ring(n: int) -> Counts:
    # Tiles as in ag_push: n a rank. What arrives is handed on as well, by the same slot: n - 2 more
    # waits. Credits: the first put waits for the next rank's last tile and, from three ranks on,
    # for its last put (which reads what it hands on), one slot.
    handed_on = n * (n - 2)
    return n * n + n, n * n + handed_on + n, n * n + (n if n == 2 else 2 * n)


def rs_push(n: int) -> Counts:
    # n - 1 puts wait for a tile each. The sum waits for n - 1 puts, one slot. Credits: the first
    # put waits for the sums of its n - 1 targets, one slot.
    slots = n * (n - 1) + n + n
    return slots, slots, 3 * n * (n - 1)


def rs_in_place(n: int) -> Counts:
    # The sum waits for the peers' n - 1 tiles, one slot. Credits: the first tile waits for the
    # peers' sums, which have read the last launch's, one slot.
    return 2 * n, 2 * n, 2 * n * (n - 1)


def ar_one_shot_push(n: int) -> Counts:
    # n chunks, n tiles of the sum. A chunk goes to n ranks: the first put of a chunk waits for its
    # tile, the others come later on the lane. A tile of the sum waits for n puts, one slot.
    # Credits: the first put waits for the sums of n - 1 peers, one slot.
    slots = n * n + n * n + n
    return slots, slots, n * n + n**3 + n * (n - 1)


def ar_one_shot_in_place(n: int) -> Counts:
    # Each of n tiles of the sum waits for n - 1 peers' tiles, one slot. Credits as in rs_in_place.
    return n * n + n, n * n + n, n * n * (n - 1) + n * (n - 1)


def _gather_parts(n: int) -> Counts:
    # A put of a part waits for the sum (one slot for all of them, the first waits) and for its
    # target's acquire of y; at two ranks there is one put and both share a slot. The release of y
    # waits for n - 1 puts, one slot. Credits: none, by release and acquire.
    slots = (n if n == 2 else n + n * (n - 1)) + n
    return slots, slots, n + n * (n - 1) + n * (n - 1)


def _no_credits(n: int) -> Counts:
    # The sums' credits go: every rank's launch ends behind all other ranks' sums, whose parts it
    # has received by then.
    return -n, -n, -n * (n - 1)


def ar_two_shot_push(n: int) -> Counts:
    return _add(_add(rs_push(n), _gather_parts(n)), _no_credits(n))


def ar_two_shot_in_place(n: int) -> Counts:
    return _add(_add(rs_in_place(n), _gather_parts(n)), _no_credits(n))


def _add(a: Counts, b: Counts) -> Counts:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


CASES: list[tuple[Callable[..., dt.Program], str, Callable[[int], Counts], Counts]] = [
    # program, algorithm, count on two ranks and more, count on one
    (ag_gemm, "mesh-in-place", ag_in_place, (0, 0, 0)),
    (ag_gemm, "mesh-push", ag_push, (1, 1, 1)),  # the tile waits for the copy of its own shard
    (ag_gemm, "mesh-pull", ag_pull, (1, 1, 1)),
    (ag_gemm, "ring", ag_ring, (1, 1, 1)),
    (gemm_rs, "mesh-push", rs_push, (0, 0, 0)),
    (gemm_rs, "mesh-in-place", rs_in_place, (0, 0, 0)),
    (gemm_ar, "one-shot-push", ar_one_shot_push, (2, 2, 2)),  # tile -> put -> sum
    (gemm_ar, "one-shot-in-place", ar_one_shot_in_place, (0, 0, 0)),
    (gemm_ar, "two-shot-push", ar_two_shot_push, (0, 0, 0)),
    (gemm_ar, "two-shot-in-place", ar_two_shot_in_place, (0, 0, 0)),
]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("program", "algorithm", "by_hand", "alone"), CASES, ids=[c[2].__name__ for c in CASES]
)
def test_counts(
    program: Callable[..., dt.Program],
    algorithm: str,
    by_hand: Callable[[int], Counts],
    alone: Counts,
    ranks: int,
):
    options = dt.Options(algorithm=algorithm, tile=TILE)
    plan = plan_of(program(ranks, m=2 * ranks), options)
    used = int((plan.slots.count > 0).sum())
    got = (used, len(plan.waits), len(plan.notifies))
    assert got == (by_hand(ranks) if ranks > 1 else alone)


def scheduled(program: dt.Program, **options: Any) -> Plan:
    return plan_of(program, dt.Options(**options), "schedule-tasks")


OPTIONS: list[dict[str, Any]] = [
    {"algorithm": "mesh-push", "chunk_bytes": 16, "workers": 2},
    {"algorithm": "mesh-in-place", "tile": (2, 4), "copy_lanes": 2},
    {"algorithm": "ring", "chunk_bytes": 32, "tile": (1, 3)},
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_merge_is_left(name: str, options: dict[str, Any]):
    plan = scheduled(PROGRAMS[name](3), **options)
    slots = plan_slots(plan, needed(plan, pair(plan)))
    waiters = _waiters(slots)
    keys = [(int(slots.rank[s]), int(slots.lag[s]), waiters[s]) for s in range(len(slots.rank))]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_edge_has_its_signal(name: str, options: dict[str, Any]):
    # Edges to the next launch may be ordered by a path of signals instead.
    plan = scheduled(PROGRAMS[name](3), **options)
    pairing = needed(plan, pair(plan))
    slots = plan_slots(plan, pairing)
    raised, waiters = defaultdict[int, set[int]](set), _waiters(slots)
    for task, slot in zip(slots.event.tolist(), slots.event_slot.tolist(), strict=True):
        raised[slot].add(task)
    assert [len(raised[s]) for s in range(len(slots.rank))] == slots.count.tolist()
    lane, seq = plan.tasks.lane, plan.tasks.seq
    groups = pairing.groups
    last, first = groups.last[pairing.before], groups.first[pairing.after]
    order = assume_separation(slots.in_plan())
    assert order.ordered(last, 0, first, pairing.lag).all()
    for before, after, lag in zip(pairing.before, pairing.after, pairing.lag, strict=True):
        last, first = groups.last[before], groups.first[after]
        assert lag or any(
            slots.lag[s] == 0
            and any(lane[t] == lane[last] and seq[t] >= seq[last] for t in raised[s])
            and any(lane[t] == lane[first] and seq[t] <= seq[first] for t in waiters[s])
            for s in range(len(slots.rank))
        ), (plan.describe_task(int(last)), plan.describe_task(int(first)))


def test_an_event_of_an_engine_that_only_sets_has_a_slot_of_its_own():
    plan = scheduled(gemm_rs(3, m=6), algorithm="mesh-push")
    puts = {i for i, op in enumerate(plan.ops) if op.kind == "put"}
    slots = plan_slots(plan, needed(plan, pair(plan)), puts)
    by_puts = np.isin(plan.tasks.op[slots.event], list(puts))
    assert by_puts.any()
    assert (slots.count[slots.event_slot[by_puts]] == 1).all()


@pytest.mark.parametrize("options", OPTIONS)
def test_numberings_tell_slots_apart(options: dict[str, Any]):
    plan = scheduled(ag_gemm(3), **options)
    slots = plan_slots(plan, needed(plan, pair(plan)))
    arrays = slots.arrays()
    # Every slot is in one array; arrays of one op differ in lag.
    assert sorted(s for a in arrays for s in a.slots.tolist()) == list(range(len(slots.rank)))
    assert len({(a.op, a.lag) for a in arrays}) == len(arrays)
    for array in arrays:
        assert (slots.lag[array.slots] == array.lag).all()
        for numbering in slots.numberings(array):
            names = np.stack([slots.rank[array.slots], numbering], axis=1)
            assert len(np.unique(names, axis=0)) == len(names)
            assert numbering.min() >= 0


def test_each_task_of_a_queue_tells_for_itself():
    plan = scheduled(ag_gemm(2))
    queue = tuple(LaneOrder.QUEUE if e == "sm" else LaneOrder.STATIC for e in plan.lanes.engine)
    apart = without_queues(replace(plan, lanes=replace(plan.lanes, order=queue)))
    computes = np.array([op.engine == "sm" for op in plan.ops])[plan.tasks.op]
    assert len(np.unique(apart.tasks.lane[computes])) == np.count_nonzero(computes)
    assert (apart.tasks.lane[~computes] == plan.tasks.lane[~computes]).all()
    assert (apart.lanes.rank[apart.tasks.lane] == plan.tasks.rank).all()
    assert without_queues(plan) is plan


def _waiters(slots: SlotPlan) -> list[frozenset[int]]:
    found: list[set[int]] = [set() for _ in slots.rank]
    for task, slot in zip(slots.waiter.tolist(), slots.waiter_slot.tolist(), strict=True):
        found[slot].add(task)
    return [frozenset(f) for f in found]
