"""The emitted matmul beside cuBLAS (`torch.mm`) on one GPU, at the sizes of one rank of eight.

    python -m benchmarks.gpu_gemm                     # all sizes
    python -m benchmarks.gpu_gemm 8192x1376x4096      # some, as MxNxK

A run of all sizes is written to benchmarks/results/gpu_gemm.json. Both kernels run in this process,
on the same operands, back to back in one stream and in an order that is shuffled every round; times
are medians between events. Nothing is asserted but that results agree: a ratio is cuBLAS's time
over ditron's, above 1 where ditron is faster.
"""

from __future__ import annotations

import json
import math
import platform
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import geometric_mean, median

import torch

import ditron as dt
from benchmarks.gpu_first_run import example, say
from ditron.backends.triton import CrossExecutor
from ditron.backends.triton.compile import check_loaded
from ditron.plan.tables import Plan
from ditron.runtime.gpu_layout import GpuLayout
from ditron.runtime.gpu_memory import RankMemory
from ditron.runtime.gpu_program import Launch, TritonProgram
from ditron.runtime.gpu_source import load_source, write_source

RESULTS = Path(__file__).resolve().parent / "results" / "gpu_gemm.json"
ROUNDS, WARM = 40, 3

# (M, N, K) of a rank: N sharded over 8 for AG+GEMM, K for GEMM+RS, as published; then rows that no
# tile divides.
AG_GEMM = tuple(
    (8192, n // 8, k)
    for n, k in (
        (11008, 4096), (14336, 4096), (28672, 8192), (53248, 16384), (29568, 8192), (49152, 12288),
    )
)  # fmt: skip
GEMM_RS = tuple(
    (8192, n, k // 8)
    for n, k in (
        (4096, 11008), (4096, 14336), (3584, 14336), (4608, 36864), (8192, 28672), (8192, 29568),
    )
)  # fmt: skip
RAGGED = ((997 * 8, 1376, 4096), (997 * 8, 3584, 8192), (997 * 8, 4096, 1376))
GROUPS = {"AG+GEMM": AG_GEMM, "GEMM+RS": GEMM_RS, "M = 997 x 8": RAGGED}

Shape = tuple[int, int, int]


def program_of(shape: Shape) -> dt.Program:
    """The matmul of one rank."""
    m, n, k = shape
    return example("00_matmul", m=m, n=n, k=k, tp=1)


@dataclass(frozen=True)
class Row:
    """One size: medians in ms, and how far the results are apart, by norm."""

    group: str
    m: int
    n: int
    k: int
    ditron_ms: float
    cublas_ms: float
    ratio: float
    difference: float
    tiles: list[str]
    registers: list[int]


class Emitted:
    """The kernels that ditron emits for a matmul on one rank, loaded into this process.

    Attributes:
        tiles, registers: of each kernel.
    """

    def __init__(self, shape: Shape, folder: Path) -> None:
        with dt.compile(program_of(shape), target="sm_90") as exe:
            executor = exe._executor  # pyright: ignore[reportPrivateUsage]
            assert isinstance(executor, CrossExecutor)
            plan, emitted = executor.plan, executor.program
        self._bytes = torch.empty(GpuLayout.of(plan).total, dtype=torch.uint8, device="cuda")
        self.memory = RankMemory(plan, emitted, 0, self._bytes, [self._bytes.data_ptr()])
        self.memory.start()
        self.source = write_source(emitted.source, folder)
        self.tiles = [_tile(plan, launch.op) for launch in emitted.launches]
        loaded = [self._load(launch, emitted) for launch in emitted.launches]
        self.calls = [call for call, _ in loaded]
        self.registers = [registers for _, registers in loaded]

    def _load(self, launch: Launch, emitted: TritonProgram) -> tuple[Callable[[], object], int]:
        """A kernel, compiled and checked: a call of it, and the registers of a thread."""
        kernel = getattr(load_source(self.source), launch.kernel)
        arguments = [self.memory.argument(a) for a in launch.arguments]
        grid = (launch.programs,)
        options = {
            "num_warps": launch.warps,
            "num_stages": launch.stages,
            "enable_fp_fusion": True,
        }
        made = kernel.warmup(*arguments, grid=grid, **options)
        made._init_handles()
        check_loaded(launch, made, emitted)
        return lambda: kernel[grid](*arguments, **options), int(made.n_regs)

    def run(self) -> None:
        """One launch."""
        for call in self.calls:
            call()


def _tile(plan: Plan, op: int) -> str:
    """`128x256`: what the first task of an op writes."""
    written = plan.accesses_of(int((plan.tasks.op == op).argmax()))[-1]
    sizes = plan.accesses.hi[written] - plan.accesses.lo[written]
    return "x".join(str(int(size)) for size in sizes)


def measure(shape: Shape, group: str, folder: Path) -> Row:
    """Both, on random operands."""
    m, n, k = shape
    emitted = Emitted(shape, folder)
    x, w, y = (emitted.memory.buffer(name) for name in ("x", "w", "y"))
    x.normal_()
    w.normal_(std=k**-0.5)
    y.fill_(math.nan)
    theirs = torch.mm(x, w)
    emitted.run()
    difference = _distance(y.float(), theirs.float())
    if not difference < 0.01:
        raise AssertionError(f"{m}x{n}x{k}: results differ by {difference}")
    calls: dict[str, Callable[[], object]] = {
        "ditron": emitted.run,
        "cublas": lambda: torch.mm(x, w, out=theirs),
    }
    times = {name: median(ts) for name, ts in _interleaved(calls).items()}
    return Row(
        group=group,
        m=m,
        n=n,
        k=k,
        ditron_ms=times["ditron"],
        cublas_ms=times["cublas"],
        ratio=times["cublas"] / times["ditron"],
        difference=difference,
        tiles=emitted.tiles,
        registers=emitted.registers,
    )


def _distance(got: torch.Tensor, want: torch.Tensor) -> float:
    return ((got - want).square().sum() / want.square().sum()).sqrt().item()


def _interleaved(calls: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Milliseconds of each of many calls, one after another without a pause."""
    order = random.Random(0)
    spans: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []
    for count in range(WARM + ROUNDS):
        for name in order.sample(list(calls), len(calls)):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            calls[name]()
            end.record()
            spans += [(name, begin, end)] if count >= WARM else []
    torch.cuda.synchronize()
    return {
        name: [begin.elapsed_time(end) for own, begin, end in spans if own == name]
        for name in calls
    }


def versions() -> dict[str, str]:
    """What the figures were taken with."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(query, capture_output=True, text=True, check=True)
    return {
        "gpu": torch.cuda.get_device_name(),
        "driver": driver.stdout.split()[0],
        "cuda": str(torch.version.cuda),
        "torch": torch.__version__,
        "triton": version("triton"),
        "python": platform.python_version(),
    }


def _shape(name: str) -> Shape:
    m, n, k = map(int, name.split("x"))
    return m, n, k


def main(names: list[str]) -> int:
    """Measure, print, and write down a complete run."""
    wanted = {
        (group, shape): "x".join(map(str, shape))
        for group, shapes in GROUPS.items()
        for shape in shapes
    }
    if names:
        wanted = {("", _shape(name)): name for name in names}
    used = versions()
    say(", ".join(f"{name} {value}" for name, value in used.items()))
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="ditron-") as folder:
        for (group, shape), name in wanted.items():
            row = measure(shape, group, Path(folder))
            rows.append(row)
            rate = 2e-9 * row.m * row.n * row.k
            say(
                f"{name:<16} ditron {row.ditron_ms:7.3f} ms {rate / row.ditron_ms:4.0f} TFLOP/s,"
                f" cuBLAS {row.cublas_ms:7.3f} ms {rate / row.cublas_ms:4.0f}, ratio"
                f" {row.ratio:.3f}  ({row.group}, tiles {' then '.join(row.tiles)})"
            )
            torch.cuda.empty_cache()
    ratios = [row.ratio for row in rows]
    say(f"geometric mean {geometric_mean(ratios):.3f}, least {min(ratios):.3f}")
    if not names:
        RESULTS.parent.mkdir(exist_ok=True)
        facts = {"versions": used, "rounds": ROUNDS, "rows": [asdict(row) for row in rows]}
        RESULTS.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
