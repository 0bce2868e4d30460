"""All-gather then matmul, the first half of a tensor-parallel layer.

Look at: the matmul's tiles of rows from a peer wait for that peer's rows only, and on shared memory
the gather costs nothing at all, since tiles read the peer's shard in place.
"""

import ditron as dt


def program(m=2048, n=2048, k=1024, tp=4, dtype=dt.bf16) -> dt.Program:
    with dt.Program("ag_gemm", dt.Mesh(tp=tp)) as p:
        x = p.input("x", (m, k), dtype, dt.Shard(0))  # global shape, DTensor placements
        w = p.input("w", (k, n), dtype, dt.Shard(1))
        p.output("y", dt.matmul(dt.all_gather(x, dim=0), w))  # y is Shard(1)
    return p
