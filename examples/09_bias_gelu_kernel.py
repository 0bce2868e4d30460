"""A tile kernel of one's own, bias and gelu, behind a tensor-parallel matmul.

Look at: `ditron compile examples/09_bias_gelu_kernel.py --emit host`. The kernel and the matmul
have become one: a tile of the product gets its bias and gelu before it is ever stored, and is
rounded once. With `--option fusion=false` they stay two.
"""

import ditron as dt


@dt.kernel
def bias_gelu(k, x, b, y, *, block=(64, 128)):  # x [M, N], b [N], y [M, N]
    i, j = k.tile(y, block)  # one program a tile of y
    k.store(y, (i, j), k.gelu(k.load(x, (i, j), block) + k.load(b, (j,), block[1:])))


def program(m=1024, n=2048, k=512, tp=4, dtype=dt.bf16) -> dt.Program:
    with dt.Program("gelu_layer", dt.Mesh(tp=tp)) as p:
        x = p.input("x", (m, k), dtype, dt.Shard(0))
        w = p.weight("w", (k, n), dtype, dt.Shard(1))
        b = p.weight("b", (n,), dtype, dt.Shard(0))
        h = dt.matmul(dt.all_gather(x, dim=0), w)  # Shard(1), as b is along its only dimension
        p.output("y", dt.call(bias_gelu, h, b, out=h))
    return p
