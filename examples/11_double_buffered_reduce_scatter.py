"""Matmul and ring reduce-scatter in one, by hand: two slots used in turn, guarded by credits.

Look at: while a partial sum travels from one slot, the next one is computed into the other. Every
reuse of a slot waits for a credit: `sent` from the copy engine before a slot is computed into
again, `free` from the right neighbour before its slot is written again. Take one out, and
`ditron verify` says which two accesses race.
"""

import ditron as dt


@dt.kernel
def product(k, a, b, y):  # a [M, K], b [K, N], y [M, N]
    k.store(y, k.load(a) @ k.load(b))


@dt.kernel
def add_product(k, part, a, b, y):
    k.store(y, k.load(part) + k.load(a) @ k.load(b))


def task(m: int, n: int, k: int, tp: int, dtype: dt.DType) -> dt.Program:
    with dt.Program("gemm_rs", dt.Mesh(tp=tp)) as p:
        x = p.input("x", (m, k), dtype, dt.Shard(1))
        w = p.input("w", (k, n), dtype, dt.Shard(0))
        p.output("y", dt.reduce_scatter(dt.matmul(x, w), dim=0))
    return p


def program(m=1024, n=512, k=1024, tp=4, dtype=dt.bf16) -> dt.DeviceProgram:
    rows = max(-(-m // tp), 1)
    with dt.DeviceProgram("ring", dt.Mesh(tp=tp), implements=task(m, n, k, tp, dtype)) as d:
        x, w, y = d.input("x"), d.input("w"), d.output("y")
        out = d.scratch("out", (2 * rows, n), dt.f32)  # two slots of partial sums to send
        arrived = d.scratch("arrived", (2 * rows, n), dt.f32, symmetric=True)
        made, sent = d.signals("made", 2), d.signals("sent", 2)  # of `out`: full, empty again
        came, free = d.signals("came", 2), d.signals("free", 2)  # of `arrived`; free is the left's
        right, left = (d.rank + 1) % tp, (d.rank - 1) % tp

        def chunk(g: dt.Grid, step: dt.Index | int) -> dt.View:
            """In step s a rank adds to what its owner, s + 1 ranks before it, will get last."""
            owner = (d.rank - 1 - step) % tp
            return g.view(x, (owner * rows, 0), (rows, x.shape[1]))

        def slot(g: dt.Grid, buffer: dt.Buffer, step: dt.Index | int, at=None) -> dt.View:
            return g.view(buffer, (step % 2 * rows, 0), (rows, n), at=at)

        if tp > 1:
            with d.grid("first", engine="sm") as g:
                g.call(product, chunk(g, 0), g.view(w, (0, 0), w.shape), slot(g, out, 0))
                g.notify(made, 0)

        with d.grid("add", engine="sm", i=max(tp - 2, 0)) as g:
            s = g["i"] + 1
            g.wait(came, (s - 1) % 2, ge=(s - 1) // 2 + 1)
            g.wait(sent, s % 2, ge=s // 2)
            part, weight = slot(g, arrived, s - 1), g.view(w, (0, 0), w.shape)
            g.call(add_product, part, chunk(g, s), weight, slot(g, out, s))
            g.notify(made, s % 2)
            g.notify(free, (s - 1) % 2, at=left)

        with d.grid("last", engine="sm") as g:
            mine, weight = chunk(g, tp - 1), g.view(w, (0, 0), w.shape)
            result = g.view(y, (0, 0), (rows, n))
            if tp == 1:
                g.call(product, mine, weight, result)
            else:
                g.wait(came, (tp - 2) % 2, ge=(tp - 2) // 2 + 1)
                g.call(add_product, slot(g, arrived, tp - 2), mine, weight, result)
                g.notify(free, (tp - 2) % 2, at=left)

        with d.grid("hop", engine="copy", s=tp - 1) as g:
            s = g["s"]
            g.wait(made, s % 2, ge=s // 2 + 1)
            g.wait(free, s % 2, ge=s // 2)  # the slot's use before, in this launch
            g.wait(free, s % 2, ge=(tp - s) // 2, lag=1, when=s < 2)  # or all of the last launch
            g.put(slot(g, out, s), slot(g, arrived, s, at=right))
            g.notify(came, s % 2, at=right)
            g.notify(sent, s % 2)
    return d
