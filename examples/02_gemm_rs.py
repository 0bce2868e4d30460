"""Matmul then reduce-scatter, the second half of a tensor-parallel layer.

Look at: each rank sums the partial tiles of its own rows as they are made, in the fixed order of
ranks owner + 1, ..., owner, in float32: the result does not depend on who was fast.
"""

import ditron as dt


def program(m=2048, n=1024, k=2048, tp=4, dtype=dt.bf16) -> dt.Program:
    with dt.Program("gemm_rs", dt.Mesh(tp=tp)) as p:
        x = p.input("x", (m, k), dtype, dt.Shard(1))
        w = p.input("w", (k, n), dtype, dt.Shard(0))
        partial = dt.matmul(x, w)  # (S(1), S(0)) -> Partial
        p.output("y", dt.reduce_scatter(partial, dim=0))  # y is Shard(0)
    return p
