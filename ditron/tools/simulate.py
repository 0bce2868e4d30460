"""What `ditron simulate` does: lower a program for a machine and play its plan there."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from ditron.analysis.expand import expand
from ditron.analysis.symbols import find_device_program
from ditron.analysis.timeline import Timeline
from ditron.backends.simulate import OpTime, op_times, simulate
from ditron.errors import OptionError
from ditron.pipelines import default_pipeline
from ditron.plan.machine import Machine, load_machine
from ditron.plan.options import Options
from ditron.plan.tables import Plan
from ditron.tools.loading import Source
from ditron.tools.show import columns, console, progress


@dataclass(frozen=True)
class Simulation:
    """A predicted launch: the plan, when its tasks ran, and a row an op."""

    machine: Machine
    plan: Plan
    timeline: Timeline
    ops: list[OpTime]


def run_simulation(source: Source, machine: str, options: Options) -> Simulation:
    """Lower and play.

    Raises:
        OptionError: the program has more ranks than the machine.
    """
    described = load_machine(machine)
    with progress(f"simulating {source.path.name} on {described.name}"):
        plan = lower(source.module.clone(), machine, options)
        check_ranks(plan.name, plan.ranks, described)
        timeline = simulate(plan, described)
    return Simulation(described, plan, timeline, op_times(plan, timeline))


def check_ranks(program: str, ranks: int, machine: Machine) -> None:
    """A machine must have room for a program.

    Raises:
        OptionError: it has not.
    """
    if ranks > machine.max_ranks:
        raise OptionError(
            f"{program} has {ranks} ranks, machine {machine.name} at most {machine.max_ranks}"
        )


def lower(module: ModuleOp, machine: str, options: Options) -> Plan:
    """The plan of a program as the pipeline makes it for a machine; the module is changed."""
    enabled = gc.isenabled()
    gc.disable()  # IR has many cycles; collecting while it is built costs more than it frees
    try:
        if find_device_program(module) is None:
            run_passes(module, default_pipeline(for_machine(options, machine), machine))
        return expand(module)
    finally:
        if enabled:
            gc.enable()


def run_passes(module: ModuleOp, passes: Sequence[ModulePass]) -> None:
    """Run passes one after another."""
    context = Context()
    for one in passes:
        one.apply(context, module)


def for_machine(options: Options, machine: str) -> Options:
    """Options with as many lanes as the machine has, where the user did not give a number."""
    described, usual = load_machine(machine), Options()
    lanes: dict[str, int] = {}
    if options.workers == usual.workers:
        lanes["workers"] = described.workers
    if options.copy_lanes == usual.copy_lanes:
        lanes["copy_lanes"] = described.engines["copy"].lanes
    return replace(options, **lanes)


def print_simulation(result: Simulation) -> None:
    """The makespan, and when each op ran."""
    out = console()
    plan = result.plan
    title = f"[bold]{plan.name}[/bold] on {plan.ranks} ranks of machine {result.machine.name}"
    out.print(f"{title}: {show_us(result.timeline.makespan_us)} predicted for a launch\n")
    rows = [
        (
            f"@{op.name}",
            op.kind,
            op.engine,
            op.tasks,
            show_us(op.begin_us),
            show_us(op.end_us),
            show_us(op.busy_us),
        )
        for op in result.ops
    ]
    headers = ("op", "kind", "engine", "tasks", "from", "to", "busiest rank")
    out.print(columns(rows, headers), markup=False)


def simulation_data(result: Simulation) -> dict[str, object]:
    """The same for programs."""
    return {
        "program": result.plan.name,
        "ranks": result.plan.ranks,
        "machine": result.machine.name,
        "makespan_us": result.timeline.makespan_us,
        "tasks": len(result.plan.tasks),
        "busy_us": result.timeline.busy_us(result.plan),
        "ops": [asdict(op) for op in result.ops],
    }


def show_us(us: float) -> str:
    """`812 us`, `41.0 ms`."""
    if us < 1e3:
        return f"{us:.3g} us" if us < 100 else f"{us:.0f} us"
    return f"{us / 1e3:.3g} ms" if us < 1e6 else f"{us / 1e6:.3g} s"
