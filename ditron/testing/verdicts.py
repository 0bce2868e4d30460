"""What the proofs say of a plan that stands in an executable's place."""

from __future__ import annotations

from ditron.analysis.report import prove
from ditron.analysis.symbols import find_task_program, kernels
from ditron.errors import PlanError, ProofError
from ditron.executable import Executable
from ditron.plan.tables import Plan


def verdict(executable: Executable, plan: Plan) -> ProofError | PlanError | None:
    """Prove a plan with an executable's kernels and program: None, or why it is refused."""
    module = executable.stages.last
    try:
        prove(plan, kernels(module), find_task_program(module))
    except (ProofError, PlanError) as error:
        return error
    return None
