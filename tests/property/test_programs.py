"""Whole programs, drawn at random, from the builder to what a run gives.

Plans run in the interleaved executor: three launches with no barrier between them, in orders that
seeds pick. `make exhaustive` draws many more.
"""

from __future__ import annotations

import random

from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from ditron.analysis.deadlock import check_deadlock
from ditron.analysis.races import check_races
from ditron.errors import DeadlockError, PlanError, RaceError
from ditron.plan.tables import Plan
from ditron.tools.check import bit_equal
from ditron.tools.loading import parse_dump
from tests.property.mutants import Mutant, mutants
from tests.property.programs import Case, cases, layered, walks
from tests.property.running import Trial

LAUNCHES = 3
SEEDS = 3

drawn = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
)


def check_case(case: Case, seeds: int = SEEDS, launches: int = LAUNCHES) -> None:
    """It compiles, and in every order every launch gives the same right bits."""
    note(str(case))
    trial = Trial.of(case)
    first = trial.run(0, launches)
    trial.check(first)
    for seed in range(1, seeds):
        parts = trial.run(seed, launches)
        for key, ones in first.items():
            same = [bit_equal(a, b) for a, b in zip(ones, parts[key], strict=True)]
            assert all(same), f"{key} of seed {seed} differs from seed 0 on {same}"


@settings(drawn, max_examples=60)
@given(layered())
def test_tensor_parallel_layers(case: Case) -> None:
    check_case(case)


@settings(drawn, max_examples=120)
@given(walks())
def test_any_ops_in_any_order(case: Case) -> None:
    check_case(case)


@settings(drawn, max_examples=15)
@given(cases())
def test_every_stage_prints_parses_back_and_verifies(case: Case) -> None:
    check_stages(case)


def check_stages(case: Case) -> None:
    """The text of every stage is that of the module it parses to; the same twice."""
    note(str(case))
    trial = Trial.of(case)
    stages = trial.executable.stages
    for name, text in stages.items():
        module = parse_dump(text, name)
        module.verify()
        assert str(module) == text, name
    again = Trial.of(case).executable
    assert dict(stages) == dict(again.stages)
    assert trial.executable.kernels == again.kernels


def refused(plan: Plan) -> str:
    """Why the proofs refuse a plan; "" if they do not."""
    try:
        check_deadlock(plan)
        check_races(plan)
    except (DeadlockError, RaceError, PlanError) as error:
        return str(error)
    return ""


def goes_wrong(trial: Trial, plan: Plan, seeds: int) -> str:
    """How a plan goes wrong in some order; "" if it does in none of those tried."""
    for seed in range(seeds):
        try:
            trial.check(trial.run(seed, LAUNCHES, plan))
        except (AssertionError, DeadlockError) as error:
            return f"seed {seed}: {type(error).__name__} {error}"[:400]
    return ""


def check_mutant(trial: Trial, mutant: Mutant, seeds: int) -> bool:
    """The proofs refuse it, or it is right in every order tried; whether they refuse it."""
    if refused(mutant.plan):
        return True
    wrong = goes_wrong(trial, mutant.plan, seeds)
    assert not wrong, f"proved, {mutant.what}, but {wrong}"
    return False


@settings(drawn, max_examples=25)
@given(cases(), st.integers(0, 1 << 32))
def test_less_signals_are_refused_unless_they_were_not_needed(case: Case, seed: int) -> None:
    check_mutants(case, seed, most=12, seeds=20)


def check_mutants(case: Case, seed: int, most: int, seeds: int) -> None:
    """Some mutants of a case."""
    note(str(case))
    trial = Trial.of(case)
    every = list(mutants(trial.plan))
    for mutant in random.Random(seed).sample(every, min(len(every), most)):
        check_mutant(trial, mutant, seeds)
