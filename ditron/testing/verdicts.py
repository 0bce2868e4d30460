"""What the proofs say of a plan that stands in an executable's place."""

from __future__ import annotations

from functools import lru_cache

from xdsl.context import Context
from xdsl.dialects import builtin
from xdsl.dialects.builtin import ModuleOp

from ditron.analysis.report import prove
from ditron.analysis.symbols import find_task_program, kernels
from ditron.errors import PlanError, ProofError
from ditron.executable import Executable
from ditron.ir.frontend import parse_module
from ditron.plan.tables import Plan
from ditron.universe import DIALECTS


def verdict(executable: Executable, plan: Plan) -> ProofError | PlanError | None:
    """Prove a plan with an executable's kernels and program: None, or why it is refused."""
    module = _module(list(executable.stages.values())[-1])
    try:
        prove(plan, kernels(module), find_task_program(module))
    except (ProofError, PlanError) as error:
        return error
    return None


@lru_cache(maxsize=4)
def _module(text: str) -> ModuleOp:
    context = Context()
    context.register_dialect("builtin", lambda: builtin.Builtin)
    for name, load in DIALECTS.items():
        context.register_dialect(name, load)
    return parse_module(context, text, "<stage>")
