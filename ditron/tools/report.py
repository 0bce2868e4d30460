"""Results as text for people and as data for programs."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, is_dataclass
from pathlib import Path

from ditron.analysis.counterexample import Found, counterexample_data
from ditron.errors import OptionError, ProofError
from ditron.plan.tables import Plan
from ditron.tools.execute import RunRequest, RunResult
from ditron.tools.picture import draw
from ditron.tools.plan_tables import plan_data, plan_report
from ditron.tools.show import columns, console, decision_rows, launch_times


def print_run(result: RunResult, request: RunRequest) -> None:
    """A run: decisions, proofs, times, outputs, agreement."""
    out = console()
    out.print(f"[bold]{result.program}[/bold] on {result.ranks} ranks")
    if result.decisions:
        out.print("\n[bold]decisions[/bold]")
        out.print(columns(decision_rows(result.decisions)), markup=False)
    out.print("\n[bold]proofs[/bold]")
    out.print(result.proofs, markup=False)
    if result.seconds:
        out.print("\n[bold]time[/bold]")
        out.print(launch_times(result.seconds))
    out.print("\n[bold]outputs[/bold]")
    for name, tensor in result.outputs.items():
        out.print(f"{name}: {tuple(tensor.shape)} {tensor.dtype}", markup=False)
    if request.trace is not None:
        out.print(f"\ntrace written to {request.trace}: open it in Perfetto", markup=False)
    if result.agreements:
        out.print("\n[bold]agreement[/bold]")
        for agreement in result.agreements:
            style = "green" if agreement.agrees else "bold red"
            out.print(str(agreement), style=style, markup=False)


def run_data(result: RunResult) -> dict[str, object]:
    """A run as data; tensors by shape and dtype."""
    return {
        "program": result.program,
        "ranks": result.ranks,
        "decisions": [asdict(d) for d in result.decisions],
        "proofs": result.proofs.splitlines(),
        "seconds": result.seconds,
        "outputs": {
            name: {"shape": list(t.shape), "dtype": str(t.dtype).removeprefix("torch.")}
            for name, t in result.outputs.items()
        },
        "check": [{**asdict(a), "bound": a.bound, "agrees": a.agrees} for a in result.agreements],
        "agrees": result.agrees,
    }


def proof_data(report: object) -> dict[str, object]:
    """A proof report as data, with its text."""
    data = asdict(report) if is_dataclass(report) and not isinstance(report, type) else {}
    return {"proved": True, "text": str(report).splitlines(), **data}


def failure_data(error: ProofError) -> dict[str, object]:
    """A failed proof as data: the message, where it is about, and the counterexample."""
    found = error.counterexample
    return {
        "proved": False,
        "error": type(error).__name__,
        "where": error.where,
        "text": error.message.splitlines(),
        "counterexample": None if found is None else counterexample_data(found),
    }


def write_picture(error: ProofError, path: Path) -> None:
    """Draw the counterexample of a failed proof.

    Raises:
        OptionError: the file cannot be written.
    """
    found = error.counterexample
    if not isinstance(found, Found):
        return
    try:
        path.write_text(draw(found))
    except OSError as fault:
        raise OptionError(f"cannot write {path}: {fault.strerror}") from fault


def print_plan(plan: Plan, *, as_json: bool) -> None:
    """The plan as tables, or all of it as data."""
    if as_json:
        sys.stdout.write(json.dumps(plan_data(plan)) + "\n")
        return
    out = console()
    for part in plan_report(plan):
        out.print(part, markup=False)
