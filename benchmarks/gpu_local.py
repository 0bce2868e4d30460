"""Ranks in the processes of a group: right results, in turn and from a captured graph.

    torchrun --nproc-per-node 2 -m benchmarks.gpu_local

Several processes on one GPU want CUDA MPS (`python -m benchmarks.gpu_first_run local:2` starts it).
"""

from __future__ import annotations

import os
import sys
from statistics import median

import torch
import torch.distributed as dist

import ditron as dt
from benchmarks.gpu_first_run import example, options_for, say

SIZES = {"m": 2048, "n": 2048, "k": 1024}
REPLAYS = 200


def main() -> int:
    """One rank."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group("gloo")
    for transport, algorithm in (("copy-engine", "mesh-pull"), ("peer", "mesh-push")):
        program = example("01_ag_gemm", **SIZES, tp=size)
        options = options_for(size, algorithm, transport)
        with dt.compile(program, target="cuda", options=options) as exe:
            times = check(exe, rank, size)
        if rank == 0:
            say(f"ok   {size} ranks, {transport}: replayed in {median(times) * 1e3:.0f} us")
    dist.destroy_process_group()
    return 0


def check(exe: dt.Executable, rank: int, size: int) -> list[float]:
    """Launch in turn, then from a graph; milliseconds of its replays."""
    shards, out = inputs(0, rank, size)
    for seed in range(5):
        fresh, want = inputs(seed, rank, size)
        for name, tensor in fresh.items():
            shards[name].copy_(tensor)
        held = exe.run_local(shards, out={"y": out} if seed % 2 else None)["y"]
        torch.testing.assert_close(held, want, rtol=0.02, atol=0.02)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        exe.run_local(shards, out={"y": out})
    times: list[float] = []
    want = out
    for replay in range(REPLAYS):
        if replay % 50 == 0:
            fresh, want = inputs(100 + replay, rank, size)
            for name, tensor in fresh.items():
                shards[name].copy_(tensor)
        out.fill_(torch.nan)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.testing.assert_close(out, want, rtol=0.02, atol=0.02)
        times.append(begin.elapsed_time(end))
    fresh, want = inputs(7, rank, size)
    for name, tensor in fresh.items():
        shards[name].copy_(tensor)
    again = exe.run_local(shards)["y"]
    torch.testing.assert_close(again, want, rtol=0.02, atol=0.02)
    return times


def inputs(seed: int, rank: int, size: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """A rank's shards, and what it should make of them."""
    generator = torch.Generator("cuda").manual_seed(seed)
    m, n, k = SIZES["m"], SIZES["n"], SIZES["k"]
    x, w = (
        torch.randn(shape, generator=generator, device="cuda").mul(k**-0.5).bfloat16()
        for shape in ((m, k), (k, n))
    )
    mine = w.chunk(size, 1)[rank].contiguous()
    return {"x": x.chunk(size)[rank].contiguous(), "w": mine}, x @ mine


if __name__ == "__main__":
    sys.exit(main())
