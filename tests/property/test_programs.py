"""Whole programs, drawn at random, from the builder to what a run gives.

Plans run in the interleaved executor: three launches with no barrier between them, in orders that
seeds pick. `make exhaustive` draws many more.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

import ditron as dt
from ditron.errors import DeadlockError, PlanError
from ditron.plan.tables import Plan
from ditron.runtime.interleave import run_interleaved
from ditron.testing import Mutant, mutants, verdict
from ditron.tools.check import bit_equal
from ditron.tools.loading import parse_dump
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
    note(str(case))
    check_case(case)


@settings(drawn, max_examples=120)
@given(walks())
def test_any_ops_in_any_order(case: Case) -> None:
    note(str(case))
    check_case(case)


@settings(drawn, max_examples=40)
@given(walks(wide=True))
def test_other_collectives_too(case: Case) -> None:
    note(str(case))
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


Body = Callable[[dt.Program], object]

S0, S1, R = dt.Shard(0), dt.Shard(1), dt.Replicate()


def write(body: Body, tp: int) -> dt.Program:
    with dt.Program("written", dt.Mesh(tp=tp)) as p:
        body(p)
    return p


def two_outputs(p: dt.Program) -> None:
    """Outputs in another order than they are computed, an input among them."""
    x = p.input("x", (6, 4), dt.f32, S0)
    first, second = dt.relu(x), dt.mul(x, x)
    p.output("c", second)
    p.output("x.1", x)
    p.output("a", dt.all_gather(first, dim=0, name="c"))
    p.output("b", first)


def columns_in_shared_bytes(p: dt.Program) -> None:
    """Column slices interleave in memory that an earlier buffer had: they do not meet."""
    p.output("y", dt.relu(dt.all_gather(p.input("x", (3, 4), dt.f32, S1), dim=1)))
    p.output("z", dt.relu(dt.relu(p.input("x2", (3, 4), dt.f32, R))))


def nothing_to_scatter(p: dt.Program) -> None:
    """The dimension that is not scattered is empty."""
    a, b = p.input("a", (5, 4), dt.f32, S1), p.input("b", (0, 4), dt.f32, S1)
    p.output("y", dt.reduce_scatter(dt.matmul(a, b, transpose_b=True), dim=0))


def seven_dims(p: dt.Program) -> None:
    x = p.input("x", (2, 1, 3, 1, 2, 1, 2), dt.f32, dt.Shard(4))
    p.output("y", dt.all_gather(dt.relu(x), dim=4))


WRITTEN: dict[str, tuple[Body, int, dt.Options]] = {
    "outputs in any order": (two_outputs, 3, dt.Options()),
    "shared bytes": (
        columns_in_shared_bytes,
        4,
        dt.Options(algorithm="mesh-pull", fusion=False, tile=(2, 2), workers=2),
    ),
    "ring of nothing": (nothing_to_scatter, 2, dt.Options(algorithm="ring")),
}


@pytest.mark.parametrize("what", WRITTEN)
def test_programs_that_once_went_wrong(what: str) -> None:
    body, tp, options = WRITTEN[what]
    check_case(Case(write(body, tp), options, exact=True))


def test_seven_dims_are_refused() -> None:
    with pytest.raises(PlanError, match="relu has too many dimensions: a grid has at most 6"):
        dt.compile(write(seven_dims, 2))


@pytest.mark.parametrize("fusion", [None, False])
@pytest.mark.parametrize("between", [dt.i32, dt.i64, dt.bool], ids=str)
def test_a_cast_that_changes_values_stays(between: dt.DType, fusion: bool | None) -> None:
    def body(p: dt.Program) -> None:
        p.output("y", dt.cast(dt.cast(p.input("x", (2, 3), dt.f32, R), between), dt.f32))

    case = Case(write(body, 1), dt.Options(fusion=fusion), exact=True)
    x = torch.tensor([[0.5, -1.75, 0.0], [7.9, -0.25, 3.0]])
    trial = Trial.of(case)
    ran = run_interleaved(trial.plan, trial.kernels, {("x", 0): x})
    assert ran.outputs[1, "y", 0].equal(case.program.reference({"x": x})["y"])


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
    if verdict(trial.executable, mutant.plan) is not None:
        return True
    wrong = goes_wrong(trial, mutant.plan, seeds)
    assert not wrong, f"proved, {mutant.what}, but {wrong}"
    return False


@settings(drawn, max_examples=12)
@given(cases(), st.integers(0, 1 << 32))
def test_mutants_are_refused_unless_they_are_right_in_every_order(case: Case, seed: int) -> None:
    check_mutants(case, seed, most=8, seeds=12)


def check_mutants(case: Case, seed: int, most: int, seeds: int) -> None:
    """Some mutants of a case."""
    note(str(case))
    trial = Trial.of(case)
    every = list(mutants(trial.plan))
    for mutant in random.Random(seed).sample(every, min(len(every), most)):
        check_mutant(trial, mutant, seeds)
