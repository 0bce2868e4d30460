"""Small programs by hand: right ones are right in every order, wrong ones are refused for it."""

from __future__ import annotations

from collections.abc import Iterator

import hand_programs as hand
import pytest
import torch
from xdsl.context import Context

import ditron as dt
from ditron import testing
from ditron.analysis.expand import expand
from ditron.analysis.report import prove
from ditron.analysis.symbols import find_task_program, kernels
from ditron.errors import DeliveryError, DitronError, ProgramError, RaceError
from ditron.passes.plan_memory import PlanMemoryPass
from ditron.plan.tables import Plan, Role

# Program, the error that its wrong version is refused by, and what that says.
CASES: list[tuple[hand.Hand, type[DitronError], str]] = [
    (hand.chain, RaceError, r"@hop\[0\] on rank 0 .* writes(.*\n)+.*@hop\[0\] on rank 1 .* reads"),
    (hand.tree, RaceError, r"@hop\[1\] on rank 1 .* reads %y.* at rank 1"),
    (hand.tree_sum, DeliveryError, "holds that without the term of rank 3"),
    (hand.doubled, RaceError, r"@take\[0\].* reads(.*\n)+.*@send\[2\] .* writes"),
    (hand.two_levels, RaceError, r"@inner\[1\] on rank 1 (.*\n)+.*@across\[1\] on rank 0"),
    (hand.doubling, RaceError, r"@swap\[1\] .* writes(.*\n)+.*@swap\[2\] on rank .* reads"),
    (hand.exchange, ProgramError, "give each producer lane a slot of its own"),
    (hand.pulled, RaceError, r"@pull\[1\] .* reads %x.* rank 0 (.*\n)+.*@close\[0\] on rank 0"),
    (hand.tiles, RaceError, r"@use\[2, 1, 1\] on rank 1"),
    (hand.uneven, DeliveryError, r"nobody has written %y\[9:10"),
    (hand.batched, RaceError, r"@send\[0, 1\]"),
    (hand.turn, RaceError, r"@send\[0\] on rank 2 (.*\n)+.*@take\[0\] on rank 0"),
]
NAMES = [program.__name__ for program, _, _ in CASES]
PROGRAMS = [program for program, _, _ in CASES]


def plan_of(d: dt.DeviceProgram) -> Plan:
    module = d.ir
    PlanMemoryPass(reuse=False).apply(Context(), module)
    return expand(module)


def prove_all(d: dt.DeviceProgram) -> None:
    module = d.ir
    prove(plan_of(d), kernels(module), find_task_program(module))


def inputs(exe: dt.Executable, launch: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(launch)
    return {
        name: torch.randint(-9, 10, spec.shape, generator=generator).float()
        for name, spec in exe.tensors(Role.INPUT).items()
    }


def right_runs(program: hand.Hand, seeds: range, plan: Plan | None = None) -> Iterator[bool]:
    """Whether each order gives what torch gives, of the right program or of a plan like it."""
    d = program(False)
    with dt.compile(d) as exe:
        expected = [d.reference(inputs(exe, e))["y"] for e in (1, 2, 3)]
        for run in testing.interleavings(exe, lambda e: inputs(exe, e), seeds=seeds, plan=plan):
            yield run.finished and all(
                torch.equal(got["y"], want) for got, want in zip(run.outputs, expected, strict=True)
            )


@pytest.mark.parametrize("program", PROGRAMS, ids=NAMES)
def test_right_ones_are_right_in_every_order(program: hand.Hand):
    assert all(right_runs(program, range(25)))


@pytest.mark.exhaustive
@pytest.mark.parametrize("program", PROGRAMS, ids=NAMES)
def test_right_ones_are_right_in_a_thousand_orders(program: hand.Hand):
    assert all(right_runs(program, range(1000)))


@pytest.mark.parametrize(("program", "kind", "message"), CASES, ids=NAMES)
def test_wrong_ones_are_refused(program: hand.Hand, kind: type[DitronError], message: str):
    with pytest.raises(kind, match=message) as caught:
        prove_all(program(True))
    assert (caught.value.where or "").startswith(hand.__file__)


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p is not hand.exchange])
def test_wrong_ones_do_go_wrong(program: hand.Hand):
    assert not all(right_runs(program, range(100), plan_of(program(True))))
