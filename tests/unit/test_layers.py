"""Layers: what they compute, beside torch and the models' own code, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

import ditron as dt
from ditron.errors import DTypeError, PlacementError, ProgramError, ShapeError
from ditron.ir import task

S0, S1, R = dt.Shard(0), dt.Shard(1), dt.Replicate()


def run(
    op: Callable[..., dt.Value], *tensors: torch.Tensor, compute: torch.dtype = torch.float32
) -> torch.Tensor:
    """One op on replicas, by its reference."""
    with dt.Program("p", dt.Mesh(tp=2)) as p:
        values = [p.input(f"x{i}", t.shape, wrong(t.dtype), R) for i, t in enumerate(tensors)]
        p.output("y", op(*values))
    return p.reference({f"x{i}": t for i, t in enumerate(tensors)}, compute=compute)["y"]


def wrong(value: object) -> Any:
    """Something that the types do not let pass."""
    return value


def llama_rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """As the models write it: rounded before the gain, and after."""
    wide = x.to(torch.float32)
    variance = wide.pow(2).mean(-1, keepdim=True)
    return weight * (wide * torch.rsqrt(variance + eps)).to(x.dtype)


def llama_tables(
    positions: torch.Tensor, width: int, theta: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of rotary positions, as the models make them."""
    inverse = 1.0 / theta ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
    angles = positions[:, None].float() * inverse
    twice = torch.cat((angles, angles), dim=-1)
    return twice.cos(), twice.sin()


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def test_rms_norm_in_float32_is_the_models():
    x, gain = torch.randn(5, 7, 16) * 3, torch.randn(16)
    mine = run(partial(dt.rms_norm, eps=1e-5), x, gain)
    torch.testing.assert_close(mine, llama_rms_norm(x, gain, 1e-5))
    torch.testing.assert_close(mine, torch.nn.functional.rms_norm(x, (16,), gain, 1e-5))
    plain = run(dt.rms_norm, x)
    torch.testing.assert_close(plain, torch.nn.functional.rms_norm(x, (16,), eps=1e-6))


def test_rms_norm_in_bfloat16_is_rounded_once():
    torch.manual_seed(0)
    x, gain = torch.randn(5, 64).bfloat16(), torch.randn(64).bfloat16()
    mine = run(dt.rms_norm, x, gain)
    exact = run(dt.rms_norm, x, gain, compute=torch.float64)
    models = llama_rms_norm(x, gain, 1e-6)
    assert mine.dtype == torch.bfloat16
    assert torch.equal(mine, run(dt.rms_norm, x.float(), gain.float()).bfloat16())
    assert (mine - exact).abs().max() <= (models - exact).abs().max()
    torch.testing.assert_close(mine, models)


def test_softmax_is_torchs():
    x = torch.randn(4, 5, 6) * 20
    assert torch.equal(run(dt.softmax, x), torch.softmax(x, -1))
    assert torch.equal(run(partial(dt.softmax, dim=1), x), torch.softmax(x, 1))
    half = run(dt.softmax, x.half())
    assert torch.equal(half, torch.softmax(x.half().float(), -1).half())


def test_rope_is_the_models():
    x = torch.randn(6, 3, 8)
    cos, sin = llama_tables(torch.arange(6), 8, 1e4)
    cos, sin = cos[:, None], sin[:, None]
    torch.testing.assert_close(run(dt.rope, x, cos, sin), x * cos + rotate_half(x) * sin)
    narrow = run(dt.rope, x.bfloat16(), cos, sin)
    wide = x.bfloat16().float()
    assert torch.equal(narrow, (wide * cos + rotate_half(wide) * sin).bfloat16())


def test_embedding_is_torchs_with_zeros_for_unknown_ids():
    table, ids = torch.randn(9, 4), torch.tensor([[0, 8], [3, 3]])
    assert torch.equal(run(dt.embedding, ids, table), torch.nn.functional.embedding(ids, table))
    table[0] = torch.inf
    unknown = run(dt.embedding, torch.tensor([9, -1, 2], dtype=torch.int32), table)
    assert torch.equal(unknown, torch.stack([torch.zeros(4), torch.zeros(4), table[2]]))
    assert run(dt.embedding, torch.tensor([0]), torch.empty(0, 4)).tolist() == [[0] * 4]


