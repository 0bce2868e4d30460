"""What `benchmarks/gpu_ranks.py` measures beside ditron: NCCL with cuBLAS, and torch's async TP."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.gpu_first_run import say

# By name: later versions of torch call them otherwise, and say so at each use.
GATHER: Any = getattr(dist, "all_gather_into_tensor")  # noqa: B009
SCATTER: Any = getattr(dist, "reduce_scatter_tensor")  # noqa: B009


def baselines(
    kind: str, x: torch.Tensor, w: torch.Tensor, group: str
) -> tuple[dict[str, Callable[[], object]], torch.Tensor]:
    """NCCL and cuBLAS apart and in turn, and async TP, on this rank's shards; the right result."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    shard = x.chunk(ranks)[rank].contiguous()
    if kind == "ag":
        mine = w.chunk(ranks, 1)[rank].contiguous()
        full, out = (
            torch.empty_like(x),
            torch.empty(len(x), mine.shape[1], device="cuda").bfloat16(),
        )
        want = (x @ mine).float()
        lhs = x

        def move() -> None:
            GATHER(full, shard)
    else:
        lhs, mine = x.chunk(ranks, 1)[rank].contiguous(), w.chunk(ranks)[rank].contiguous()
        out = torch.empty(len(x), w.shape[1], device="cuda").bfloat16()
        part = torch.empty(len(x) // ranks, w.shape[1], device="cuda").bfloat16()
        want = (x @ w).float() if kind == "ar" else (x.chunk(ranks)[rank] @ w).float()

        def move() -> None:
            if kind == "rs":
                SCATTER(part, out)
            else:
                dist.all_reduce(out)

    def multiply() -> None:
        torch.mm(lhs, mine, out=out)

    def in_turn() -> None:
        if kind == "ag":
            move()
        multiply()
        if kind != "ag":
            move()

    calls: dict[str, Callable[[], object]] = {"cublas": multiply}
    if group:
        calls |= {"collective": move, "in turn": in_turn}
        calls |= async_tp(kind, shard if kind == "ag" else lhs, mine, group)
    return calls, want


def async_tp(
    kind: str, x: torch.Tensor, w: torch.Tensor, group: str
) -> dict[str, Callable[[], object]]:
    """Torch's own products that overlap with symmetric memory."""
    symmetric: Any = importlib.import_module("torch.distributed._symmetric_memory")
    ops: Any = torch.ops.symm_mem
    try:
        if kind == "ag":
            held = symmetric.empty(x.shape, dtype=x.dtype, device="cuda")
            symmetric.rendezvous(held, group)
            held.copy_(x)

            def call() -> None:
                ops.fused_all_gather_matmul(held, [w], 0, group)
        elif kind == "rs":

            def call() -> None:
                ops.fused_matmul_reduce_scatter(x, w, "sum", 0, group)
        else:
            held = symmetric.empty((len(x), w.shape[1]), dtype=x.dtype, device="cuda")
            symmetric.rendezvous(held, group)

            def call() -> None:
                torch.mm(x, w, out=held)
                ops.two_shot_all_reduce_(held, "sum", group)

        call()
        torch.cuda.synchronize()
    except (RuntimeError, AttributeError) as error:
        say(f"     no async TP: {str(error)[:200]}")
        return {}
    return {"async tp": call}
