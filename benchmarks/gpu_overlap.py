"""AG+GEMM and GEMM+RS on one GPU with its peers behind PCIe, beside doing one after the other.

    python -m benchmarks.gpu_overlap                     # all shapes of both
    python -m benchmarks.gpu_overlap ag:8192,12288,8192  # (M, N, K) of a rank, as many as wanted
    python -m benchmarks.gpu_overlap rs:8192,8192,12288

Rank 0 of eight runs; its peers compute nothing, and their memory is pinned host memory, so that
copies between them and the rank take the PCIe link (about 55 GB/s each way), which makes transfers
and products of ordinary shapes take about equally long. What runs is what
`Options(transport="copy-engine")` makes of the program for that rank: chunk copies and flags on
side streams, tiles that wait for them, or copies that wait for tiles. In GEMM+RS the peers'
partial sums come in while the rank's go out; the sum itself, whose credits go over PCIe here, is
part of the launches that are compared with torch's, not of those that are timed, and timed apart.

Printed for each shape, milliseconds, medians of samples taken in turn: the copies alone, ditron's
products alone, cuBLAS alone, copies and cuBLAS in turn, overlapped; the sum of GEMM+RS alone;
then how near the overlapped launch comes to max(copies, products), and to that with cuBLAS; then
what it gains over copies and cuBLAS in turn, beside the most that could be gained,
(copies + cuBLAS) / max of both. Results are compared with torch's. The same figures go to
benchmarks/results/gpu_overlap.json.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

import numpy as np
import torch

import ditron as dt
from benchmarks.gpu_first_run import example, executor_of, say
from ditron.executable import Executable
from ditron.plan.launches import LaunchKind, beside_still_peers
from ditron.plan.tables import Bools, Plan, Role
from ditron.runtime.cuda_driver import sm_count
from ditron.runtime.gpu_host import HostProgram
from ditron.runtime.gpu_layout import GpuLayout
from ditron.runtime.gpu_program import SLOT_WORDS, TritonProgram
from ditron.runtime.gpu_rank import GpuRank, keep_busy
from ditron.runtime.gpu_source import write_source
from ditron.runtime.pinned import PinnedMemory

RESULTS = Path(__file__).parent / "results" / "gpu_overlap.json"
RANKS = 8
REPEATS = 15
CHUNK_ROWS = 4 * 128  # a chunk is as high as a group of tiles that share operands
FAR = 1 << 30  # ahead of every wait

# What runs, and (M, N, K) of a rank.
SHAPES = (
    "ag:8192,8192,8192",
    "ag:8192,12288,8192",
    "ag:8192,28672,8192",
    "ag:8192,11008,4096",
    "ag:8192,14336,4096",
    "ag:8192,29568,8192",
    "rs:8192,8192,8192",
    "rs:8192,8192,12288",
    "rs:8192,8192,28672",
)


@dataclass(frozen=True)
class Row:
    """One shape's figures, in milliseconds."""

    shape: str
    copy: float
    products: float
    cublas: float
    in_turn: float
    overlapped: float
    sum: float
    error: float

    @property
    def of_bound(self) -> float:
        """How near it comes to the larger of copies and its own products."""
        return max(self.copy, self.products) / self.overlapped

    @property
    def of_cublas_bound(self) -> float:
        """The same with cuBLAS's product."""
        return max(self.copy, self.cublas) / self.overlapped

    @property
    def speedup(self) -> float:
        """Against copies, then cuBLAS."""
        return self.in_turn / self.overlapped

    @property
    def ceiling(self) -> float:
        """The most that overlap could gain."""
        return (self.copy + self.cublas) / max(self.copy, self.cublas)


