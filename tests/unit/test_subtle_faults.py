"""Programs by hand that are nearly right: what tags, casts and overlaps must not hide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import ditron as dt
from ditron.analysis.delivery_faults import EmptyView
from ditron.analysis.own_overlaps import OwnOverlap
from ditron.analysis.races import check_races
from ditron.errors import DeliveryError, RaceError
from ditron.testing import mutants


@dt.kernel
def zeros(k: Any, x: Any, y: Any):
    k.store(y, k.load(x) * 0)


@dt.kernel
def vast(k: Any, x: Any, y: Any, *, block: tuple[int, int] = (4, 4)):
    tile = k.tile(y, block)
    k.store(y, tile, k.load(x, tile, block) * 1e20 * 1e20)


@dt.kernel
def power(k: Any, x: Any, y: Any, *, block: tuple[int, int] = (4, 4)):
    tile = k.tile(y, block)
    k.store(y, tile, k.load(x, tile, block) * float(2**63) * 2.0)


@dt.kernel
def row_sums(k: Any, x: Any, b: Any, w: Any, y: Any, *, block: tuple[int, int] = (4, 4)):
    """Sums over k of (x + b) times ones."""
    i, j = k.tile(y, block)
    x_tile = k.load(x, (i, 0), (block[0], x.shape[1])) + k.load(b, (i, 0), (block[0], 1))
    k.store(y, (i, j), x_tile @ (k.load(w, (0, j), (w.shape[0], block[1])) * 0 + 1))


@dt.kernel
def own_row_sums(k: Any, x: Any, b: Any, w: Any, y: Any):
    k.store(y, (k.load(x) + k.load(b)) @ (k.load(w) * 0 + 1))


@dt.kernel
def too_few(k: Any, x: Any, b: Any, w: Any, y: Any):
    k.store(y, k.load(x) @ (k.load(w) * 0 + 1) + k.load(b) * 2)


@dt.kernel
def narrowed(k: Any, x: Any, y: Any):
    k.store(y, k.cast(k.cast(k.load(x), dt.i32), dt.i64))


def by_one_grid(program: dt.Program, kernel: dt.Kernel, inputs: str = "x") -> dt.DeviceProgram:
    """A program of one task on each rank, which calls a kernel on all of its inputs and of y."""
    with dt.DeviceProgram("d", program.mesh, implements=program) as d:
        buffers = [*(d.input(name) for name in inputs), d.output("y")]
        with d.grid("g", engine="sm") as g:
            g.call(kernel, *(g.view(b, (0, 0), b.shape) for b in buffers))
    return d


@pytest.mark.parametrize("kernel", [vast, power], ids=["vast", "power"])
def test_a_large_number_is_not_nothing(kernel: dt.Kernel):
    with dt.Program("t", dt.Mesh(tp=2)) as p:
        x = p.input("x", (8, 4), dt.f32, dt.Shard(0))
        p.output("y", dt.call(kernel, x, out=dt.like(x)))
    with pytest.raises(DeliveryError, match="zeros"):
        dt.compile(by_one_grid(p, zeros), target="cpu")


def test_a_term_that_all_of_a_sum_share_counts_for_each():
    with dt.Program("t", dt.Mesh(tp=2)) as p:
        x = p.input("x", (8, 16), dt.f32, dt.Shard(0))
        b = p.input("b", (8, 1), dt.f32, dt.Shard(0))
        w = p.input("w", (16, 4), dt.f32, dt.Replicate())
        p.output("y", dt.call(row_sums, x, b, w, out=dt.like(x, shape=(8, 4))))
    with dt.compile(by_one_grid(p, own_row_sums, "xbw"), target="cpu") as exe:
        given = {"x": torch.rand(8, 16), "b": torch.rand(8, 1), "w": torch.rand(16, 4)}
        want = (given["x"] + given["b"]).sum(1, keepdim=True).expand(8, 4)
        torch.testing.assert_close(exe.run(given)["y"], want)
    with pytest.raises(DeliveryError, match="something else"):
        dt.compile(by_one_grid(p, too_few, "xbw"), target="cpu")


def test_an_integer_that_is_cut_off_is_another():
    with dt.Program("t", dt.Mesh(tp=2)) as p:
        p.output("y", p.input("x", (8, 4), dt.i64, dt.Shard(0)))
    with pytest.raises(DeliveryError, match="something else"):
        dt.compile(by_one_grid(p, narrowed), target="cpu")


@dt.kernel
def added(k: Any, x: Any, b: Any, y: Any):
    k.store(y, k.load(x) + k.load(b))


def test_a_row_for_all_is_there_on_every_rank():
    with dt.Program("t", dt.Mesh(tp=3)) as p:
        x = p.input("x", (6, 4), dt.f32, dt.Shard(0))
        p.input("b", (2, 4), dt.f32, dt.Shard(0))  # of three ranks two have a row
        p.output("y", dt.relu(x))
    with dt.DeviceProgram("d", p.mesh, implements=p) as d:
        x, b, y = d.input("x"), d.input("b"), d.output("y")
        with d.grid("g", engine="sm") as g:
            views = g.view(x, (0, 0), (2, 4)), g.view(b, (0, 0), (1, 4)), g.view(y, (0, 0), (2, 4))
            g.call(added, *views)
    with pytest.raises(DeliveryError, match=r"rank 2 .* needs one element along dim 0") as raised:
        dt.compile(d, target="cpu")
    assert isinstance(raised.value.counterexample, EmptyView)


@dt.kernel
def add_one(k: Any, x: Any, y: Any):
    k.store(y, k.load(x) + 1)


@dt.kernel
def times(k: Any, x: Any, w: Any, y: Any):
    k.store(y, k.load(x) @ k.load(w))


Second = Callable[[Any, dt.Buffer], object]


def in_place(second: Second) -> dt.DeviceProgram:
    """A copy of x to y, then a task on y."""
    with dt.DeviceProgram("d", dt.Mesh(tp=2)) as d:
        x = d.input("x", (16, 8), dt.f32, dt.Shard(0))
        y = d.output("y", (16, 8), dt.f32, dt.Shard(0))
        with d.grid("a", engine="sm") as g:
            g.copy(g.view(x, (0, 0), (8, 8)), g.view(y, (0, 0), (8, 8)))
        with d.grid("b", engine="sm") as g:
            second(g, y)
    return d


OVERLAPS: dict[str, Second] = {
    "copy": lambda g, y: g.copy(g.view(y, (0, 0), (6, 8)), g.view(y, (2, 0), (6, 8))),
    "call": lambda g, y: g.call(add_one, g.view(y, (0, 0), (6, 8)), g.view(y, (2, 0), (6, 8))),
    "product": lambda g, y: g.call(times, *[g.view(y, (0, 0), (8, 8))] * 3),
}


@pytest.mark.parametrize("second", OVERLAPS.values(), ids=OVERLAPS.keys())
def test_a_task_does_not_write_what_it_reads(second: Second):
    with pytest.raises(RaceError, match="write another buffer") as raised:
        dt.compile(in_place(second), target="cpu")
    found = raised.value.counterexample
    assert isinstance(found, OwnOverlap)
    assert found.second.task.name == "@b[0]"


def test_but_it_may_element_by_element():
    whole = (0, 0), (8, 8)
    program = in_place(lambda g, y: g.call(add_one, g.view(y, *whole), g.view(y, *whole)))
    with dt.compile(program, target="cpu") as exe:
        x = torch.rand(16, 8)
        torch.testing.assert_close(exe.run({"x": x})["y"], x + 1)


def test_what_reaches_a_task_that_has_nothing_to_do_is_handed_back():
    with dt.Program("t", dt.Mesh(tp=2)) as p:
        v = dt.all_gather(p.input("x", (8, 2), dt.f32, dt.Shard(0)), dim=0)
        p.output("none", dt.slice(v, 0, 4, 0))
        p.output("all", v)
    for algorithm in ("mesh-push", "mesh-pull", "ring-push"):
        with dt.compile(p, target="cpu", options=dt.Options(algorithm=algorithm)) as exe:
            x = torch.rand(8, 2)
            out = exe.run({"x": x})
            assert out["none"].shape == (0, 2)
            assert torch.equal(out["all"], x)


def test_nothing_has_a_shape_too():
    with dt.Program("t", dt.Mesh(tp=2)) as p:
        x = p.input("x", (2, 0), dt.f32, dt.Shard(0))
        p.output("y", dt.reshape(x, (0,)))
    with dt.compile(p, target="cpu") as exe:
        assert exe.run({"x": torch.rand(2, 0)})["y"].shape == (0,)


def test_scratch_in_the_bytes_of_an_output_is_the_hosts_too():
    """A peer that is a launch ahead would write where this rank's host still reads."""
    with dt.Program("twice", dt.Mesh(tp=3)) as p:
        x = p.input("x", (4, 4), dt.f32, dt.Partial("sum"))
        for name in ("a", "b"):
            p.output(name, dt.reduce_scatter(x, dim=0, name=f"sum_{name}"))
    with dt.compile(p, options=dt.Options(algorithm="ring-push")) as exe:
        overlaps = {m.what: m for m in mutants(exe.plan) if m.kind == "buffers overlap"}
        for name in ("a", "b"):
            with pytest.raises(RaceError, match=f"%{name}, in the same bytes, between launches"):
                check_races(overlaps[f"%{name}.sums over %{name}"].plan)
