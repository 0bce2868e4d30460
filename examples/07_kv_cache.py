"""A decode step against a cache: a state that lives from run to run, written at a run-time place.

Look at: `ditron compile examples/07_kv_cache.py --emit device`. The caches are buffers that no run
passes; `update` writes one place of them, and attention in the same launch waits for that. In
Python, `exe.run({..., "pos": 7})` takes the place, `exe.state("keys")` shows what is kept.
"""

import ditron as dt


def program(ctx=128, heads=8, groups=4, width=32, tp=2, dtype=dt.f32) -> dt.Program:
    with dt.Program("kv_cache", dt.Mesh(tp=tp)) as p:
        q = p.input("q", (1, 1, heads, width), dtype, dt.Shard(2))
        k = p.input("k", (1, 1, groups, width), dtype, dt.Shard(2))
        v = p.input("v", (1, 1, groups, width), dtype, dt.Shard(2))
        pos = p.scalar("pos", dt.i32, max=ctx - 1)
        keys = p.state("keys", (1, ctx, groups, width), dtype, dt.Shard(2))
        values = p.state("values", (1, ctx, groups, width), dtype, dt.Shard(2))
        keys = dt.update(keys, k, at=pos, dim=1)
        values = dt.update(values, v, at=pos, dim=1)
        p.output("y", dt.attention(q, keys, values, at=pos))
    return p
