"""A layer of a transformer, tensor-parallel: norm, heads, rope, attention, gated MLP, residuals.

Look at: `ditron explain examples/08_transformer_layer.py`. Heads and the MLP's columns are cut over
the ranks, so two all-reduces a layer are all that moves; pointwise ops have melted into the kernels
beside them.
"""

import ditron as dt


def program(tokens=64, heads=8, width=32, inner=512, tp=2, dtype=dt.f32) -> dt.Program:
    hidden = heads * width
    cut_rows, cut_columns = dt.Shard(0), dt.Shard(1)
    with dt.Program("transformer_layer", dt.Mesh(tp=tp)) as p:
        x = p.input("x", (tokens, hidden), dtype, dt.Replicate())
        cos, sin = (
            p.input(n, (1, tokens, 1, width), dtype, dt.Replicate()) for n in ("cos", "sin")
        )
        gain_1, gain_2 = (p.weight(n, (hidden,), dtype, dt.Replicate()) for n in ("g1", "g2"))

        normed = dt.rms_norm(x, gain_1, name="norm_1")
        q, k, v = (
            dt.reshape(
                dt.matmul(normed, p.weight(f"w_{n}", (hidden, hidden), dtype, cut_columns), name=n),
                (1, tokens, heads, width),
            )
            for n in "qkv"
        )
        mixed = dt.attention(dt.rope(q, cos, sin), dt.rope(k, cos, sin), v, name="attention")
        w_o = p.weight("w_o", (hidden, hidden), dtype, cut_rows)
        flat = dt.reshape(mixed, (tokens, hidden))
        x = x + dt.all_reduce(dt.matmul(flat, w_o, name="o"), name="o.sum")

        normed = dt.rms_norm(x, gain_2, name="norm_2")
        w_gate, w_up = (
            p.weight(n, (hidden, inner), dtype, cut_columns) for n in ("w_gate", "w_up")
        )
        w_down = p.weight("w_down", (inner, hidden), dtype, cut_rows)
        gate = dt.silu(dt.matmul(normed, w_gate, name="gate"))
        up = dt.matmul(normed, w_up, name="up")
        p.output("y", x + dt.all_reduce(dt.matmul(gate * up, w_down, name="down"), name="down.sum"))
    return p
