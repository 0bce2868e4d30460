"""Outputs and buffers keep their names apart, whatever the order and the names."""

from __future__ import annotations

import pytest
import torch

import ditron as dt


def test_outputs_may_be_named_in_any_order():
    with dt.Program("p", dt.Mesh(tp=2)) as p:
        x = p.input("x", (4, 4), dt.f32, dt.Shard(0))
        early = dt.relu(x)
        p.output("late", dt.silu(early))
        p.output("early", early)
    t = torch.randn(4, 4)
    with dt.compile(p) as exe:
        out = exe.run({"x": t})
    for name, want in p.reference({"x": t}).items():
        assert torch.allclose(out[name], want), name


def test_an_input_may_be_an_output():
    with dt.Program("p", dt.Mesh(tp=2)) as p:
        x = p.input("x", (4, 4), dt.f32, dt.Shard(0))
        y = dt.relu(x)
        p.output("same", x)
        p.output("y", y)
    t = torch.randn(4, 4)
    with dt.compile(p) as exe:
        out = exe.run({"x": t})
    assert torch.equal(out["same"], t)
    assert torch.equal(out["y"], t.relu())


@pytest.mark.parametrize("name", ["reduce_scatter.slots", "y.slots"])
def test_an_input_may_be_named_like_scratch(name: str):
    with dt.Program("p", dt.Mesh(tp=2)) as p:
        x = p.input(name, (4, 6), dt.f32, dt.Shard(1))
        w = p.input("w", (6, 6), dt.f32, dt.Shard(0))
        y = dt.reduce_scatter(dt.matmul(x, w), dim=0)
        p.output("y", y if name.startswith("y") else dt.relu(y))
    options = dt.Options(algorithm="mesh-push", fusion=False)
    with dt.compile(p, options=options) as exe:
        names = [b.name for b in exe.plan.buffers]
    assert len(set(names)) == len(names)
