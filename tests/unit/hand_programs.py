"""Small programs written by hand at the device level, each right, or with one thing wrong.

Each takes `wrong`; what it is to compute is a task program beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ditron as dt

K = 2  # columns of most tensors
Hand = Callable[[bool], dt.DeviceProgram]
Kernel = Any  # what a traced function works on


@dt.kernel
def relu(k: Kernel, x: Kernel, y: Kernel):
    k.store(y, k.relu(k.load(x)))


@dt.kernel
def add(k: Kernel, a: Kernel, b: Kernel, y: Kernel):
    k.store(y, k.load(a) + k.load(b))


@dt.kernel
def product(k: Kernel, a: Kernel, b: Kernel, y: Kernel):
    k.store(y, k.load(a) @ k.load(b))


def spread(ranks: int, rows: int) -> dt.Program:
    with dt.Program("spread", dt.Mesh(tp=ranks)) as p:
        x = p.input("x", (ranks * rows, K), dt.f32, dt.Shard(0))
        p.output("y", dt.broadcast(x, root=0))
    return p


def gathered(ranks: int, m: int, n: int = K, *, then: Any = None) -> dt.Program:
    with dt.Program("gathered", dt.Mesh(tp=ranks)) as p:
        x = dt.all_gather(p.input("x", (m, n), dt.f32, dt.Shard(0)), dim=0)
        p.output("y", then(x) if then else x)
    return p


def turned(ranks: int, rows: int) -> dt.Program:
    with dt.Program("turned", dt.Mesh(tp=ranks)) as p:
        x = p.input("x", (ranks * rows, K), dt.f32, dt.Shard(0))
        p.output("y", dt.shift(x, by=1))
    return p


def summed(ranks: int, rows: int, *, scatter: bool) -> dt.Program:
    with dt.Program("summed", dt.Mesh(tp=ranks)) as p:
        x = p.input("x", (rows, ranks), dt.f32, dt.Shard(1))
        partial = dt.matmul(x, p.input("w", (ranks, K), dt.f32, dt.Shard(0)))
        p.output("y", dt.reduce_scatter(partial, dim=0) if scatter else dt.all_reduce(partial))
    return p


def own_part(d: dt.DeviceProgram, rows: int) -> tuple[dt.Buffer, dt.Signals]:
    """This rank's part of the sum, and the signal that it is there."""
    x, w = d.input("x"), d.input("w")
    mine, made = d.scratch("mine", (rows, K), dt.f32), d.signals("own", 1)
    with d.grid("product", engine="sm") as g:
        ends = g.view(x, (0, 0), (rows, 1)), g.view(w, (0, 0), (1, K))
        g.call(product, *ends, g.view(mine, (0, 0), (rows, K)))
        g.notify(made, 0)
    return mine, made


def chain(wrong: bool, ranks: int = 4, chunks: int = 3) -> dt.DeviceProgram:
    """A broadcast from rank to rank, chunk after chunk. Wrong: a chunk is told before it lands."""
    with dt.DeviceProgram("chain", dt.Mesh(tp=ranks), implements=spread(ranks, chunks)) as d:
        x, y = d.input("x"), d.output("y", symmetric=True)
        came, may = d.signals("came", chunks), d.signals("may", 1)
        passes = d.rank < ranks - 1
        with d.grid("open", engine="host") as g:
            g.acquire(y)
            g.notify(may, 0, at=(d.rank - 1) % ranks, when=d.rank > 0)
        with d.grid("own", engine="copy", c=chunks) as g:
            row = (g["c"], 0), (1, K)
            g.where(d.rank == 0)
            g.copy(g.view(x, *row), g.view(y, *row))
            g.notify(came, g["c"], when=d.rank == 0)
        with d.grid("hop", engine="copy", c=chunks) as g:
            right, row = (d.rank + 1) % ranks, ((g["c"], 0), (1, K))
            g.where(passes)
            g.wait(may, 0, when=passes)
            g.wait(came, g["c"], when=passes)
            g.put(g.view(y, *row), g.view(y, *row, at=right))
            g.notify(came, g["c"], at=right, when=passes, after="end" if wrong else "put")
        with d.grid("close", engine="host") as g:
            g.wait(came, 0, slots=chunks)
            g.release(y)
    return d


