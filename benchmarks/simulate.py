"""How fast plans are played, and how near to real launches on this machine's cores they come.

    python -m benchmarks.simulate [--tasks 1000000] [--real]

The first table plays the all-gather + matmul plan of `benchmarks.proofs` on several machines, and
programs of a thousand ranks from source to timeline. With `--real`, the second one compares what is
predicted for four CPU ranks with the median of measured launches; let nothing else run meanwhile.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import ditron as dt
from benchmarks.proofs import ag_gemm_plan
from benchmarks.run import inputs_of
from ditron.analysis.timeline import play
from ditron.plan.machine import load_machine
from ditron.plan.options import Options
from ditron.plan.tables import Plan
from ditron.tools.simulate import lower, show_us

MACHINES = ("h800x8", "mi300x8", "l20x8-pcie", "cpu")
PODS = "h800x8x128"
REAL = {
    "01_ag_gemm": ((2048, 2048, 1024), (4096, 256, 2048), (512, 1024, 1024)),
    "02_gemm_rs": ((2048, 2048, 1024), (4096, 256, 2048), (512, 1024, 1024)),
    "03_gemm_ar": ((2048, 2048, 1024), (4096, 256, 2048), (512, 1024, 1024)),
}
REPEATS = 15


def example(name: str) -> Callable[..., dt.Program | dt.DeviceProgram]:
    """`program` of an example."""
    path = Path(__file__).resolve().parent.parent / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.program


def say(*cells: object) -> None:
    """One row."""
    sys.stdout.write("".join(f"{cell!s:<26}" for cell in cells).rstrip() + "\n")
    sys.stdout.flush()


def played(what: str, make: Callable[[], Plan], machine: str) -> None:
    """One row: how long a plan took to make and to play."""
    start = time.process_time()
    plan = make()
    made = time.process_time()
    timeline = play(plan, load_machine(machine))
    done = time.process_time()
    figures = f"{made - start:.1f} s", f"{done - made:.1f} s", show_us(timeline.makespan_us)
    say(f"{what} on {machine}", plan.ranks, len(plan.tasks), *figures)


def speed(tasks: int) -> None:
    """Plans of many tasks, programs of many ranks."""
    say("plan", "ranks", "tasks", "made in, cpu", "played in, cpu", "launch")
    for machine in MACHINES:
        played("AG+GEMM", lambda: ag_gemm_plan(tasks, 8, 132), machine)
    mesh = example("05_two_axes")(m=1024, n=512, k=512, dp=128, tp=8)
    played("two axes", lambda: lower(mesh.ir.clone(), PODS, Options()), PODS)
    ring = example("10_ring_all_gather")
    played("ring", lambda: lower(ring(m=65536, tp=1024).ir.clone(), PODS, Options()), PODS)


def real() -> None:
    """Predicted and measured launches of four CPU ranks."""
    say("f32, 4 ranks, M N K", "predicted", "measured", "predicted / measured")
    for name, shapes in REAL.items():
        for m, n, k in shapes:
            program = example(name)(m=m, n=n, k=k, tp=4, dtype=dt.f32)
            assert isinstance(program, dt.Program)
            with dt.compile(program) as executable:
                inputs = inputs_of(program)
                executable.measure(inputs, 3)
                took = median(executable.measure(inputs, REPEATS)) * 1e6
                predicted = play(executable.plan, load_machine("cpu")).makespan_us
            ratio = f"{predicted / took:.2f}"
            say(f"{name[3:]} {m} {n} {k}", show_us(predicted), show_us(took), ratio)


def main() -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--real", action="store_true")
    given = parser.parse_args()
    speed(given.tasks)
    if given.real:
        real()


if __name__ == "__main__":
    main()
