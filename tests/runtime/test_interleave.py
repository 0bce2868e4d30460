"""The interleaved executor: right plans stay right in every order, wrong ones are caught."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from handmade import KERNELS, AgGemm, Maker

from ditron.errors import DeadlockError, PlanError
from ditron.plan import tables as t
from ditron.runtime.interleave import run_interleaved
from ditron.runtime.kernels import compile_kernels

LAUNCHES = 4


def agrees(shape: AgGemm, seed: int) -> bool:
    """Whether all launches, each with its own input, give what torch gives."""
    _, w = shape.data()
    xs = [shape.data(100 + launch)[0] for launch in range(LAUNCHES)]

    def feed(name: str, rank: int, launch: int) -> torch.Tensor | None:
        return shape.shards(xs[launch - 1], w).get((name, rank))

    kernels = compile_kernels(KERNELS)
    run = run_interleaved(shape.plan(), kernels, feed, seed=seed, launches=LAUNCHES)
    return all(
        torch.allclose(run.outputs[launch + 1, "y", r], xs[launch] @ w, rtol=1e-4, atol=1e-5)
        for launch in range(LAUNCHES)
        for r in range(shape.ranks)
    )


RIGHT = [
    AgGemm(),
    AgGemm(boundary=t.Boundary.PERSISTENT),
    AgGemm(copies=2),
    AgGemm(copies=2, boundary=t.Boundary.PERSISTENT, tiles=3),
    AgGemm(deferred=False, after=t.After.END),
    AgGemm(after=t.After.FENCE),
    AgGemm(after=t.After.QUIET),
    AgGemm(ranks=3, m=7),
    AgGemm(ranks=4, m=5),
    AgGemm(ranks=4, m=0),
    AgGemm(ranks=1),
]


@pytest.mark.parametrize("shape", RIGHT, ids=str)
def test_a_right_plan_is_right_in_every_order(shape: AgGemm) -> None:
    assert all(agrees(shape, seed) for seed in range(6))


WRONG = [
    AgGemm(ready=False),
    AgGemm(credit=False),
    AgGemm(after=t.After.END),
    AgGemm(credit=False, boundary=t.Boundary.PERSISTENT),
    AgGemm(credit=False, copies=2, boundary=t.Boundary.PERSISTENT),
]


@pytest.mark.parametrize("shape", WRONG, ids=str)
def test_a_racy_plan_is_caught_by_some_order(shape: AgGemm) -> None:
    assert not all(agrees(shape, seed) for seed in range(40))


def test_the_same_seed_gives_the_same_run() -> None:
    shape = AgGemm(credit=False)
    assert [agrees(shape, s) for s in range(20)] == [agrees(shape, s) for s in range(20)]


def test_unwritten_memory_is_nan() -> None:
    shape = AgGemm()
    run = run_interleaved(shape.plan(), compile_kernels(KERNELS), {})
    assert run.outputs[1, "y", 0].isnan().all()


def cycle() -> t.Plan:
    mk = Maker(2)
    mk.buffer("a", [(4,)] * 2)
    first = mk.op("first", t.OpKind.COPY)
    slots = [mk.slot("turn", r, 0, 1) for r in range(2)]
    for r in range(2):
        task = mk.task(first, r, mk.lane(r, "copy"))
        task.accesses += [
            (t.Mode.READ, "a", r, (slice(0, 2),)),
            (t.Mode.WRITE, "a", r, (slice(2, 4),)),
        ]
        task.waits.append((slots[r], 1, 0))
        task.notifies.append((slots[1 - r], 1, t.NotifyOp.ADD, t.After.END))
    return mk.plan("cycle")


def test_a_deadlock_names_every_wait_and_what_never_came() -> None:
    with pytest.raises(DeadlockError) as caught:
        run_interleaved(cycle(), {}, {})
    assert str(caught.value) == (
        "user.py:1: cycle: nothing can run\n"
        "@first[0] on rank 0 (copy lane 0, task 0) waits for %turn[0] at rank 0:"
        " seen 0, wanted 1, lag 0\n"
        "    never came: @first[0] on rank 1 (copy lane 0, task 0) of launch 1, which adds 1;"
        " its lane waits before @first[0] (task 0) of launch 1 for %turn[0] at rank 1"
        " (seen 0, wanted 1)\n"
        "@first[0] on rank 1 (copy lane 0, task 0) waits for %turn[0] at rank 1:"
        " seen 0, wanted 1, lag 0\n"
        "    never came: @first[0] on rank 0 (copy lane 0, task 0) of launch 1, which adds 1;"
        " its lane waits before @first[0] (task 0) of launch 1 for %turn[0] at rank 0"
        " (seen 0, wanted 1)"
    )


def test_a_threshold_that_cannot_be_reached_is_named() -> None:
    plan = cycle()
    waits = replace(plan.waits, task=plan.waits.task[:1], slot=plan.waits.slot[:1])
    waits = replace(waits, value=np.array([3], np.int32), lag=plan.waits.lag[:1])
    with pytest.raises(DeadlockError, match="they add up to less than the wait wants"):
        run_interleaved(replace(plan, waits=waits), {}, {})


def test_a_kernel_that_is_not_there_is_refused() -> None:
    with pytest.raises(PlanError, match=r"user\.py:2: @matmul calls kernel 'nothing'"):
        run_interleaved(AgGemm(kernel="nothing").plan(), compile_kernels(KERNELS), {})


def queue_plan(waits: bool) -> t.Plan:
    """Ten tasks of one queue lane write a cell each; the first waits for the last or not."""
    mk = Maker(1)
    mk.buffer("a", [(1, 10)], role=t.Role.INPUT)
    mk.buffer("b", [(1, 10)], role=t.Role.OUTPUT)
    copy = mk.op("copy", t.OpKind.COPY)
    lane = mk.lane(0, "sm", order=t.LaneOrder.QUEUE)
    last = mk.slot("last", 0, 0, 1)
    for i in range(10):
        task = mk.task(copy, 0, lane, i)
        box = (slice(0, 1), slice(i, i + 1))
        task.accesses += [(t.Mode.READ, "a", 0, box), (t.Mode.WRITE, "b", 0, box)]
        if waits and i == 0:
            task.waits.append((last, 1, 0))
        if i == 9:
            task.notifies.append((last, 1, t.NotifyOp.SET, t.After.END))
    return mk.plan("queue")


def test_a_queue_lane_is_shared_by_workers() -> None:
    a = torch.arange(10.0)[None]
    run = run_interleaved(queue_plan(waits=False), {}, {("a", 0): a}, launches=3)
    assert run.outputs[3, "b", 0].equal(a)


def test_a_queue_lane_whose_head_waits_for_its_tail_hangs_with_one_worker() -> None:
    hangs = 0
    for seed in range(12):
        try:
            run_interleaved(queue_plan(waits=True), {}, {}, seed=seed)
        except DeadlockError:
            hangs += 1
    assert 0 < hangs < 12