def tree(wrong: bool, ranks: int = 5) -> dt.DeviceProgram:
    """A broadcast along a binomial tree. Wrong: inner nodes pass on what has not come yet."""
    with dt.DeviceProgram("tree", dt.Mesh(tp=ranks), implements=spread(ranks, 2)) as d:
        x, y = d.input("x"), d.output("y", symmetric=True)
        steps = (ranks - 1).bit_length()
        power = d.table([1 << s for s in range(steps)])
        level = d.table([max(r.bit_length() - 1, 0) for r in range(ranks)])
        came, may = d.signals("came", 1), d.signals("may", steps)
        whole = (0, 0), (2, K)
        with d.grid("open", engine="host") as g:
            g.acquire(y)
            parent = d.max(d.rank - power[level[d.rank]], 0)
            g.notify(may, level[d.rank], at=parent, when=d.rank > 0)
        with d.grid("own", engine="copy") as g:
            g.where(d.rank == 0)
            g.copy(g.view(x, *whole), g.view(y, *whole))
            g.notify(came, 0, when=d.rank == 0)
        with d.grid("hop", engine="copy", s=steps) as g:
            s = g["s"]
            child = d.rank + power[s]
            sends = (d.rank < power[s]) & (child < ranks)
            g.where(sends)
            g.wait(may, s, when=sends)
            g.wait(came, 0, when=sends & (s < 1) if wrong else sends)
            g.put(g.view(y, *whole), g.view(y, *whole, at=child % ranks))
            g.notify(came, 0, at=child % ranks, when=sends)
        with d.grid("close", engine="host") as g:
            g.wait(came, 0)
            g.release(y)
    return d


def tree_sum(wrong: bool) -> dt.DeviceProgram:
    """Partial sums up a tree of four, the total back. Wrong: a node sends its own part alone."""
    with dt.DeviceProgram("sums", dt.Mesh(tp=4), implements=summed(4, 2, scatter=False)) as d:
        y = d.output("y", symmetric=True)
        landing = d.scratch("landing", (4, K), dt.f32, symmetric=True)  # a slot a step
        part = d.scratch("part", (2, K), dt.f32)
        whole = (0, 0), (2, K)
        came, free = d.signals("came", 2), d.signals("free", 2)
        made, may, total = d.signals("made", 1), d.signals("may", 1), d.signals("total", 1)
        with d.grid("open", engine="host") as g:
            g.acquire(y)
            g.notify(may, 0, at=0)
        own, here = own_part(d, 2)
        for step, stride in enumerate((1, 2)):
            sends, adds = d.rank % (2 * stride) == stride, d.rank % (2 * stride) == 0
            slot = (2 * step, 0), (2, K)
            with d.grid(f"send{step}", engine="copy") as g:
                g.where(sends)
                g.wait(made if step else here, 0, when=sends)
                g.wait(free, step, lag=1, when=sends)
                mine = part if step and not wrong else own
                up = (d.rank - stride) % 4
                g.put(g.view(mine, *whole), g.view(landing, *slot, at=up))
                g.notify(came, step, at=up, when=sends)
            with d.grid(f"add{step}", engine="sm") as g:
                g.where(adds)
                g.wait(came, step, when=adds)
                result = g.view(y if step else part, *whole)
                mine = g.view(part if step else own, *whole)
                g.call(add, mine, g.view(landing, *slot), result)
                g.notify(free, step, at=(d.rank + stride) % 4, when=adds)
                g.notify(total if step else made, 0, when=adds)
        with d.grid("back", engine="copy", p=3) as g:
            peer = g["p"] + 1
            g.where(d.rank == 0)
            g.wait(may, 0, ge=4, when=d.rank == 0)
            g.wait(total, 0, when=d.rank == 0)
            g.put(g.view(y, *whole), g.view(y, *whole, at=peer))
            g.notify(total, 0, at=peer, when=d.rank == 0)
        with d.grid("close", engine="host") as g:
            g.wait(total, 0)
            g.release(y)
    return d


