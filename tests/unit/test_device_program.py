"""Device programs: their IR, their indices, what they prove and how they run."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import interleaved
import numpy as np
import pytest
import torch

import ditron as dt
from ditron.errors import OptionError, ProgramError
from ditron.ir import device
from ditron.ir.locations import op_location
from ditron.tools.loading import parse_dump


@dt.kernel
def double(k: Any, x: Any, y: Any):
    k.store(y, 2 * k.load(x))


def shifted(ranks: int = 4, rows: int = 3, name: str = "shifted") -> dt.DeviceProgram:
    """Each rank doubles what it has and puts it to the next; no task program says so."""
    with dt.DeviceProgram(name, dt.Mesh(tp=ranks)) as d:
        x = d.input("x", (rows * ranks, 2), dt.f32, dt.Shard(0))
        y = d.output("y", (rows * ranks, 2), dt.f32, dt.Shard(0))
        mine = d.scratch("mine", (rows, 2), dt.f32)
        landing = d.scratch("landing", (rows, 2), dt.f32, symmetric=True)
        made, came, free = (d.signals(n, 1) for n in ("made", "came", "free"))
        box = (0, 0), (rows, 2)
        with d.grid("double", engine="sm") as g:
            g.call(double, g.view(x, *box), g.view(mine, *box))
            g.notify(made, 0)
        with d.grid("send", engine="copy") as g:
            right = g.index("right", (d.rank + 1) % ranks)
            g.wait(made, 0)
            g.wait(free, 0, lag=1)
            g.put(g.view(mine, *box), g.view(landing, *box, at=right))
            g.notify(came, 0, at=right)
        with d.grid("take", engine="copy") as g:
            g.wait(came, 0)
            g.copy(g.view(landing, *box), g.view(y, *box))
            g.notify(free, 0, at=(d.rank - 1) % ranks)
    return d


def test_ir_is_what_was_written():
    text = str(shifted().ir)
    for line in (
        "device.program @shifted ranks 4 {",
        '%x = device.buffer "x" input[3, 2] : !device.buffer<3x2xf32, local>',
        '%landing = device.buffer "landing" scratch[3, 2] : !device.buffer<3x2xf32, symmetric>',
        "device.grid @double engine sm in () {",
        "device.call @double(%0, %1) : !core.view<3x2xf32>, !core.view<3x2xf32>",
        "%right = device.index (%me + 1) mod 4",
        "device.wait %free[0, 1] ge 1 lag 1 : !device.signals<1>",
        "device.notify %came[0] at %right add 1 after put : !device.signals<1>",
        "device.notify %free[0] at (%me - 1) mod 4 add 1 after end : !device.signals<1>",
    ):
        assert line in text
    assert str(parse_dump(text, "dump")) == text


def test_what_is_written_in_any_order_stands_in_the_ir_in_its_own():
    with dt.DeviceProgram("p", dt.Mesh(tp=2)) as d:
        y = d.output("y", (4, 2), dt.f32, dt.Shard(0))
        x = d.input("x", (4, 2), dt.f32, dt.Shard(0))
        s = d.signals("s", 1)
        with d.grid("g", engine="copy", i=3, j=2) as g:
            i, j = g.indices
            g.notify(s, 0, when=i == 2)
            g.order(j, -i)
            g.copy(g.view(x, (i % 2, j), (1, 1)), g.view(y, (i % 2, j), (1, 1)))
            g.where(i < 2)
            g.lane(j)
            g.wait(s, 0, ge=2, lag=1)
    (grid,) = [op for op in d.ir.walk() if isinstance(op, device.GridOp)]
    names = [op.name.removeprefix("device.") for op in grid.body.block.ops]
    assert names == ["view", "view", "schedule", "wait", "copy", "notify"]
    assert "device.schedule lane[%j] order[%j, 0 - %i] where[%i lt 2]" in str(d)
    assert op_location(grid).startswith(__file__)


def test_without_implements_delivery_is_not_proved_but_it_runs():
    d = shifted()
    x = torch.arange(24.0).reshape(12, 2)
    with dt.compile(d) as exe:
        assert exe.report.delivery is None
        assert "delivery       not proved" in str(exe.report)
        expected = 2 * x.roll(3, 0)
        assert torch.equal(exe.run({"x": x})["y"], expected)
        for seed in range(5):
            for outputs in interleaved.run(exe, d.mesh, {"x": x}, seed=seed, launches=3):
                assert torch.equal(outputs["y"], expected)
    with pytest.raises(ProgramError, match="shifted has no reference: say which task program"):
        d.reference({"x": x})


def test_it_says_itself_how_it_runs():
    with pytest.raises(OptionError, match="leave out option algorithm, workers"):
        dt.compile(shifted(), options=dt.Options(algorithm="ring", workers=2))


Binary = Callable[[Any, Any], Any]
OPERATORS: list[tuple[Binary, Binary]] = [
    (lambda a, b: a + b, lambda a, b: a + b),
    (lambda a, b: a - b, lambda a, b: a - b),
    (lambda a, b: a * b, lambda a, b: a * b),
    (lambda a, b: a // (b * b + 1), lambda a, b: a // (b * b + 1)),
    (lambda a, b: a % (b * b + 1), lambda a, b: a % (b * b + 1)),
    (lambda a, b: a ^ b, lambda a, b: a ^ b),
    (lambda a, b: a < b, lambda a, b: int(a < b)),
    (lambda a, b: a <= b, lambda a, b: int(a <= b)),
    (lambda a, b: a > b, lambda a, b: int(a > b)),
    (lambda a, b: a >= b, lambda a, b: int(a >= b)),
    (lambda a, b: a == b, lambda a, b: int(a == b)),
    (lambda a, b: a != b, lambda a, b: int(a != b)),
    (lambda a, b: (a > 1) & (b > 1), lambda a, b: int(a > 1 and b > 1)),
    (lambda a, b: (a > 1) | (b > 1), lambda a, b: int(a > 1 or b > 1)),
    (lambda a, b: ~(a > b), lambda a, b: int(not a > b)),
    (lambda a, b: -a + b, lambda a, b: -a + b),
]


@pytest.mark.parametrize("seed", range(20))
def test_indices_are_what_python_makes_of_them(seed: int):
    """Random expressions, at every point, against Python's own integers."""
    rng = random.Random(seed)
    rows = [[3, 1, 2, 0], [7, 5, 6, 4], [0, 9, 8, 1]]
    points = list(itertools.product(range(3), range(4), range(2)))
    with dt.DeviceProgram("p", dt.Mesh(tp=3)) as d:
        y = d.output("y", (3, 1), dt.f32, dt.Shard(0))
        table = d.table(rows)
        with d.grid("g", engine="sm", i=4, j=2) as g:
            i, j = g.indices
            known: list[tuple[Any, list[int]]] = [
                (d.rank, [r for r, _, _ in points]),
                (i, [p for _, p, _ in points]),
                (j, [q for _, _, q in points]),
                (table[d.rank, i], [rows[r][p] for r, p, _ in points]),
                (2, [2] * len(points)),
                (d.coordinate("tp"), [r for r, _, _ in points]),
            ]
            for _ in range(8):
                (a, va), (b, vb) = rng.sample(known, 2)
                if isinstance(a, int) and isinstance(b, int):
                    continue
                ours, theirs = rng.choice(OPERATORS)
                pairs = list(zip(va, vb, strict=True))
                known += [
                    (ours(a, b), [theirs(x, y) for x, y in pairs]),
                    (d.min(a, b), [min(p) for p in pairs]),
                    (d.max(a, b), [max(p) for p in pairs]),
                ]
            for index, values in known:
                inside = np.broadcast_to(g.index("v", index).values(), (3, 4, 2))
                assert inside.ravel().tolist() == values
            box = g.view(y, (0, 0), (1, 1))
            g.copy(box, box)