def torchs_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None
) -> torch.Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    found = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
    return found.transpose(1, 2)


def test_attention_is_torchs():
    q, k, v = (torch.randn(2, t, h, 8) for t, h in ((3, 6), (5, 2), (5, 2)))
    mask = torch.ones(3, 5).tril(2).bool()
    torch.testing.assert_close(run(dt.attention, q, k, v), torchs_attention(q, k, v, mask))
    every = run(partial(dt.attention, causal=False), q, k, v)
    torch.testing.assert_close(every, torchs_attention(q, k, v))
    scaled = run(partial(dt.attention, scale=1.0), q, k, v)
    torch.testing.assert_close(scaled, torchs_attention(q * 8**0.5, k, v, mask))
    narrow = run(dt.attention, q.bfloat16(), k.bfloat16(), v.bfloat16())
    wide = run(dt.attention, *(x.bfloat16().float() for x in (q, k, v)))
    assert torch.equal(narrow, wide.bfloat16())


@pytest.mark.parametrize("causal", [True, False])
def test_attention_sees_nothing_beyond_the_last_token(causal: bool):
    q, k, v = (torch.randn(1, t, h, 4) for t, h in ((2, 4), (6, 4), (6, 4)))
    k[:, 3:] = v[:, 3:] = torch.nan
    with dt.Program("p", dt.Mesh(tp=2)) as p:
        cut = [p.input(n, x.shape, dt.f32, dt.Shard(2)) for n, x in (("q", q), ("k", k), ("v", v))]
        pos = p.scalar("pos", dt.i32, max=4)
        p.output("y", dt.attention(*cut, at=pos, causal=causal))
    got = p.reference({"q": q, "k": k, "v": v, "pos": 1})["y"]
    mask = torch.ones(2, 3).tril(1 if causal else 2).bool()
    torch.testing.assert_close(got, torchs_attention(q, k[:, :3], v[:, :3], mask))


def test_argmax_is_torchs_and_joins_that_of_parts():
    x = torch.randn(3, 12).bfloat16()
    x[1, 5] = x[1, 9] = 7
    x[2, 4] = torch.nan
    assert torch.equal(run(dt.argmax, x), x.argmax(1, keepdim=True))
    torch.testing.assert_close(run(dt.amax, x), x.amax(1, keepdim=True), equal_nan=True)
    assert run(dt.argmax, x)[1:].tolist() == [[5], [4]]

    def joined(parts: dt.Value, labels: dt.Value) -> dt.Value:
        return dt.argmax(dt.amax(parts), dt.argmax(parts, labels), dim=1)

    got = run(joined, x.reshape(3, 4, 3), torch.arange(12).reshape(1, 4, 3))
    assert torch.equal(got[..., 0], x.argmax(1, keepdim=True))


def test_empty_rows():
    assert run(dt.rms_norm, torch.empty(0, 4)).shape == (0, 4)
    assert run(dt.softmax, torch.empty(3, 0)).shape == (3, 0)


def test_names_and_placements():
    with dt.Program("p", dt.Mesh(dp=2, tp=2)) as p:
        ids = p.input("ids", (8,), dt.i32, (S0, R))
        table = p.weight("table", (50, 16), dt.bf16, (R, S0))
        x = dt.all_reduce(dt.embedding(ids, table, name="embed"), name="embedded")
        gain = p.weight("gain", (16,), dt.bf16, (R, R))
        x = dt.rms_norm(x, gain, name="norm")
        assert x.placements == (S0, R)
        x = dt.softmax(x, name="soft")
        p.output("y", x)
    named = [op for op in p.ir.walk() if isinstance(op, task.ComputeOp)]
    names = [op.label() for op in named]
    assert names == ["embed", "embedded", "norm", "soft"]


def source(p: dt.Program, name: str, shape: tuple[int, ...], place: object = R) -> dt.Value:
    return p.input(name, shape, dt.f32, wrong(place))


