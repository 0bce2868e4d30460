"""The baseline: torch.distributed's gloo and torch.mm, unfused, one process a rank.

Ranks are started once and then measure one case after another. bf16 is widened to float32 for the
product and rounded after it, since torch multiplies bf16 about 60 times slower; gloo moves and adds
it as it is.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WARM_UP = 2


@dataclass(frozen=True)
class Sizes:
    """A product (M, N, K) on some ranks: "ag" shards M of x and N of w, "rs" and "ar" shard K.

    "all_reduce" is of [M, N] on each rank and "all_to_all" of [M / ranks, N], with K = 0.
    """

    m: int
    n: int
    k: int
    ranks: int
    kind: str = "ag"
    dtype: str = "float32"


@dataclass(frozen=True)
class Baseline:
    """One number a launch, in seconds: the library unfused, and its products alone.

    From the first rank's begin to the last one's end, as ditron's own are. `core_s` is the CPU time
    of all ranks for an unfused launch.
    """

    unfused: list[float]
    matmul_alone: list[float]
    core_s: list[float]

    @property
    def gathered(self) -> list[float]:
        return self.unfused


class GlooRanks:
    """Rank processes that measure what they are told; a context manager, which ends them."""

    def __init__(self, ranks: int) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.ranks = ranks
        context = mp.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        for rank in range(ranks):
            ours, theirs = context.Pipe()
            store = f"file://{self._folder.name}/store"
            process = context.Process(target=_serve, args=(rank, ranks, store, theirs), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)

    def measure(self, sizes: Sizes, repeats: int) -> Baseline:
        """All ranks measure one case."""
        for pipe in self._pipes:
            pipe.send((sizes, repeats))
        answers: list[tuple[Runs, Runs]] = [pipe.recv() for pipe in self._pipes]
        unfused, alone = ([answer[i] for answer in answers] for i in range(2))
        return Baseline(_slowest(unfused), _slowest(alone), _together(unfused))

    def close(self) -> None:
        """End the ranks."""
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


Runs = list[tuple[float, float, float]]
"""Begin, end and CPU time of each launch on one rank, in seconds of a clock that ranks share."""


def _slowest(ranks: Sequence[Runs]) -> list[float]:
    """From the first rank's begin to the last one's end, each launch."""
    launches = zip(*ranks, strict=True)
    return [
        max(end for _, end, _ in runs) - min(begin for begin, _, _ in runs) for runs in launches
    ]


def _together(ranks: Sequence[Runs]) -> list[float]:
    return [sum(core for _, _, core in runs) for runs in zip(*ranks, strict=True)]


def measure_baseline(sizes: Sizes, repeats: int) -> Baseline:
    """Start a process a rank, measure one case, end them."""
    with GlooRanks(sizes.ranks) as ranks:
        return ranks.measure(sizes, repeats)


def _serve(rank: int, ranks: int, store: str, pipe: Connection) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)
    while (asked := pipe.recv()) is not None:
        sizes, repeats = asked
        unfused, alone = _bodies(sizes)
        pipe.send((_times(unfused, repeats), _times(alone, repeats)))
    dist.destroy_process_group()


def _bodies(s: Sizes) -> tuple[Callable[[], None], Callable[[], None]]:
    """(the collective and the product one after the other, the product alone)."""
    dtype: torch.dtype = getattr(torch, s.dtype)
    if s.kind in ("all_reduce", "all_to_all"):
        return _collectives(s, dtype)
    gather = _collective("all_gather_single", "all_gather_into_tensor")
    scatter = _collective("reduce_scatter_single", "reduce_scatter_tensor")
    if s.kind == "ag":
        x, w = _random(s.m // s.ranks, s.k, dtype), _random(s.k, s.n // s.ranks, dtype)
        rows, y = torch.empty(s.m, s.k, dtype=dtype), torch.empty(s.m, s.n // s.ranks, dtype=dtype)

        def gathered() -> None:
            gather(rows, x)
            _multiply(rows, w, y)

        return gathered, lambda: _multiply(rows, w, y)
    x, w = _random(s.m, s.k // s.ranks, dtype), _random(s.k // s.ranks, s.n, dtype)
    y = torch.empty(s.m, s.n, dtype=dtype)
    mine = torch.empty(s.m // s.ranks, s.n, dtype=dtype)

    def reduced() -> None:
        _multiply(x, w, y)
        if s.kind == "rs":
            scatter(mine, y)
        else:
            dist.all_reduce(y)

    return reduced, lambda: _multiply(x, w, y)


def _collectives(s: Sizes, dtype: torch.dtype) -> tuple[Callable[[], None], Callable[[], None]]:
    """(a collective by itself, a copy of what a rank has)."""
    if s.kind == "all_reduce":
        x = _random(s.m, s.n, dtype)
        y = torch.empty_like(x)

        def reduced() -> None:
            y.copy_(x)
            dist.all_reduce(y)

        return reduced, lambda: _copy(y, x)
    blocks = (s.m // s.ranks, s.ranks, s.n // s.ranks)
    x = _random(s.m // s.ranks, s.n, dtype)
    sent = torch.empty(s.ranks, blocks[0], blocks[2], dtype=dtype)
    y = torch.empty_like(sent)

    def exchanged() -> None:
        sent.copy_(x.view(blocks).transpose(0, 1))
        dist.all_to_all_single(y, sent)

    return exchanged, lambda: _copy(y.view(x.shape), x)


def _copy(to: torch.Tensor, source: torch.Tensor) -> None:
    to.copy_(source)


def _collective(name: str, before: str) -> Callable[[torch.Tensor, torch.Tensor], object]:
    """A collective by its name; torch 2.13 renamed it and warns of the old name."""
    return getattr(dist, name, None) or getattr(dist, before)


def _random(rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(rows, columns).to(dtype)


def _multiply(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    if out.dtype == torch.float32:
        torch.mm(a, b, out=out)
    else:
        out.copy_(torch.mm(a.float(), b.float()))


def _times(body: Callable[[], None], repeats: int) -> Runs:
    """Each launch after a barrier."""
    runs: Runs = []
    for _ in range(WARM_UP + repeats):
        dist.barrier()
        begin, busy = time.monotonic(), time.process_time()
        body()
        runs.append((begin, time.monotonic(), time.process_time() - busy))
    return runs[WARM_UP:]
