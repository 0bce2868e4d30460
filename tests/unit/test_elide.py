"""elide-waits: no wait repeats another, and nothing is ordered less than before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.context import Context

import ditron as dt
from ditron.analysis.expand import expand
from ditron.analysis.separation import happens_before
from ditron.passes.elide_waits import ElideWaitsPass, needed_waits
from ditron.plan.tables import LaneOrder, Plan
from tests.unit.lowered import PROGRAMS, lower, plan_of
from tests.unit.plan_builder import PlanBuilder, Wait

OPTIONS: list[dict[str, Any]] = [
    {"algorithm": "mesh-push", "chunk_bytes": 16, "workers": 2, "tile": (2, 3)},
    {"algorithm": "mesh-in-place", "tile": (2, 4), "copy_lanes": 2, "order": "natural"},
    {"algorithm": "ring", "chunk_bytes": 32, "tile": (1, 3)},
    {"algorithm": "one-shot-push", "tile": (2, 2), "fusion": False},
]


def before_and_after(name: str, options: dict[str, Any]) -> tuple[Plan, Plan]:
    module = lower(PROGRAMS[name](3), dt.Options(**options), "insert-signals")
    first = expand(module)
    ElideWaitsPass().apply(Context(), module)
    module.verify()
    return first, expand(module)


def repeats(plan: Plan) -> Iterator[tuple[int, int]]:
    """Waits (earlier, later) of one static lane where the later asks for nothing more."""
    w, tasks = plan.waits, plan.tasks
    for i in range(len(w)):
        for j in range(len(w)):
            a, b = w.task[i], w.task[j]
            same = (w.slot[i], w.lag[i]) == (w.slot[j], w.lag[j]) and tasks.lane[a] == tasks.lane[b]
            static = plan.lanes.order[tasks.lane[a]] is LaneOrder.STATIC
            earlier = tasks.seq[a] < tasks.seq[b] or (a == b and i < j)
            if same and static and earlier and w.value[i] >= w.value[j]:
                yield i, j


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_wait_repeats_another_and_no_order_is_lost(name: str, options: dict[str, Any]):
    full, lean = before_and_after(name, options)
    assert not any(repeats(lean))
    assert len(lean.waits) <= len(full.waits)
    assert (full.slots.count == lean.slots.count).all()
    tasks = np.arange(len(full.tasks))
    a, b = tasks[:, None], tasks[None, :]
    one, other = happens_before(full), happens_before(lean)
    for later in (0, 1):
        assert (one.ordered(a, 0, b, later) == other.ordered(a, 0, b, later)).all()


def test_it_goes_far():
    options = dt.Options(algorithm="mesh-push", tile=(1, 1))
    full = plan_of(PROGRAMS["ag_gemm"](2), options, "insert-signals")
    lean = plan_of(PROGRAMS["ag_gemm"](2), options)
    # 8 rows by 4 columns of tiles a rank: a row's first tile waits, its other three do not.
    # Besides, one credit a rank.
    assert len(full.waits) == 2 * (8 * 4) + 2
    assert len(lean.waits) == 2 * 2 + 2  # one chunk a shard, so the first tile of each shard


def test_a_second_time_changes_nothing():
    options = dt.Options(algorithm="mesh-push", tile=(2, 2))
    module = lower(PROGRAMS["mlp"](2), options)
    text = str(module)
    ElideWaitsPass().apply(Context(), module)
    assert str(module) == text


def by_hand(waits: list[list[tuple[int, int, int]]], order: LaneOrder) -> Plan:
    """One lane; each task's waits are (slot, value, lag)."""
    b = PlanBuilder(1)
    other, lane = b.lane(0, "copy"), b.lane(0, order=order)
    slots = [b.slot(rank=0) for _ in range(2)]
    for _ in range(3):
        b.task("up", other, notify=slots)
    for one in waits:
        b.task("use", lane, wait=[Wait(slots[s], v, lag) for s, v, lag in one])
    return b.plan()


@pytest.mark.parametrize(
    ("waits", "needed"),
    [
        ([[(0, 1, 0)], [(0, 1, 0)]], [True, False]),
        ([[(0, 1, 0)], [(0, 2, 0)], [(0, 2, 0)]], [True, True, False]),
        ([[(0, 3, 0)], [(0, 2, 0)]], [True, False]),
        ([[(0, 1, 0)], [(1, 1, 0)]], [True, True]),
        ([[(0, 1, 0)], [(0, 1, 1)]], [True, True]),
        ([[(0, 1, 0), (0, 3, 0)], [(0, 2, 0)]], [False, True, False]),
        ([[(0, 1, 0), (0, 1, 0)]], [True, False]),
    ],
)
def test_which_are_needed(waits: list[list[tuple[int, int, int]]], needed: list[bool]):
    assert needed_waits(by_hand(waits, LaneOrder.STATIC)).tolist() == needed
    assert needed_waits(by_hand(waits, LaneOrder.QUEUE)).all()


rows = st.tuples(st.integers(0, 1), st.integers(1, 3), st.integers(0, 1))


@given(st.lists(st.lists(rows, max_size=3), min_size=1, max_size=6))
@settings(max_examples=200, deadline=None)
def test_what_goes_was_asked_for_before(waits: list[list[tuple[int, int, int]]]):
    plan = by_hand(waits, LaneOrder.STATIC)
    needed = needed_waits(plan)
    w = plan.waits
    for i in range(len(w)):
        same = [
            j
            for j in range(len(w))
            if j != i
            and (w.slot[i], w.lag[i]) == (w.slot[j], w.lag[j])
            and w.task[j] <= w.task[i]
            and w.value[j] >= w.value[i]
        ]
        if needed[i]:
            assert not any(needed[j] for j in same)
        else:
            assert any(needed[j] for j in same)