Mistake = tuple[type[ProgramError], str, Callable[[dt.Program], object]]
MISTAKES: list[Mistake] = [
    (
        PlacementError,
        "rms_norm has no rule for h [shard(1)]; to mend it use all_gather(h, dim=1) or"
        " all_to_all(h, split_dim=0, concat_dim=1)",
        lambda p: dt.rms_norm(source(p, "h", (8, 4), S1)),
    ),
    (
        PlacementError,
        "rms_norm has no rule for h [shard(0)] and gain [shard(0)]; to mend it use all_gather(gain",
        lambda p: dt.rms_norm(source(p, "h", (8, 4), S0), dt.relu(source(p, "g", (4,), S0))),
    ),
    (
        ShapeError,
        "rms_norm of x 8x4 takes a gain of shape (4,), got g 1x4",
        lambda p: dt.rms_norm(source(p, "x", (8, 4)), source(p, "g", (1, 4))),
    ),
    (
        DTypeError,
        "rms_norm of x f32 and g bf16: dtypes must agree; cast one of them",
        lambda p: dt.rms_norm(source(p, "x", (8, 4)), p.weight("g", (4,), dt.bf16, R)),
    ),
    (
        ProgramError,
        "rms_norm's eps is a small number, 0 or more, got nan",
        lambda p: dt.rms_norm(source(p, "x", (8, 4)), eps=float("nan")),
    ),
    (
        ProgramError,
        "rms_norm's eps is a number, got 'small'",
        lambda p: dt.rms_norm(source(p, "x", (8, 4)), eps=wrong("small")),
    ),
    (
        ProgramError,
        "rms_norm takes values of a program, got 3",
        lambda p: dt.rms_norm(source(p, "x", (8, 4)), wrong(3)),
    ),
    (
        PlacementError,
        "softmax has no rule for x [shard(1)]",
        lambda p: dt.softmax(source(p, "x", (8, 4), S1)),
    ),
    (
        DTypeError,
        "softmax takes float dtypes, got i32",
        lambda p: dt.softmax(p.input("x", (8, 4), dt.i32, R)),
    ),
    (ShapeError, "softmax: dim 2 is out of range", lambda p: dt.softmax(source(p, "x", (8, 4)), 2)),
    (
        ShapeError,
        "rope of x 8x3: its last dimension is turned in halves, so it must be even",
        lambda p: dt.rope(x := source(p, "x", (8, 3)), x, x),
    ),
    (
        ShapeError,
        "rope of x 8x2x4 and sin 8x4: expected sin with the same last dimension, and with sizes 1",
        lambda p: dt.rope(
            source(p, "x", (8, 2, 4)), source(p, "c", (8, 1, 4)), source(p, "sin", (8, 4))
        ),
    ),
    (
        DTypeError,
        "rope of x f32 and c bf16 and c bf16: cos and sin are both f32, or both of x's dtype",
        lambda p: dt.rope(source(p, "x", (8, 4)), c := p.input("c", (8, 4), dt.bf16, R), c),
    ),
    (
        PlacementError,
        "rope has no rule for x [shard(1)]",
        lambda p: dt.rope(source(p, "x", (8, 4), S1), c := source(p, "c", (8, 4)), c),
    ),
    (
        PlacementError,
        "embedding has no rule for i [shard(0)] and t [shard(1)]; to mend it use all_gather(i,",
        lambda p: dt.embedding(p.input("i", (8,), dt.i64, S0), source(p, "t", (5, 4), S1)),
    ),
    (
        ShapeError,
        "embedding takes a table of shape (V, D), got t 5",
        lambda p: dt.embedding(p.input("i", (8,), dt.i64, R), source(p, "t", (5,))),
    ),
    (
        DTypeError,
        "embedding takes ids of an int dtype, got i f32",
        lambda p: dt.embedding(source(p, "i", (8,)), source(p, "t", (5, 4))),
    ),
    (
        DTypeError,
        "embedding takes a table of numbers, got t bool",
        lambda p: dt.embedding(p.input("i", (8,), dt.i64, R), p.input("t", (5, 4), dt.bool, R)),
    ),
]


def heads(p: dt.Program, *shapes: tuple[int, ...], place: object = R) -> list[dt.Value]:
    return [source(p, name, shape, place) for name, shape in zip("qkv", shapes, strict=True)]


