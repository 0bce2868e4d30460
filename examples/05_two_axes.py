"""Data and tensor parallelism together: a mesh of two axes, a collective along one of them.

Look at: `ditron compile examples/05_two_axes.py --emit task`. Every tensor has a placement for each
axis; the all-reduce adds along `tp` only, so it runs once in each group of `dp`, side by side.
"""

import ditron as dt


def program(m=1024, n=512, k=512, dp=2, tp=2, dtype=dt.bf16) -> dt.Program:
    with dt.Program("two_axes", dt.Mesh(dp=dp, tp=tp)) as p:
        x = p.input("x", (m, k), dtype, (dt.Shard(0), dt.Shard(1)))
        w = p.weight("w", (k, n), dtype, (dt.Replicate(), dt.Shard(0)))
        p.output("y", dt.all_reduce(dt.matmul(x, w), axis="tp"))
    return p
