"""What was proved about a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter

from ditron.analysis.deadlock import check_deadlock
from ditron.analysis.happens_before import happens_before
from ditron.analysis.races import check_races
from ditron.ir import core, task
from ditron.plan.tables import Plan


@dataclass(frozen=True)
class ProofReport:
    tasks: int
    seconds: float


def prove(plan: Plan, kernels: Mapping[str, core.FuncOp], program: task.ProgramOp | None) -> ProofReport:
    start = perf_counter()
    check_deadlock(plan)
    check_races(plan, happens_before(plan))
    return ProofReport(len(plan.tasks), perf_counter() - start)
