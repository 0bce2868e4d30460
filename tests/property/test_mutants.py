"""Broken plans of library programs are refused, or right in every order tried."""

from __future__ import annotations

import pytest
import torch

import ditron as dt
from ditron import testing
from tests.property.mutant_table import Tally, ag_gemm, compiled, judge, programs


def test_a_sample_of_mutants():
    total = Tally()
    for i, (_, program, options) in enumerate(programs(2)):
        executable = compiled(program, options)
        if executable is not None:
            with executable:
                total.include(judge(program, executable, every=29, offset=i, seeds=range(4)))
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


@pytest.mark.exhaustive
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_all_mutants(ranks: int):
    total = Tally()
    for name, program, options in programs(ranks):
        executable = compiled(program, options)
        if executable is not None:
            with executable:
                tally = judge(program, executable, every=1, offset=0, seeds=range(12))
            print(name, tally)  # noqa: T201
            total.include(tally)
    print(total)  # noqa: T201
    assert not total.wrong
