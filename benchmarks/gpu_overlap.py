"""AG+GEMM on one GPU with its peers' shards behind PCIe, beside copying and multiplying in turn.

    python -m benchmarks.gpu_overlap                  # all shapes
    python -m benchmarks.gpu_overlap 8192,12288,8192  # (M, N of a rank, K), as many as wanted

Rank 0 of eight runs; its peers compute nothing, and their memory is pinned host memory, so that
copies of their shards take the PCIe link (about 55 GB/s), which makes transfers and products of
ordinary shapes take about equally long. What runs is what `Options(transport="copy-engine")` makes
of the program for that rank: chunk copies and flags on side streams, tiles that wait for them.

Printed for each shape, milliseconds, medians of samples taken in turn: the copies alone, ditron's
product alone, cuBLAS alone, copies then cuBLAS, overlapped; then how near the overlapped launch
comes to max(copies, product), by ditron's product and by cuBLAS; then what it gains over copies and
cuBLAS in turn, beside the most that could be gained, (copies + cuBLAS) / max of both. Results are
compared with torch's. The same figures go to benchmarks/results/gpu_overlap.json.
"""

from __future__ import annotations

import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

import torch

import ditron as dt
from benchmarks.gpu_first_run import example, executor_of, say
from ditron.executable import Executable
from ditron.plan.launches import LaunchKind, beside_still_peers
from ditron.plan.tables import Plan
from ditron.runtime.cuda_driver import sm_count
from ditron.runtime.gpu_layout import GpuLayout
from ditron.runtime.gpu_program import SLOT_WORDS, TritonProgram
from ditron.runtime.gpu_rank import GpuRank, keep_busy
from ditron.runtime.gpu_source import write_source
from ditron.runtime.pinned import PinnedMemory

RESULTS = Path(__file__).parent / "results" / "gpu_overlap.json"
RANKS = 8
REPEATS = 15
CHUNK_TILE_ROWS = 4  # a chunk is as high as a group of tiles that share operands
FAR = 1 << 30  # ahead of every wait

# (M, N of a rank, K).
SHAPES = (
    (8192, 8192, 8192),
    (8192, 12288, 8192),
    (8192, 28672, 8192),
    (8192, 11008, 4096),
    (8192, 14336, 4096),
    (8192, 29568, 8192),
)


@dataclass(frozen=True)
class Row:
    """One shape's figures, in milliseconds."""

    shape: tuple[int, int, int]
    copy: float
    product: float
    cublas: float
    in_turn: float
    overlapped: float
    error: float

    @property
    def of_bound(self) -> float:
        """How near it comes to the larger of copies and its own product."""
        return max(self.copy, self.product) / self.overlapped

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
        bases = [self.gpu.device.address, *(peer.address for peer in self.peers)]
        self.kernels = self.gpu.connect(write_source(program.source, folder), bases, self.launches)

    def _touched(self, rank: int) -> list[tuple[int, int]]:
        """What the launches read or write of a peer's memory."""
        found: list[tuple[int, int]] = []
        slots, accesses = self.plan.slots, self.plan.accesses
        for row in self.launches.rows():
            if row.kind is LaunchKind.FLAG and int(slots.rank[row.slot]) == rank:
                at = self.layout.signals[self.plan.signals[int(slots.signals[row.slot])]]
                at += 4 * SLOT_WORDS * int(slots.index[row.slot])
                found.append((at, at + 4))
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
        """All copies to the rank, one after another on the current stream."""
        host = self.gpu.host
        stream = torch.cuda.current_stream().cuda_stream
        for row, bound in zip(host.rows, host.bound, strict=True):
            if row.kind is LaunchKind.COPY:
                for one in bound:
                    one(stream)

    def products(self) -> None:
        """The kernels alone; all they wait for must have come."""
        for launch in self.gpu.program.launches:
            self.gpu.host.kernels[launch.op]()

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
        self.gpu.device.free()


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


def measure(
    shape: tuple[int, int, int], folder: Path, chunk_rows: int, workers: int, lanes: int = 2
) -> Row:
    """One shape."""
    m, n, k = shape
    start = time.perf_counter()
    program = example("01_ag_gemm", m=m, n=n * RANKS, k=k, tp=RANKS)
    options = dt.Options(
        algorithm="mesh-pull",
        transport="copy-engine",
        chunk_bytes=chunk_rows * k * 2,
        tile=(128, 256),
        workers=workers,
        copy_lanes=lanes,
    )
    exe = dt.compile(program, target="cuda", options=options)
    compiled = time.perf_counter()
    slow = SlowPeers(exe.plan, program_of(exe), folder)
    x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16) * k**-0.5
    for rank, part in enumerate(x.chunk(RANKS)):
        slow.shard("x", rank).copy_(part)
    w = slow.shard("w", 0)
    w.normal_()
    y = slow.shard("y", 0)
    want = x @ w
    say(f"     compiled in {compiled - start:.1f} s, ready {time.perf_counter() - compiled:.1f} s")
    say(f"     {slow.kernels}")
    main = slow.gpu.main
    error = 0.0
    for _ in range(3):
        slow.shard("all_gather", 0).fill_(float("nan"))
        y.fill_(float("nan"))
        torch.cuda.synchronize()
        slow.gpu.enqueue()
        slow.gpu.finish(lambda: False)
        error = max(error, ((y - want).float().norm() / want.float().norm()).item())
    if not error < 0.01:
        raise AssertionError(f"{shape}: error {error}")
    in_turn = lambda: (slow.copies(), torch.mm(x, w, out=want))  # noqa: E731
    ways: dict[str, Callable[[], object]] = {
        "copy": slow.copies,
        "cublas": lambda: torch.mm(x, w, out=want),
        "in_turn": in_turn,
        "overlapped": slow.gpu.enqueue,
    }
    samples: dict[str, list[float]] = {name: [] for name in (*ways, "product")}
    for _ in range(REPEATS):
        for name, way in ways.items():
            samples[name].append(milliseconds(main, way))
    slow.gpu.finish(lambda: False)
    slow.let_all_pass()
    samples["product"] = [milliseconds(main, slow.products) for _ in range(REPEATS)]
    slow.close()
    exe.close()
    return Row(shape, error=error, **{name: median(values) for name, values in samples.items()})


HEADERS = (
    "M,N,K", "copy", "product", "cuBLAS", "in turn", "overlapped",
    "of bound", "of cuBLAS bound", "speedup", "ceiling", "error",
)  # fmt: skip


def cells(row: Row) -> list[str]:
    """A row of the table."""
    times = (row.copy, row.product, row.cublas, row.in_turn, row.overlapped)
    ratios = (row.of_bound, row.of_cublas_bound, row.speedup, row.ceiling)
    return [
        ",".join(map(str, row.shape)),
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
    given = [tuple(map(int, text.split(","))) for text in arguments]
    shapes = [(m, n, k) for m, n, k in given] or SHAPES
    sms = sm_count(0)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="ditron-") as folder:
        for shape in shapes:
            say(f"{shape}")
            rows.append(measure(shape, Path(folder), 128 * CHUNK_TILE_ROWS, sms))
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
