"""Broken plans of library programs are refused, or right in every order tried."""

from __future__ import annotations

import random

import pytest
import torch

import ditron as dt
from ditron import testing
from ditron.errors import PlanError
from ditron.plan.tables import Plan
from tests.property.mutant_table import Tally, ag_gemm, compiled, judge, programs
from tests.property.random_plans import batched_plan, ring_plan
from tests.property.test_proofs import accepted, explore


def test_a_sample_of_mutants():
    total = Tally()
    for i, (_, program, options) in enumerate(programs(2)):
        executable = compiled(program, options)
        if executable is not None:
            with executable:
                total.include(judge(program, executable, every=37, offset=i, seeds=range(4)))
    assert not total.wrong, str(total)
    assert total.mutants > 50
    assert total.refused.total() > total.harmless.total()


def test_kinds():
    with dt.compile(ag_gemm(3), options=dt.Options(algorithm="mesh-push")) as exe:
        kinds = {m.kind for m in testing.mutants(exe.plan)}
    assert {"wait dropped", "notify dropped", "value raised", "order swapped"} <= kinds
    assert {"wrong peer as source", "wrong target", "box shrunk", "buffers overlap"} <= kinds


def test_the_program_itself_is_right_in_every_order():
    program = ag_gemm(3)
    tensors = {"x": torch.arange(28.0).reshape(7, 4), "w": torch.ones(4, 6)}
    with dt.compile(program) as exe:
        assert testing.verdict(exe, exe.plan) is None
        runs = list(testing.interleavings(exe, tensors, seeds=range(3), launches=2))
    assert all(r.finished for r in runs)
    want = program.reference(tensors)["y"]
    assert all(torch.equal(launch["y"], want) for r in runs for launch in r.outputs)


def test_a_hang_is_told():
    with dt.compile(ag_gemm(2)) as exe:
        mutant = next(m for m in testing.mutants(exe.plan) if m.kind == "notify dropped")
        tensors = {"x": torch.ones(5, 4), "w": torch.ones(4, 4)}
        (run,) = testing.interleavings(exe, tensors, seeds=[0], plan=mutant.plan)
        assert testing.verdict(exe, mutant.plan) is not None
    assert not run.finished
    assert "nothing can run" in (run.hang or "")


def proved(plan: Plan) -> bool:
    try:
        return accepted(plan)
    except PlanError:
        return False


def judge_by_hand(seed: int, every: int) -> Tally:
    """Plans with doubled slots and transfers in flight: every order of four launches decides."""
    tally, rng = Tally(), random.Random(seed)
    for make in (batched_plan, ring_plan):
        plan = make(rng).plan()
        assert proved(plan)
        for mutant in list(testing.mutants(plan))[seed % every :: every]:
            if not proved(mutant.plan):
                tally.refused[mutant.kind] += 1
                continue
            outcome = explore(mutant.plan)
            if outcome is None:
                continue
            if outcome.correct:
                tally.harmless[mutant.kind] += 1
            else:
                tally.wrong.append(f"{make.__name__} {seed}: {mutant.what}")
    return tally


def test_mutants_of_plans_by_hand():
    total = Tally()
    for seed in range(12):
        total.include(judge_by_hand(seed, every=3))
    assert not total.wrong, str(total)
    for kind in ("fence left out", "buffer not doubled", "credit too shallow", "credit missing"):
        assert total.refused[kind], kind


@pytest.mark.exhaustive
def test_all_mutants_of_plans_by_hand():
    total = Tally()
    for seed in range(100):
        total.include(judge_by_hand(seed, every=1))
    print(total)  # noqa: T201
    assert not total.wrong
    assert total.refused["slot not doubled"]


# Each so many-th mutant on that many ranks, and of one program at most about so many.
EVERY = {2: 1, 3: 1, 4: 1, 5: 5, 6: 9, 7: 14, 8: 21}
MOST = 500


@pytest.mark.exhaustive
@pytest.mark.parametrize("ranks", EVERY)
def test_all_mutants(ranks: int):
    total = Tally()
    for i, (name, program, options) in enumerate(programs(ranks)):
        executable = compiled(program, options)
        if executable is not None:
            with executable:
                many = sum(1 for _ in testing.mutants(executable.plan))
                every = max(EVERY[ranks], many // MOST)
                tally = judge(program, executable, every, offset=i, seeds=range(12))
            print(name, tally)  # noqa: T201
            total.include(tally)
    print(total)  # noqa: T201
    assert not total.wrong
