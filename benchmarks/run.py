"""`make bench`: compile time, launch latency, and AG+GEMM on CPU ranks beside gloo + torch.mm.

Figures are medians of one run on this machine; nothing is asserted, since machines differ.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
import time
from pathlib import Path
from statistics import median

import torch

import ditron as dt
from benchmarks.gloo import Sizes, measure_baseline
from ditron.ir import task
from ditron.tools.inputs import make_inputs

REPEATS = 20
LAUNCHES = 300
AG_GEMM = Sizes(2048, 2048, 1024, 4)
LARGE = (8192, 28672, 8192, 8)


def ag_gemm(m: int, n: int, k: int, ranks: int, dtype: dt.DType) -> dt.Program:
    """The program of examples/01_ag_gemm.py."""
    path = Path(__file__).resolve().parent.parent / "examples" / "01_ag_gemm.py"
    spec = importlib.util.spec_from_file_location("ag_gemm", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.program(m=m, n=n, k=k, tp=ranks, dtype=dtype)


def inputs_of(program: dt.Program) -> dict[str, torch.Tensor]:
    """Seeded inputs."""
    return make_inputs(next(op for op in program.ir.ops if isinstance(op, task.ProgramOp)), seed=0)


def say(name: str, value: str, note: str = "") -> None:
    """One line of the report."""
    sys.stdout.write(f"  {name:<44}{value:>12}  {note}\n")
    sys.stdout.flush()


def compile_times() -> None:
    """`dt.compile` with proofs, at a large size and at half of it, with two tile sizes."""
    m, n, k, ranks = LARGE
    sys.stdout.write(f"dt.compile of AG+GEMM, {ranks} ranks, proofs included\n")
    dt.compile(ag_gemm(64, 64, 64, ranks, dt.bf16)).close()  # imports
    for tile in (None, (128, 256)):
        for columns in (n // 2, n):
            program = ag_gemm(m, columns, k, ranks, dt.bf16)
            start = time.perf_counter()
            with dt.compile(program, options=dt.Options(tile=tile)) as executable:
                seconds = time.perf_counter() - start
                tasks = len(executable.plan.tasks)
            shown = "x".join(map(str, tile)) if tile else "chosen"
            note = f"{tasks} tasks, tiles {shown}"
            say(f"({m}, {columns}, {k})", f"{seconds:.3f} s", note)


def launch_latency() -> None:
    """The smallest program: what a launch costs by itself."""
    sys.stdout.write("a launch of the smallest program: M = 8, N = 8, K = 8, 4 ranks\n")
    program = ag_gemm(8, 8, 8, 4, dt.f32)
    with dt.compile(program, target="cpu") as executable:
        seconds = executable.measure(inputs_of(program), repeats=LAUNCHES)
    say("median of launches", f"{1e3 * median(seconds):.3f} ms", f"{LAUNCHES} launches")


def overlapped_ag_gemm() -> None:
    """AG+GEMM beside the unfused library, and beside its matmuls alone."""
    s = AG_GEMM
    sys.stdout.write(f"AG+GEMM ({s.m}, {s.n}, {s.k}) f32, {s.ranks} ranks\n")
    program = ag_gemm(s.m, s.n, s.k, s.ranks, dt.f32)
    with dt.compile(program, target="cpu") as executable:
        ours = median(executable.measure(inputs_of(program), repeats=REPEATS))
    baseline = measure_baseline(s, REPEATS)
    theirs, alone = median(baseline.gathered), median(baseline.matmul_alone)
    say("ditron", f"{1e3 * ours:.1f} ms")
    say("torch.distributed gloo, then torch.mm", f"{1e3 * theirs:.1f} ms", f"{theirs / ours:.2f}x")
    say("torch.mm alone, same processes", f"{1e3 * alone:.1f} ms", f"{ours / alone:.2f}x of it")


def main() -> None:
    """Print all figures."""
    cores = len(os.sched_getaffinity(0))
    sys.stdout.write(f"{platform.machine()}, {cores} cores, torch {torch.__version__}\n")
    for part in (compile_times, launch_latency, overlapped_ag_gemm):
        part()


if __name__ == "__main__":
    main()
