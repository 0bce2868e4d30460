"""The proofs against every interleaving of small plans over four launches."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ditron.analysis import touches, whole_runs
from ditron.analysis.deadlock import check_deadlock
from ditron.analysis.races import check_races
from ditron.analysis.separation import happens_before
from ditron.errors import DeadlockError, ProofError, RaceError
from ditron.plan.tables import Boundary, Plan
from tests.property.explorer import HAND_OVERS, Explorer, Outcome
from tests.property.random_plans import random_plan, ring_plan
from tests.unit.plan_builder import PlanBuilder, Wait

LAUNCHES = 4
STATES = 40_000
SEEDS = st.integers(0, 2**32 - 1)


def verdict(plan: Plan) -> str:
    """ "ok", "deadlock" or "race", as the proofs say."""
    try:
        check_deadlock(plan)
        check_races(plan)
    except ProofError as error:
        return "deadlock" if isinstance(error, DeadlockError) else "race"
    return "ok"


def explore(plan: Plan) -> Outcome | None:
    return Explorer(plan, LAUNCHES).run(STATES)


def accepted(plan: Plan) -> bool:
    return verdict(plan) == "ok"


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_what_is_accepted_neither_hangs_nor_races(seed: int):
    plan = random_plan(random.Random(seed), sensible=0.85)
    if accepted(plan):
        outcome = explore(plan)
        assert outcome is None or outcome.correct


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_coarse_cells_decide_the_same(seed: int):
    plan = random_plan(random.Random(seed), sensible=0.95)
    with pytest.MonkeyPatch.context() as patch:
        fine = verdict(plan)
        patch.setattr(touches, "MANY", 0)
        patch.setattr(touches, "MANY_AT_LEAST", -1)
        assert verdict(plan) == fine


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_sets_compared_whole_decide_the_same(seed: int):
    plan = random_plan(random.Random(seed), sensible=0.95)
    with pytest.MonkeyPatch.context() as patch:
        fine = verdict(plan)
        patch.setattr(whole_runs, "MANY", -1)
        patch.setattr(whole_runs, "TIMES", 0)
        assert verdict(plan) == fine


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_deadlock_freedom_is_decided_exactly(seed: int):
    plan = random_plan(random.Random(seed), sensible=0.85)
    outcome = explore(plan)
    if outcome is not None:
        assert (verdict(plan) == "deadlock") == outcome.deadlock


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_happens_before_holds_in_every_run(seed: int):
    plan = random_plan(random.Random(seed), sensible=0.9)
    try:
        order = happens_before(plan)
    except (DeadlockError, RaceError):
        return
    outcome = explore(plan)
    if outcome is None:
        return
    wrong = [
        (a, b, gap)
        for a, b, gap in pairs(plan)
        if order.ordered(a, 0, b, gap)[0]
        and any(((a, e), (b, e + gap)) in outcome.unordered for e in range(LAUNCHES - gap))
    ]
    assert not wrong


def pairs(plan: Plan) -> Iterator[tuple[int, int, int]]:
    """Tasks and how many launches they lie apart; not the host's, who acts between launches."""
    kinds = [plan.ops[int(o)].kind for o in plan.tasks.op]
    tasks = [t for t, kind in enumerate(kinds) if kind not in HAND_OVERS]
    return ((a, b, gap) for a in tasks for b in tasks for gap in range(plan.copies + 1))


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_producers_and_consumers_with_credits_are_accepted(seed: int):
    plan = ring_plan(random.Random(seed)).plan()
    check_deadlock(plan)
    check_races(plan)


@settings(max_examples=25, deadline=None)
@given(SEEDS)
def test_broken_plans_are_refused(seed: int):
    """Without one wait or notify, or with a lower value, unless the plan is right all the same."""
    for broken in breaks(ring_plan(random.Random(seed))):
        if accepted(broken):
            outcome = explore(broken)
            assert outcome is None or outcome.correct


@pytest.mark.parametrize("boundary", Boundary)
def test_a_credit_that_is_missed_in_the_third_launch_first(boundary: Boundary):
    """Two slots, a launch each: the first launch that writes over a slot is the third."""
    b = PlanBuilder(2, boundary, copies=2)
    x, ready, free = b.buffer("x", (4,), copies=2), b.slot(1, copies=2), b.slot(0, copies=2)
    put = b.write(x, 1, (0, 4))
    b.task("put", b.lane(0), put, wait=[Wait(free, lag=2)], notify=[ready])
    b.task("use", b.lane(1), b.read(x, 1, (0, 4)), wait=[ready], notify=[free])
    check_races(b.plan())
    b.replace(0, waits=())
    for launches, races in ((2, False), (3, True)):
        outcome = Explorer(b.plan(), launches).run()
        assert outcome is not None
        assert bool(outcome.races) is races
    with pytest.raises(
        RaceError, match=r"@use\[0\] .* reads(.*\n)+.*@put\[0\] .* 2 launches later"
    ):
        check_races(b.plan())


def breaks(b: PlanBuilder) -> Iterator[Plan]:
    """The plan with one thing broken, in all ways."""
    whole = b.plan()
    counts = whole.slots.count.tolist()
    for i, task in enumerate(list(b.tasks)):
        for k, wait in enumerate(task.waits):
            others = task.waits[:k] + task.waits[k + 1 :]
            b.replace(i, waits=others)
            yield b.plan()
            for value in range(1, counts[wait.slot]):
                b.replace(i, waits=(*others, Wait(wait.slot, value, wait.lag)))
                yield b.plan()
            b.replace(i, waits=(*others, replace(wait, lag=wait.lag + 1)))
            yield b.plan()
        b.replace(i, waits=task.waits)
        for k in range(len(task.notifies)):
            b.replace(i, notifies=task.notifies[:k] + task.notifies[k + 1 :])
            fewer = b.plan()  # the slot's count shrinks with it, but not to 0
            if (fewer.waits.value > 0).all():
                yield fewer
            yield replace(fewer, slots=whole.slots, waits=whole.waits)
        b.replace(i, notifies=task.notifies)


@pytest.mark.exhaustive
def test_many_plans():
    """As above at length, with how often plans are refused that are right over four launches."""
    seen: Counter[tuple[str, str, bool]] = Counter()
    for seed in range(1500):
        for name, sensible in (("random", 0.6), ("sensible", 0.95)):
            plan = random_plan(random.Random(seed), sensible=sensible)
            outcome = explore(plan)
            if outcome is not None:
                seen[name, verdict(plan), outcome.correct] += 1
        if seed % 100 == 0:
            for broken in breaks(ring_plan(random.Random(seed))):
                outcome = explore(broken)
                if outcome is not None:
                    seen["broken", verdict(broken), outcome.correct] += 1
    print(*sorted(seen.items()), sep="\n")  # noqa: T201
    assert not any(count for (_, said, right), count in seen.items() if said == "ok" and not right)
    assert not any(
        count for (_, said, right), count in seen.items() if said == "deadlock" and right
    )
