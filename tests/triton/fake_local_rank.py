"""One of some processes that each run their rank, without a GPU: `RANK SIZE STORE TILE HEAP`."""

from __future__ import annotations

import sys

import fake_cuda_rank
import torch
import torch.distributed as dist
from triton_support import example

import ditron as dt
from ditron.errors import DitronError


def main(rank: int, size: int, store: str, rows: int, heap: str) -> None:
    fake_cuda_rank.pretend()
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    program = example("01_ag_gemm", m=48, n=32, k=32, tp=size)
    options = dt.Options(
        algorithm="mesh-pull",
        transport="copy-engine",
        heap=heap,
        tile=(rows, 32),
        workers=2,
        wait_bound_s=20,
    )
    exe = dt.compile(program, target="cuda", options=options)
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        x, w = (torch.randn(s, generator=generator).bfloat16() for s in ((48, 32), (32, 32)))
        shards = {"x": x.chunk(size)[rank], "w": w.chunk(size, 1)[rank].contiguous()}
        out = {"y": torch.full((48, 32 // size), torch.nan, dtype=torch.bfloat16)}
        y = exe.run_local(shards, out=out if seed else None)["y"]
        want = (x.float() @ w.float()).chunk(size, 1)[rank]
        torch.testing.assert_close(y.float(), want, rtol=0.02, atol=0.05)
    try:
        exe.run_local({"x": torch.zeros(1), "w": torch.zeros(1)})
    except DitronError as error:
        sys.stdout.write(str(error))
    dist.barrier()
    exe.close()


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5])
    except DitronError as error:
        sys.exit(str(error))
