"""A matmul whose weight is cut by columns: nothing has to move.

Look at: the plan has no transfers and no signals; each rank multiplies its own shard. With
`--set tp=1` it is one plain matmul on one rank.
"""

import ditron as dt


def program(m=512, n=1024, k=512, tp=2, dtype=dt.bf16) -> dt.Program:
    with dt.Program("matmul", dt.Mesh(tp=tp)) as p:
        x = p.input("x", (m, k), dtype, dt.Replicate())
        w = p.input("w", (k, n), dtype, dt.Shard(1))
        p.output("y", dt.matmul(x, w))  # (R, S(1)) -> S(1)
    return p
