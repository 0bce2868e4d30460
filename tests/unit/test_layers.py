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


MISTAKES: list[tuple[type[ProgramError], str, Callable[[dt.Program], object]]] = [
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


@pytest.mark.parametrize(("kind", "message", "body"), MISTAKES, ids=[m[1][:40] for m in MISTAKES])
def test_mistakes_are_raised_at_the_users_line(
    kind: type[ProgramError], message: str, body: Callable[[dt.Program], object]
):
    with pytest.raises(ProgramError) as caught, dt.Program("p", dt.Mesh(tp=4)) as p:
        body(p)
    assert type(caught.value) is kind
    assert message in caught.value.message
    assert (caught.value.where or "").startswith(f"{__file__}:")
