"""What was proved about a plan, with counts and times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import perf_counter

from ditron.analysis.deadlock import DeadlockReport, check_deadlock
from ditron.analysis.delivery import DeliveryReport, check_delivery
from ditron.analysis.own_overlaps import check_own_overlaps
from ditron.analysis.proof_cache import ProofCache, proof_key
from ditron.analysis.races import RaceReport, check_races
from ditron.ir import core, task
from ditron.plan.tables import Plan


@dataclass(frozen=True)
class ProofReport:
    """The proofs that hold. `delivery` is None where there is no task program to hold it against.

    `tasks`, `lanes`, `waits`, `notifies` and `slots` are the plan's; `pairs` are those of accesses
    that happens-before was asked for, `cells` those that delivery compared or ran on. The times
    are of when it was first proved; `cache_seconds` is what finding that again took.
    """

    name: str
    ranks: int
    tasks: int
    lanes: int
    waits: int
    notifies: int
    slots: int
    pairs: int
    cells: int
    deadlock: DeadlockReport
    races: RaceReport
    delivery: DeliveryReport | None
    deadlock_seconds: float
    race_seconds: float
    delivery_seconds: float
    cache_seconds: float | None = None

    @property
    def seconds(self) -> float:
        """What all proofs took."""
        return self.deadlock_seconds + self.race_seconds + self.delivery_seconds

    def __str__(self) -> str:
        again = ""
        if self.cache_seconds is not None:
            again = f" (proved before, found in {1e3 * self.cache_seconds:.1f} ms)"
        lines = [
            f"proved {self.name} on {self.ranks} ranks: {self.tasks} tasks on {self.lanes} lanes,"
            f" {self.waits} waits, {self.notifies} notifies, {self.slots} signal slots{again}",
            _line("deadlock-free", f"{self.tasks} tasks run to the end", self.deadlock_seconds),
            _line(
                "race-free",
                f"{self.pairs} pairs of accesses ordered over {self.races.launches} launches,"
                f" {self.waits} waits exact",
                self.race_seconds,
            ),
        ]
        if self.delivery is None:
            lines.append("  delivery       not proved: there is no task program to hold it against")
            return "\n".join(lines)
        outputs = self.delivery.outputs
        lines.append(
            _line(
                "delivery",
                f"{outputs} output{'s' if outputs > 1 else ''} as the program says, on every rank,"
                f" in {self.cells} cells",
                self.delivery_seconds,
            )
        )
        return "\n".join(lines)


def _line(name: str, what: str, seconds: float) -> str:
    return f"  {name:14} {what} ({1e3 * seconds:.1f} ms)"


def prove(
    plan: Plan, kernels: Mapping[str, core.FuncOp], program: task.ProgramOp | None
) -> ProofReport:
    """Prove that a plan finishes, has no race, and delivers what the program says.

    A proof of the same plan, kernels and program that was made before is taken over.

    Raises:
        ProofError: one of them fails; the message is the counterexample.
        PlanError: tables that mean nothing, or buffers that are not the program's.
    """
    start = perf_counter()
    key = proof_key(plan, kernels, program)
    found = PROVED.get(key)
    if found is not None:
        return replace(found, cache_seconds=perf_counter() - start)
    report = _prove(plan, kernels, program)
    PROVED.put(key, report)
    return report


PROVED = ProofCache(ProofReport)
"""The proofs of this process."""


def _prove(
    plan: Plan, kernels: Mapping[str, core.FuncOp], program: task.ProgramOp | None
) -> ProofReport:
    start = perf_counter()
    deadlock = check_deadlock(plan)
    finished = perf_counter()
    races = check_races(plan)
    check_own_overlaps(plan, kernels)
    ordered = perf_counter()
    delivery = None if program is None else check_delivery(plan, kernels, program)
    end = perf_counter()
    return ProofReport(
        name=plan.name,
        ranks=plan.ranks,
        tasks=len(plan.tasks),
        lanes=len(plan.lanes),
        waits=len(plan.waits),
        notifies=len(plan.notifies),
        slots=len(plan.slots),
        pairs=races.pairs,
        cells=0 if delivery is None else delivery.cells,
        deadlock=deadlock,
        races=races,
        delivery=delivery,
        deadlock_seconds=finished - start,
        race_seconds=ordered - finished,
        delivery_seconds=end - ordered,
    )