def test_masked_tasks_may_name_peers_and_boxes_that_are_not():
    """A step of recursive doubling on five ranks: partners beyond the last are left out."""
    with dt.DeviceProgram("p", dt.Mesh(tp=5)) as d:
        x = d.input("x", (5, 2), dt.i32, dt.Shard(0))
        y = d.output("y", (5, 2), dt.i32, dt.Shard(0))
        room = d.scratch("room", (1, 2), dt.i32, symmetric=True)
        came, free = d.signals("came", 1), d.signals("free", 1)
        partner = d.index("partner", d.rank ^ 1)
        with d.grid("swap", engine="copy") as g:
            g.where(partner < 5)
            g.wait(free, 0, lag=1, when=partner < 5)
            g.put(g.view(x, (0, 0), (1, 2)), g.view(room, (0, 0), (1, 2), at=partner))
            g.notify(came, 0, at=partner, when=partner < 5)
        with d.grid("take", engine="sm") as g:
            g.wait(came, 0, when=partner < 5)
            source = g.view(room, (0, 0), (1, 2))
            g.where(partner < 5)
            g.copy(source, g.view(y, (0, 0), (1, 2)))
            g.notify(free, 0, at=partner, when=partner < 5)
        with d.grid("own", engine="sm") as g:
            g.where(partner >= 5)
            g.copy(g.view(x, (0, 0), (1, 2)), g.view(y, (0, 0), (1, 2)))
    x = torch.arange(10, dtype=torch.int32).reshape(5, 2)
    with dt.compile(d) as exe:
        outputs = interleaved.run(exe, d.mesh, {"x": x}, seed=3, launches=3)
    assert all(torch.equal(o["y"], x[[1, 0, 3, 2, 4]]) for o in outputs)


