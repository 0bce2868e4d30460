"""Matmul then all-reduce, as in decoding: few rows, every rank wants the whole sum.

Look at: with `--check` the replicas are bit-equal, since every rank adds in the same order. Compare
`--algorithm one-shot` with `--algorithm two-shot`.
"""

import ditron as dt


def program(m=64, n=1024, k=2048, tp=4, dtype=dt.bf16) -> dt.Program:
    with dt.Program("gemm_ar", dt.Mesh(tp=tp)) as p:
        x = p.input("x", (m, k), dtype, dt.Shard(1))
        w = p.input("w", (k, n), dtype, dt.Shard(0))
        p.output("y", dt.all_reduce(dt.matmul(x, w)))  # y is Replicate
    return p
