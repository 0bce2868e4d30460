"""A gated MLP, tensor-parallel: gather, two matmuls, silu and product, matmul, reduce-scatter.

Look at: `ditron compile examples/04_mlp.py --emit device`. One gather feeds both matmuls, the
pointwise tiles start as soon as both their tiles are there, and the last matmul's partial tiles
leave for their owners while later ones are computed.
"""

import ditron as dt


def program(tokens=512, hidden=512, inner=1024, tp=4, dtype=dt.bf16) -> dt.Program:
    with dt.Program("mlp", dt.Mesh(tp=tp)) as p:
        x = p.input("x", (tokens, hidden), dtype, dt.Shard(0))
        w_gate = p.weight("w_gate", (hidden, inner), dtype, dt.Shard(1))
        w_up = p.weight("w_up", (hidden, inner), dtype, dt.Shard(1))
        w_down = p.weight("w_down", (inner, hidden), dtype, dt.Shard(0))
        rows = dt.all_gather(x, dim=0)
        gate = dt.silu(dt.matmul(rows, w_gate, name="gate"))
        up = dt.matmul(rows, w_up, name="up")
        p.output("y", dt.reduce_scatter(dt.matmul(gate * up, w_down, name="down"), dim=0))
    return p