Q, KV = (1, 2, 6, 8), (1, 4, 3, 8)
MORE: list[Mistake] = [
    (
        ShapeError,
        "attention of q 1x2x6x8, k 1x4x3x8, v 1x5x3x8: expected [B, T, H, D], [B, C, G, D] and",
        lambda p: dt.attention(*heads(p, Q, KV, (1, 5, 3, 8))),
    ),
    (
        ShapeError,
        "attention of q 1x2x6x8, k 1x4x4x8, v 1x4x4x8: 4 key heads do not divide 6 query heads",
        lambda p: dt.attention(*heads(p, Q, (1, 4, 4, 8), (1, 4, 4, 8))),
    ),
    (
        ShapeError,
        "2 tokens at 3 do not lie within 4 places",
        lambda p: dt.attention(*heads(p, Q, KV, KV), at=3),
    ),
    (
        ShapeError,
        "2 tokens at up to 3 do not lie within 4 places",
        lambda p: dt.attention(*heads(p, Q, KV, KV), at=p.scalar("pos", dt.i32, max=3)),
    ),
    (ShapeError, "2 tokens at -1 do", lambda p: dt.attention(*heads(p, Q, KV, KV), at=-1)),
    (
        ProgramError,
        "a place at run time is a p.scalar(name, dtype, max=...)",
        lambda p: dt.attention(*heads(p, Q, KV, KV), at=p.scalar("pos", dt.i32)),
    ),
    (
        ProgramError,
        "attention's at is an integer or a scalar of the program's, got 'end'",
        lambda p: dt.attention(*heads(p, Q, KV, KV), at=wrong("end")),
    ),
    (
        ProgramError,
        "attention's scale is a number above 0, got 0.0",
        lambda p: dt.attention(*heads(p, Q, KV, KV), scale=0),
    ),
    (
        PlacementError,
        "attention has no rule for q [shard(1)] and k [shard(1)] and v [shard(1)]; to mend it use",
        lambda p: dt.attention(*heads(p, Q, KV, KV, place=S1)),
    ),
    (
        PlacementError,
        "that are [shard(2)]: the parts of 6 heads are not those of 2 key heads; use fewer ranks",
        lambda p: dt.attention(*heads(p, Q, (1, 4, 2, 8), (1, 4, 2, 8), place=dt.Shard(2))),
    ),
    (
        DTypeError,
        "attention of q f32 and k f32 and w bf16: dtypes must agree",
        lambda p: dt.attention(source(p, "q", Q), source(p, "k", KV), p.input("w", KV, dt.bf16, R)),
    ),
    (
        PlacementError,
        "argmax has no rule for x [shard(1)]; to mend it use all_gather(x, dim=1)",
        lambda p: dt.argmax(source(p, "x", (8, 4), S1)),
    ),
    (
        PlacementError,
        "amax has no rule for x [shard(1)]; to mend it use all_gather(x, dim=1)",
        lambda p: dt.amax(source(p, "x", (8, 4), S1)),
    ),
    (
        ShapeError,
        "argmax of x 8x0 along dim 1: there is none of no elements",
        lambda p: dt.argmax(source(p, "x", (8, 0))),
    ),
    (
        ShapeError,
        "argmax of x 8x4 along dim 1, and l 8x1: expected the same sizes, or 1 in other dimensions",
        lambda p: dt.argmax(source(p, "x", (8, 4)), p.input("l", (8, 1), dt.i64, R)),
    ),
    (
        DTypeError,
        "argmax takes labels of an int dtype, got l f32",
        lambda p: dt.argmax(source(p, "x", (8, 4)), source(p, "l", (8, 4))),
    ),
    (
        DTypeError,
        "amax takes float or int dtypes, got bool",
        lambda p: dt.amax(p.input("x", (8, 4), dt.bool, R)),
    ),
]


ALL = [*MISTAKES, *MORE]


@pytest.mark.parametrize(("kind", "message", "body"), ALL, ids=[m[1][:40] for m in ALL])
def test_mistakes_are_raised_at_the_users_line(
    kind: type[ProgramError], message: str, body: Callable[[dt.Program], object]
):
    with pytest.raises(ProgramError) as caught, dt.Program("p", dt.Mesh(tp=4)) as p:
        body(p)
    assert type(caught.value) is kind
    assert message in caught.value.message
    assert (caught.value.where or "").startswith(f"{__file__}:")
