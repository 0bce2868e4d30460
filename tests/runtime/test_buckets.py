"""One program for several sizes on CPU ranks."""

from __future__ import annotations

from functools import partial

import pytest
import torch

import ditron as dt
from ditron.errors import InputError, OptionError


def gemm(m: int, n: int = 6) -> dt.Program:
    with dt.Program("ag_gemm", dt.Mesh(tp=2)) as p:
        x = p.input("x", (m, 4), dt.f32, dt.Shard(0))
        w = p.weight("w", (4, n), dt.f32, dt.Shard(1))
        p.output("y", dt.matmul(dt.all_gather(x, dim=0), w))
    return p


def test_inputs_run_on_the_smallest_bucket_that_they_fit():
    w = torch.randn(4, 6)
    with dt.compile(gemm, dims={"m": (16, 1, 4)}) as exe:
        assert exe.dims == {"m": (1, 4, 16)}
        exe.bind({"w": w})
        for m in (0, 1, 3, 4, 5, 16, 2):
            x = torch.randn(m, 4)
            torch.testing.assert_close(exe.run({"x": x})["y"], x @ w)
        assert exe.at(m=3) is exe.plans[4,]
        assert exe.at(m=5) is exe.plans[16,]
        with pytest.raises(InputError, match="m is 17, the largest bucket is 16"):
            exe.run({"x": torch.randn(17, 4)})
        with pytest.raises(InputError, match="no input says what m is"):
            exe.run({})
        with pytest.raises(InputError, match=r"should have shape \(4, 4\)"):
            exe.run({"x": torch.randn(3, 5)})
        with pytest.raises(OptionError, match="expected sizes of m, got k"):
            exe.at(k=3)


def block(t: int, b: int, tp: int) -> dt.Program:
    """Causal attention between sums over ranks: tokens of a prompt, several prompts."""
    with dt.Program("block", dt.Mesh(tp=tp)) as p:
        x = p.input("x", (b, t, 8), dt.f32, dt.Replicate())
        qkv = [p.input(name, (8, 8), dt.f32, dt.Shard(1)) for name in "qkv"]
        o = p.input("o", (8, 8), dt.f32, dt.Shard(0))
        normed = dt.rms_norm(x)
        heads = [dt.reshape(dt.matmul(normed, w), (b, t, 4, 2)) for w in qkv]
        seen = dt.reshape(dt.attention(*heads, causal=True), (b, t, 8))
        p.output("y", x + dt.all_reduce(dt.matmul(seen, o)))
    return p


def in_torch(x: torch.Tensor, **weights: torch.Tensor) -> torch.Tensor:
    normed = torch.nn.functional.rms_norm(x, x.shape[-1:], eps=1e-6)
    q, k, v = ((normed @ weights[n]).reshape(*x.shape[:2], 4, 2).transpose(1, 2) for n in "qkv")
    seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return x + seen.transpose(1, 2).flatten(2) @ weights["o"]


def test_two_sizes_of_a_transformer_block():
    weights = {name: torch.randn(8, 8) for name in "qkvo"}
    made = partial(block, tp=2)
    with dt.compile(made, dims={"t": (4, 12), "b": (2,)}) as exe:
        assert list(exe.plans) == [(4, 2), (12, 2)]
        for t, b in ((1, 1), (3, 2), (7, 2), (12, 1)):
            x = torch.randn(b, t, 8)
            got = exe.run({"x": x, **weights})["y"]
            torch.testing.assert_close(got, in_torch(x, **weights), atol=1e-5, rtol=1e-4)


def total(m: int) -> dt.Program:
    with dt.Program("add", dt.Mesh(tp=3)) as p:
        a = p.input("a", (4, m), dt.i32, dt.Shard(1))
        b = p.input("b", (4, m), dt.i32, dt.Shard(1))
        p.output("y", dt.all_gather(a + b, dim=1))
    return p


def test_inputs_that_disagree():
    with dt.compile(total, dims={"m": (8,)}) as exe:
        a = torch.arange(12, dtype=torch.int32).reshape(4, 3)
        assert torch.equal(exe.run({"a": a, "b": a})["y"], a + a)
        with pytest.raises(InputError, match="m is 3, but 5 in b"):
            exe.run({"a": a, "b": torch.zeros(4, 5, dtype=torch.int32)})
