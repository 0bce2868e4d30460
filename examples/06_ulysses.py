"""Attention over a long sequence, as DeepSpeed-Ulysses does it: tokens are cut, then heads.

Look at: the two all-to-alls. Before them each rank has some tokens of all heads, between them all
tokens of some heads, which is what attention needs; nothing is ever whole on one rank.
"""

import ditron as dt


def program(tokens=256, heads=8, width=32, tp=4, dtype=dt.f32) -> dt.Program:
    with dt.Program("ulysses", dt.Mesh(sp=tp)) as p:
        q, k, v = (
            dt.all_to_all(
                p.input(name, (1, tokens, heads, width), dtype, dt.Shard(1)),
                split_dim=2,
                concat_dim=1,
            )
            for name in "qkv"
        )
        mixed = dt.attention(q, k, v, name="attention")
        p.output("y", dt.all_to_all(mixed, split_dim=1, concat_dim=2))
    return p