class SlowPeers:
    """Rank 0 on the GPU, its peers' memory pinned on the host."""

    def __init__(self, plan: Plan, program: TritonProgram, folder: Path) -> None:
        self.plan, self.layout = plan, GpuLayout.of(plan)
        self.gpu = GpuRank(plan, program, 0, wait_bound_s=20)
        self.launches = beside_still_peers(plan, program.host, 0)
        self.peers = [
            PinnedMemory(self.layout.total, self._touched(rank)) for rank in range(1, plan.ranks)
        ]
        bases = [self.gpu.heap.address, *(peer.address for peer in self.peers)]
        self.kernels = self.gpu.connect(write_source(program.source, folder), bases, self.launches)
        kinds, ops = self.launches.kind, self.launches.op
        self.sums = [
            x.op for x in program.launches if not plan.tasks.flops[plan.tasks.op == x.op].any()
        ]
        self.moves = self._only((kinds == LaunchKind.COPY) | (kinds == LaunchKind.EVENT))
        self.overlap = self._only(~np.isin(ops, self.sums))

    def _only(self, rows: Bools) -> HostProgram:
        """Some of what the host enqueues."""
        launches, whole = self.launches.only(rows), self.gpu.host
        return HostProgram(
            self.plan, launches, self.gpu.memory, whole.kernels, self.gpu.calls(), lambda _: None
        )

    def _touched(self, rank: int) -> list[tuple[int, int]]:
        """What the rank's launches read or write of a peer's memory."""
        found: list[tuple[int, int]] = []
        slots, accesses, notifies = self.plan.slots, self.plan.accesses, self.plan.notifies
        raised = notifies.slot[self.plan.tasks.rank[notifies.task] == 0]
        for slot in raised[slots.rank[raised] == rank].tolist():
            at = self.layout.signals[self.plan.signals[int(slots.signals[slot])]]
            at += 4 * SLOT_WORDS * int(slots.index[slot])
            found.append((at, at + 4))
        for row in self.launches.rows():
            if row.kind is not LaunchKind.COPY:
                continue
            for access in self.plan.accesses_of(row.task):
                if int(accesses.rank[access]) == rank:
                    buffer = self.plan.buffers[int(accesses.buffer[access])]
                    at = self.layout.buffers[buffer.name]
                    found.append((at, at + buffer.size_bytes))
        return found

    def shard(self, buffer: str, rank: int) -> torch.Tensor:
        """A rank's part of a buffer of bf16, where it lies."""
        if rank == 0:
            return self.gpu.memory.buffer(buffer)
        found = next(b for b in self.plan.buffers if b.name == buffer)
        at = self.layout.buffers[buffer]
        memory = self.peers[rank - 1].bytes[at : at + found.size_bytes]
        return memory.view(torch.bfloat16).view(found.capacity)

    def copies(self) -> None:
        """All copies to and from the rank, on their streams, waiting for nothing."""
        self.moves.enqueue(self.gpu.main, 0)

    def overlapped(self) -> None:
        """A launch but for its sums."""
        whole, self.gpu.host = self.gpu.host, self.overlap
        self.gpu.enqueue()
        self.gpu.host = whole

    def products(self) -> None:
        """The products alone; all they wait for must have come."""
        for launch in self.gpu.program.launches:
            if launch.op not in self.sums:
                self.gpu.host.kernels[launch.op]()

    def sum(self) -> None:
        """The sums alone, if there are any; likewise."""
        for op in self.sums:
            self.gpu.host.kernels[op]()

    def let_all_pass(self) -> None:
        """Set every slot far ahead of what is awaited."""
        for offset in self.layout.signals.values():
            words = self.gpu.memory.words(offset)
            words[: (self.layout.control - offset) // 4] = FAR

    def close(self) -> None:
        """Let go of all memory."""
        torch.cuda.synchronize()
        for peer in self.peers:
            peer.free()
        self.gpu.heap.close()


def program_of(exe: Executable) -> TritonProgram:
    """The code of an executable."""
    return executor_of(exe)._program  # pyright: ignore[reportPrivateUsage]


def milliseconds(stream: torch.cuda.Stream, launch: Callable[[], object]) -> float:
    """One launch on a stream, which is busy while the host enqueues it."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        keep_busy()
        begin.record()
        launch()
        end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def asked(shape: str, workers: int) -> tuple[dt.Program, dt.Options]:
    """A shape's program and how it is to be compiled."""
    kind, _, sizes = shape.partition(":")
    m, n, k = map(int, sizes.split(","))
    if kind == "ag":
        program = example("01_ag_gemm", m=m, n=n * RANKS, k=k, tp=RANKS)
        algorithm, row_bytes = "mesh-pull", 2 * k
    else:
        program = example("02_gemm_rs", m=m, n=n, k=k * RANKS, tp=RANKS)
        algorithm, row_bytes = "mesh-push", 2 * n
    options = dt.Options(
        algorithm=algorithm,
        transport="copy-engine",
        chunk_bytes=CHUNK_ROWS * row_bytes,
        per_op={"matmul": dt.OpOptions(tile=(128, 256))},
        workers=workers,
    )
    return program, options


def measure(shape: str, folder: Path, workers: int) -> Row:
    """One shape."""
    program, options = asked(shape, workers)
    prepare = gathered if shape.startswith("ag:") else scattered
    start = time.perf_counter()
    exe = dt.compile(program, target="cuda", options=options)
    slow = SlowPeers(exe.plan, program_of(exe), folder)
    say(f"{shape}: compiled and connected in {time.perf_counter() - start:.1f} s")
    say(f"     {slow.kernels}")
    x, w, want = prepare(slow)
    error = max(launch_error(slow, want) for _ in range(3))
    if not error < 0.01:
        raise AssertionError(f"{shape}: error {error}")
    product = x @ w

    def multiply() -> None:
        torch.mm(x, w, out=product)

    def in_turn() -> None:
        slow.copies()
        multiply()

    ways: dict[str, Callable[[], object]] = {
        "copy": slow.copies,
        "cublas": multiply,
        "in_turn": in_turn,
        "overlapped": slow.overlapped,
    }
    samples: dict[str, list[float]] = {name: [] for name in (*ways, "products", "sum")}
    for _ in range(REPEATS):
        for name, way in ways.items():
            samples[name].append(milliseconds(slow.gpu.main, way))
    slow.gpu.finish(lambda: False)
    slow.let_all_pass()
    for name, alone in (("products", slow.products), ("sum", slow.sum)):
        samples[name] = [milliseconds(slow.gpu.main, alone) for _ in range(REPEATS)]
    slow.close()
    exe.close()
    return Row(shape, error=error, **{name: median(values) for name, values in samples.items()})


def gathered(slow: SlowPeers) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Fill the inputs of an AG+GEMM; returns what the rank multiplies, and the result."""
    m, k = next(b.capacity for b in slow.plan.buffers if b.name == "all_gather")
    x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16) * k**-0.5
    for rank, part in enumerate(x.chunk(RANKS)):
        slow.shard("x", rank).copy_(part)
    w = slow.shard("w", 0)
    w.normal_()
    return x, w, (x @ w).float()


def scattered(slow: SlowPeers) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The same for a GEMM+RS; the peers' partial products are whatever is put there."""
    x, w = slow.shard("x", 0), slow.shard("w", 0)
    x.normal_()
    w.normal_().mul_(x.shape[1] ** -0.5)
    rows = x.shape[0] // RANKS
    want = (x[:rows] @ w).float()
    for rank in range(1, RANKS):
        part = torch.randn(rows, w.shape[1], device="cuda", dtype=torch.bfloat16)
        slow.shard("matmul", rank)[:rows].copy_(part)
        want += part.float()
    return x, w, want


def launch_error(slow: SlowPeers, want: torch.Tensor) -> float:
    """One launch, after all that it should write is spoilt; how far it is from what it should."""
    for buffer in slow.plan.buffers:
        if buffer.role not in (Role.INPUT, Role.WEIGHT):
            slow.shard(buffer.name, 0).fill_(float("nan"))
    torch.cuda.synchronize()
    slow.gpu.enqueue()
    slow.gpu.finish(lambda: False)
    apart = slow.shard("y", 0).float() - want
    return (apart.square().sum() / want.square().sum()).sqrt().item()


HEADERS = (
    "shape", "copy", "products", "cuBLAS", "in turn", "overlapped", "sum",
    "of bound", "of cuBLAS bound", "speedup", "ceiling", "error",
)  # fmt: skip


def cells(row: Row) -> list[str]:
    """A row of the table."""
    times = (row.copy, row.products, row.cublas, row.in_turn, row.overlapped, row.sum)
    ratios = (row.of_bound, row.of_cublas_bound, row.speedup, row.ceiling)
    return [
        row.shape,
        *(f"{value:.3f}" for value in (*times, *ratios)),
        f"{row.error:.1e}",
    ]


def table(rows: list[Row]) -> str:
    """All rows, aligned."""
    lines = [list(HEADERS), *map(cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    )


def versions() -> dict[str, str]:
    """What the figures were made with."""
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": version("triton"),
        "python": platform.python_version(),
    }


def main(arguments: list[str]) -> int:
    """Measure shapes; print and write the table."""
    # The peers' streams are many: with fewer queues than streams, one would stand behind another.
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "32"
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="ditron-") as folder:
        for shape in arguments or SHAPES:
            rows.append(measure(shape, Path(folder), sm_count(0)))
            say(table(rows[-1:]))
    say(table(rows))
    RESULTS.parent.mkdir(exist_ok=True)
    found = [
        {**asdict(r), "of_bound": r.of_bound, "speedup": r.speedup, "ceiling": r.ceiling}
        for r in rows
    ]
    RESULTS.write_text(json.dumps({"versions": versions(), "rows": found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