def doubled(wrong: bool, ranks: int = 3, chunks: int = 5) -> dt.DeviceProgram:
    """Chunks through two slots at the right neighbour. Wrong: the third use takes no credit."""
    with dt.DeviceProgram("doubled", dt.Mesh(tp=ranks), implements=turned(ranks, chunks)) as d:
        x, y = d.input("x"), d.output("y")
        landing = d.scratch("landing", (2, K), dt.f32, symmetric=True)
        came, free = d.signals("came", 2), d.signals("free", 2)
        with d.grid("send", engine="copy", c=chunks) as g:
            c, right = g["c"], (d.rank + 1) % ranks
            g.wait(free, c % 2, ge=c // 2, when=(c != 2) if wrong else None)
            g.wait(free, c % 2, ge=(chunks - c + 1) // 2, lag=1, when=c < 2)
            g.put(g.view(x, (c, 0), (1, K)), g.view(landing, (c % 2, 0), (1, K), at=right))
            g.notify(came, c % 2, at=right)
        with d.grid("take", engine="sm", c=chunks) as g:
            c = g["c"]
            g.wait(came, c % 2, ge=c // 2 + 1)
            g.copy(g.view(landing, (c % 2, 0), (1, K)), g.view(y, (c, 0), (1, K)))
            g.notify(free, c % 2, at=(d.rank - 1) % ranks)
    return d


def two_levels(wrong: bool) -> dt.DeviceProgram:
    """Shards within a node, then across. Wrong: across goes what the node has not brought yet."""
    mesh, per_node = dt.Mesh(node=2, tp=3), 3
    with dt.Program("gathered", mesh) as p:
        x = p.input("x", (6, K), dt.f32, (dt.Shard(0), dt.Shard(0)))
        inner = dt.all_gather(x, dim=0, axis="tp")
        p.output("y", dt.all_gather(inner, dim=0, axis="node"))
    with dt.DeviceProgram("two_levels", mesh, implements=p) as d:
        x, y = d.input("x"), d.output("y", symmetric=True)
        node, tp = d.coordinate("node"), d.coordinate("tp")
        here, may = d.signals("here", 6), d.signals("may", 1)
        with d.grid("open", engine="host") as g:
            g.acquire(y)
            for step in range(1, per_node):
                g.notify(may, 0, at=node * per_node + (tp + step) % per_node)
            g.notify(may, 0, at=(1 - node) * per_node + tp)
        with d.grid("own", engine="copy") as g:
            g.copy(g.view(x, (0, 0), (1, K)), g.view(y, (d.rank, 0), (1, K)))
            g.notify(here, d.rank)
        with d.grid("inner", engine="copy", s=per_node - 1) as g:
            peer = node * per_node + (tp + 1 + g["s"]) % per_node
            mine = (d.rank, 0), (1, K)
            g.wait(may, 0, ge=3)
            g.put(g.view(y, *mine), g.view(y, *mine, at=peer))
            g.notify(here, d.rank, at=peer)
        with d.grid("across", engine="copy", t=per_node) as g:
            owner, peer = node * per_node + g["t"], (1 - node) * per_node + tp
            mine = (owner, 0), (1, K)
            g.wait(here, owner, when=(g["t"] == tp) if wrong else None)
            g.put(g.view(y, *mine), g.view(y, *mine, at=peer))
            g.notify(here, owner, at=peer)
        with d.grid("close", engine="host") as g:
            g.wait(here, 0, slots=6)
            g.release(y)
    return d


def doubling(wrong: bool, steps: int = 3) -> dt.DeviceProgram:
    """An all-gather by recursive doubling. Wrong: from step 2 on it waits for the first step's."""
    ranks = 1 << steps
    with dt.DeviceProgram("doubling", dt.Mesh(tp=ranks), implements=gathered(ranks, ranks)) as d:
        x, y = d.input("x"), d.output("y", symmetric=True)
        power = d.table([1 << s for s in range(steps)])
        came, may = d.signals("came", steps + 1), d.signals("may", steps)
        with d.grid("open", engine="host") as g:
            g.acquire(y)
            for s in range(steps):
                g.notify(may, s, at=d.rank ^ (1 << s))
        with d.grid("own", engine="copy") as g:
            g.copy(g.view(x, (0, 0), (1, K)), g.view(y, (d.rank, 0), (1, K)))
            g.notify(came, 0)
        with d.grid("swap", engine="copy", s=steps) as g:
            s = g["s"]
            block = (d.rank // power[s] * power[s], 0), (power[s], K)
            partner = d.rank ^ power[s]
            g.wait(may, s)
            g.wait(came, d.min(s, 1) if wrong else s)
            g.put(g.view(y, *block), g.view(y, *block, at=partner))
            g.notify(came, s + 1, at=partner)
        with d.grid("close", engine="host") as g:
            g.wait(came, 0, slots=steps + 1)
            g.release(y)
    return d


def exchange(wrong: bool, ranks: int = 3) -> dt.DeviceProgram:
    """An all-to-all. Wrong: all senders share a slot, whose first increments stand for rank 0."""
    with dt.Program("exchanged", dt.Mesh(tp=ranks)) as p:
        x = p.input("x", (ranks, ranks), dt.f32, dt.Shard(0))
        p.output("y", dt.relu(dt.all_to_all(x, split_dim=1, concat_dim=0)))
    with dt.DeviceProgram("exchange", dt.Mesh(tp=ranks), implements=p) as d:
        x, y = d.input("x"), d.output("y")
        landing = d.scratch("landing", (ranks, 1), dt.f32, symmetric=True)
        came, free = d.signals("came", ranks), d.signals("free", ranks)
        with d.grid("send", engine="copy", p=ranks) as g:
            peer = g["p"]
            g.wait(free, peer, lag=1)
            g.put(g.view(x, (0, peer), (1, 1)), g.view(landing, (d.rank, 0), (1, 1), at=peer))
            g.notify(came, 0 if wrong else d.rank, at=peer)
        with d.grid("take", engine="sm", s=ranks) as g:
            s = g["s"]
            g.wait(came, 0 if wrong else s, ge=s + 1 if wrong else 1)
            g.call(relu, g.view(landing, (s, 0), (1, 1)), g.view(y, (s, 0), (1, 1)))
            g.notify(free, d.rank, at=s)
    return d


def pulled(wrong: bool, ranks: int = 3, rows: int = 2) -> dt.DeviceProgram:
    """Shards pulled out of inputs. Wrong: the host has its input back while a peer still reads."""
    m = ranks * rows - 1  # the last shard is shorter
    with dt.DeviceProgram("pulled", dt.Mesh(tp=ranks), implements=gathered(ranks, m)) as d:
        x, y = d.input("x", symmetric=True), d.output("y")
        ready, done = d.signals("ready", ranks), d.signals("done", ranks)
        with d.grid("open", engine="host") as g:
            g.acquire(x)
            for peer in range(ranks):
                g.notify(ready, d.rank, at=peer)
        with d.grid("pull", engine="copy", s=ranks) as g:
            peer = (d.rank + g["s"]) % ranks
            target = g.view(y, (peer * rows, 0), (rows, K))
            g.wait(ready, peer)
            g.get(g.view(x, (0, 0), (rows, K), at=peer), target)
            g.notify(done, d.rank, at=peer, after="end" if wrong else "put")
        with d.grid("close", engine="host") as g:
            g.wait(done, 0, slots=ranks)
            g.release(x)
    return d


def tiles(wrong: bool, ranks: int = 3) -> dt.DeviceProgram:
    """Grids of three dimensions. Wrong: one tile of all does not wait."""
    implements = gathered(ranks, 2 * ranks, 4, then=dt.relu)
    with dt.DeviceProgram("tiles", dt.Mesh(tp=ranks), implements=implements) as d:
        x, y = d.input("x"), d.output("y")
        landing = d.scratch("landing", (2 * ranks, 4), dt.f32, symmetric=True)
        came, free = d.signals("came", 4 * ranks), d.signals("free", ranks)
        with d.grid("send", engine="copy", p=ranks, c=2, j=2) as g:
            p, c, j = g.indices
            peer = (d.rank + p) % ranks
            g.wait(free, peer, ge=4, lag=1)
            source = g.view(x, (c, 2 * j), (1, 2))
            g.put(source, g.view(landing, (2 * d.rank + c, 2 * j), (1, 2), at=peer))
            g.notify(came, 4 * d.rank + 2 * c + j, at=peer)
        with d.grid("use", engine="sm", p=ranks, c=2, j=2) as g:
            p, c, j = g.indices
            owner = (d.rank + p) % ranks
            last = (d.rank == 1) & (p == 2) & (c == 1) & (j == 1)
            box = (2 * owner + c, 2 * j), (1, 2)
            g.wait(came, 4 * owner + 2 * c + j, when=~last if wrong else None)
            g.call(relu, g.view(landing, *box), g.view(y, *box))
            g.notify(free, d.rank, at=owner)
    return d


def uneven(wrong: bool, ranks: int = 4) -> dt.DeviceProgram:
    """Shards of 3, 3, 3 and 1 rows. Wrong: whoever counted rows divided and lost the last shard."""
    rows, m = 3, 10
    with dt.DeviceProgram("uneven", dt.Mesh(tp=ranks), implements=gathered(ranks, m)) as d:
        x, y = d.input("x"), d.output("y", symmetric=True)
        mine = d.table([3, 3, 3, 0 if wrong else 1])
        here, may = d.signals("here", ranks), d.signals("may", 1)
        with d.grid("open", engine="host") as g:
            g.acquire(y)
            for peer in range(ranks):
                g.notify(may, 0, at=peer)
        with d.grid("send", engine="copy", p=ranks, c=rows) as g:
            p, c = g.indices
            g.where(c < mine[d.rank])
            g.wait(may, 0, ge=ranks)
            target = g.view(y, (d.rank * rows + c, 0), (1, K), at=p)
            g.put(g.view(x, (c, 0), (1, K)), target)
            g.notify(here, d.rank, at=p)
        with d.grid("close", engine="host") as g:
            g.wait(here, 0, ge=rows, slots=ranks)
            g.release(y)
    return d


def batched(wrong: bool, ranks: int = 3) -> dt.DeviceProgram:
    """Two transfers, one signal behind a fence. Wrong: the first of the two tells."""
    rows = 2
    implements = summed(ranks, ranks * rows, scatter=True)
    with dt.DeviceProgram("batched", dt.Mesh(tp=ranks), implements=implements) as d:
        y = d.output("y")
        landing = d.scratch("landing", (ranks * rows, K), dt.f32, symmetric=True)
        total = d.scratch("total", (rows, K), dt.f32)
        came, free = d.signals("came", ranks), d.signals("free", ranks)
        box = (0, 0), (rows, K)
        own, here = own_part(d, ranks * rows)
        with d.grid("send", engine="copy", p=ranks, c=rows) as g:
            p, c = g.indices
            source = g.view(own, (p * rows + c, 0), (1, K))
            g.wait(here, 0)
            g.wait(free, p, lag=1)
            g.put(source, g.view(landing, (d.rank * rows + c, 0), (1, K), at=p))
            g.notify(came, d.rank, at=p, after="fence", when=c == (0 if wrong else 1))
        with d.grid("first", engine="sm") as g:
            one, two = (g.view(landing, (rows * i, 0), (rows, K)) for i in (0, 1))
            g.wait(came, 0, slots=2)
            g.call(add, one, two, g.view(total, *box))
            g.notify(free, d.rank, at=0)
            g.notify(free, d.rank, at=1)
        with d.grid("last", engine="sm") as g:
            g.wait(came, 2)
            g.call(add, g.view(total, *box), g.view(landing, (4, 0), (rows, K)), g.view(y, *box))
            g.notify(free, d.rank, at=2)
    return d


def turn(wrong: bool, ranks: int = 3) -> dt.DeviceProgram:
    """Every shard one rank on. Wrong: the signal goes to the other neighbour."""
    with dt.DeviceProgram("turn", dt.Mesh(tp=ranks), implements=turned(ranks, 1)) as d:
        x, y = d.input("x"), d.output("y")
        landing = d.scratch("landing", (1, K), dt.f32, symmetric=True)
        came, free = d.signals("came", 1), d.signals("free", 1)
        right, left, box = (d.rank + 1) % ranks, (d.rank - 1) % ranks, ((0, 0), (1, K))
        with d.grid("send", engine="copy") as g:
            g.wait(free, 0, lag=1)
            g.put(g.view(x, *box), g.view(landing, *box, at=right))
            g.notify(came, 0, at=left if wrong else right)
        with d.grid("take", engine="sm") as g:
            g.wait(came, 0)
            g.copy(g.view(landing, *box), g.view(y, *box))
            g.notify(free, 0, at=left)
    return d