def test_two_axes_and_uneven_shards():
    mesh = dt.Mesh(dp=2, tp=3)
    with dt.DeviceProgram("p", mesh) as d:
        x = d.input("x", (5, 7), dt.i32, (dt.Shard(0), dt.Shard(1)))
        y = d.output("y", (5, 7), dt.i32, (dt.Shard(0), dt.Shard(1)))
        assert x.shape == (3, 3)
        assert x.extent.tolist() == [[3, 3], [3, 3], [3, 1], [2, 3], [2, 3], [2, 1]]
        with d.grid("copy", engine="copy") as g:
            g.copy(g.view(x, (0, 0), x.shape), g.view(y, (0, 0), y.shape))
    x = torch.arange(35, dtype=torch.int32).reshape(5, 7)
    with dt.compile(d) as exe:
        (outputs,) = interleaved.run(exe, mesh, {"x": x})
    assert torch.equal(outputs["y"], x)


def test_a_slot_that_is_set_says_how_far_its_lane_is():
    """A copy engine that can only set: the slot goes to 1, 2, 3 above what the last launch left."""
    with dt.DeviceProgram("p", dt.Mesh(tp=2)) as d:
        x = d.input("x", (6, 2), dt.i32, dt.Shard(0))
        y = d.output("y", (6, 2), dt.i32, dt.Shard(0))
        landing = d.scratch("landing", (3, 2), dt.i32, symmetric=True)
        came, free = d.signals("came", 1), d.signals("free", 1)
        with d.grid("send", engine="copy", i=3) as g:
            i = g["i"]
            other = 1 - d.rank
            g.wait(free, 0, ge=3, lag=1, when=i == 0)
            g.put(g.view(x, (i, 0), (1, 2)), g.view(landing, (i, 0), (1, 2), at=other))
            for step in range(3):
                g.notify(came, 0, at=other, set=step + 1, when=i == step)
        with d.grid("take", engine="sm", i=3) as g:
            i = g["i"]
            g.wait(came, 0, ge=i + 1)
            g.copy(g.view(landing, (i, 0), (1, 2)), g.view(y, (i, 0), (1, 2)))
            g.notify(free, 0, at=1 - d.rank)
    x = torch.arange(12, dtype=torch.int32).reshape(6, 2)
    with dt.compile(d) as exe:
        for seed in range(4):
            for outputs in interleaved.run(exe, d.mesh, {"x": x}, seed=seed, launches=3):
                assert torch.equal(outputs["y"], x.roll(3, 0))
        for _ in range(3):
            assert torch.equal(exe.run({"x": x})["y"], x.roll(3, 0))


def test_weights_are_bound_once():
    with dt.Program("scaled", dt.Mesh(tp=2)) as p:
        x = p.input("x", (4, 2), dt.f32, dt.Shard(0))
        p.output("y", x * p.weight("w", (1, 2), dt.f32, dt.Replicate()))

    @dt.kernel
    def scale(k: Any, x: Any, w: Any, y: Any):
        k.store(y, k.load(x) * k.load(w))

    with dt.DeviceProgram("p", dt.Mesh(tp=2), implements=p) as d:
        x, w, y = d.input("x"), d.weight("w"), d.output("y")
        with d.grid("scale", engine="sm") as g:
            g.call(scale, *(g.view(b, (0, 0), b.shape) for b in (x, w, y)))
    x, w = torch.randn(4, 2), torch.randn(1, 2)
    with dt.compile(d) as exe:
        exe.bind({"w": w})
        assert torch.equal(exe.run({"x": x})["y"], d.reference({"x": x, "w": w})["y"])
        assert exe.report.delivery is not None
