"""A ring all-gather written by hand at the device level: buffers, grids, puts and signals.

Look at: `ditron verify examples/10_ring_all_gather.py`, then take out any wait or notify and look
again: the proof names the two accesses that race, or the wait that nobody answers, at your line.
"""

import ditron as dt


def task(m: int, k: int, tp: int, dtype: dt.DType) -> dt.Program:
    """What the ring should do; delivery is proved against it."""
    with dt.Program("all_gather", dt.Mesh(tp=tp)) as p:
        x = p.input("x", (m, k), dtype, dt.Shard(0))
        p.output("y", dt.all_gather(x, dim=0))
    return p


def program(m=2048, k=512, tp=4, dtype=dt.bf16) -> dt.DeviceProgram:
    rows = max(-(-m // tp), 1)  # of a shard; the last ranks may have fewer
    with dt.DeviceProgram("ring", dt.Mesh(tp=tp), implements=task(m, k, tp, dtype)) as d:
        x, y = d.input("x"), d.output("y", symmetric=True)
        right, left = (d.rank + 1) % tp, (d.rank - 1) % tp
        here = d.signals("here", tp)  # slot r: the shard of rank r is in y
        may = d.signals("may", 1)  # the right neighbour's y may be written

        # The host reads y between launches: it hands it over before the left neighbour writes.
        with d.grid("open", engine="host") as g:
            g.acquire(y)
            g.notify(may, 0, at=left)

        with d.grid("own", engine="copy") as g:
            g.copy(g.view(x, (0, 0), (rows, k)), g.view(y, (d.rank * rows, 0), (rows, k)))
            g.notify(here, d.rank)

        # In step s every rank hands on the shard of the rank s before it.
        with d.grid("ring", engine="copy", s=tp - 1) as g:
            owner = g.index("owner", (d.rank - g["s"]) % tp)
            box = (owner * rows, 0), (rows, k)
            g.wait(may, 0)
            g.wait(here, owner)
            g.put(g.view(y, *box), g.view(y, *box, at=right))
            g.notify(here, owner, at=right)

        with d.grid("close", engine="host") as g:
            g.wait(here, 0, slots=tp)
            g.release(y)
    return d
