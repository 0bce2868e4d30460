"""The baseline: torch.distributed's gloo and torch.mm, unfused, one process a rank."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
import torch.distributed as dist

WARM_UP = 3
Gather = Callable[[torch.Tensor, torch.Tensor], object]


@dataclass(frozen=True)
class Sizes:
    """AG+GEMM: x [M, K] sharded by rows, w [K, N] by columns; float32 as it is computed."""

    m: int
    n: int
    k: int
    ranks: int


@dataclass(frozen=True)
class Baseline:
    """Seconds a launch, slowest rank: all-gather then matmul, and the matmuls alone."""

    gathered: list[float]
    matmul_alone: list[float]


def measure_baseline(sizes: Sizes, repeats: int) -> Baseline:
    """Start a process a rank, measure both, end them."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.pt"
        store = f"file://{folder}/store"
        context = multiprocessing.get_context("spawn")
        arguments = (sizes, repeats, store, str(result))
        ranks = [
            context.Process(target=_rank, args=(rank, *arguments)) for rank in range(sizes.ranks)
        ]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        gathered, alone = torch.load(result).tolist()
    return Baseline(gathered, alone)


def _rank(rank: int, sizes: Sizes, repeats: int, store: str, result: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=sizes.ranks)
    x = torch.randn(sizes.m // sizes.ranks, sizes.k)
    w = torch.randn(sizes.k, sizes.n // sizes.ranks)
    rows = torch.empty(sizes.m, sizes.k)
    y = torch.empty(sizes.m, sizes.n // sizes.ranks)

    # torch 2.13 renamed it and warns of the old name.
    names = vars(dist)
    gather = cast(Gather, names.get("all_gather_single", names["all_gather_into_tensor"]))

    def gather_then_matmul() -> None:
        gather(rows, x)
        torch.mm(rows, w, out=y)

    def matmul_alone() -> None:
        torch.mm(rows, w, out=y)

    times = torch.stack([_times(body, repeats) for body in (gather_then_matmul, matmul_alone)])
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    if rank == 0:
        torch.save(times, result)
    dist.destroy_process_group()


def _times(body: Callable[[], None], repeats: int) -> torch.Tensor:
    seconds: list[float] = []
    for _ in range(WARM_UP + repeats):
        dist.barrier()
        start = time.perf_counter()
        body()
        seconds.append(time.perf_counter() - start)
    return torch.tensor(seconds[WARM_UP:], dtype=torch.float64)
