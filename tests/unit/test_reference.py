"""The reference against torch itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import ditron as dt
from ditron.errors import InputError

R = dt.Replicate()


def mlp(dtype: dt.DType) -> dt.Program:
    with dt.Program("mlp", dt.Mesh(tp=3)) as p:
        x = p.input("x", (5, 4), dtype, dt.Shard(0))
        up = p.weight("up", (4, 8), dtype, dt.Shard(1))
        down = p.weight("down", (6, 8), dtype, dt.Shard(1))
        h = dt.silu(dt.matmul(dt.all_gather(x, dim=0), up))
        y = dt.matmul(h, down, transpose_b=True)
        p.output("sum", y)
        p.output("scattered", dt.reduce_scatter(y, dim=0))
        p.output("reduced", dt.all_reduce(y))
    return p


def tensors(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = {"x": (5, 4), "up": (4, 8), "down": (6, 8)}
    return {n: torch.randn(*s, generator=generator).to(dtype) for n, s in shapes.items()}


def test_float32_rounds_once_an_op():
    given = tensors(torch.bfloat16)
    out = mlp(dt.bf16).reference(given)
    x, up, down = (t.float() for t in given.values())
    h = (x @ up).bfloat16().float()
    h = torch.nn.functional.silu(h).bfloat16().float()
    y = (h @ down.T).bfloat16()
    for name in ("sum", "scattered", "reduced"):
        assert out[name].dtype == torch.bfloat16
        assert torch.equal(out[name], y)


def test_float64_never_rounds():
    given = tensors(torch.bfloat16)
    out = mlp(dt.bf16).reference(given, compute=torch.float64)
    x, up, down = (t.double() for t in given.values())
    assert torch.equal(out["sum"], torch.nn.functional.silu(x @ up) @ down.T)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (dt.silu, torch.nn.functional.silu),
        (dt.gelu, torch.nn.functional.gelu),
        (dt.relu, torch.relu),
        (dt.exp, torch.exp),
    ],
)
def test_unary(op: Callable[[dt.Value], dt.Value], expected: Callable[..., torch.Tensor]):
    with dt.Program("p", dt.Mesh(tp=2)) as p:
        p.output("y", op(p.input("x", (3, 2), dt.f32, dt.Shard(0))))
    x = torch.randn(3, 2)
    assert torch.equal(p.reference({"x": x})["y"], expected(x))


def test_binary_broadcasts_and_integers_stay_integers():
    with dt.Program("p", dt.Mesh(tp=2)) as p:
        x = p.input("x", (3, 2), dt.i64, dt.Shard(0))
        b = p.input("b", (1, 2), dt.i64, R)
        p.output("y", x * b + b - x)
    x, b = torch.full((3, 2), 2**40 + 1), torch.tensor([[3, 5]])
    assert torch.equal(p.reference({"x": x, "b": b})["y"], x * b + b - x)
    assert p.reference({"x": x, "b": b}, compute=torch.float64)["y"].dtype == torch.int64


@pytest.mark.parametrize("compute", [torch.float32, torch.float64])
def test_casts(compute: torch.dtype):
    with dt.Program("p", dt.Mesh(tp=2)) as p:
        x = p.input("x", (3,), dt.f32, dt.Shard(0))
        p.output("i", dt.cast(x, dt.i32))
        p.output("b", dt.cast(x, dt.bool))
        p.output("back", dt.cast(dt.cast(x, dt.bool), dt.f32))
        p.output("narrow", dt.cast(x, dt.f16))
    out = p.reference({"x": torch.tensor([0.0, -1.7, 3.00001])}, compute=compute)
    assert out["i"].tolist() == [0, -1, 3]
    assert out["b"].tolist() == [False, True, True]
    assert out["back"].tolist() == [0, 1, 1]
    exact = compute == torch.float64
    assert out["narrow"].dtype == (torch.float64 if exact else torch.float16)
    assert (out["narrow"][2] == 3) == (not exact)


def test_collectives_that_change_the_global_tensor():
    with dt.Program("p", dt.Mesh(dp=2, tp=3)) as p:
        x = p.input("x", (12, 2), dt.f32, (dt.Shard(0), dt.Shard(0)))
        y = p.input("y", (7, 2), dt.f32, (R, dt.Shard(0)))
        p.output("inner", dt.shift(x, 1, axis="tp"))
        p.output("outer", dt.shift(x, -3, axis="dp"))
        p.output("first", dt.broadcast(y, 0))
        p.output("last", dt.broadcast(y, 2))
        p.output("same", dt.shard(dt.all_to_all(y, 1, 0), 0, axis="dp"))
    x, y = torch.randn(12, 2), torch.randn(7, 2)
    out = p.reference({"x": x, "y": y})
    assert torch.equal(out["inner"], torch.cat([h.roll(2, 0) for h in x.chunk(2)]))
    assert torch.equal(out["outer"], x.roll(6, 0))
    assert torch.equal(out["first"], y[:3])
    assert torch.equal(out["last"], y[6:])
    assert torch.equal(out["same"], y)


def test_a_shift_is_torch_roll_by_shards():
    with dt.Program("p", dt.Mesh(tp=4)) as p:
        p.output("y", dt.shift(p.input("x", (8, 0), dt.bf16, dt.Shard(0)), 1))
        p.output("z", dt.shift(p.input("w", (3, 8), dt.bf16, dt.Shard(1)), 1))
    x, w = torch.empty(8, 0).bfloat16(), torch.randn(3, 8).bfloat16()
    out = p.reference({"x": x, "w": w})
    assert out["y"].shape == (8, 0)
    assert torch.equal(out["z"], w.roll(2, 1))


def test_matmul_with_leading_dimensions():
    with dt.Program("p", dt.Mesh(tp=2)) as p:
        x = p.input("x", (3, 2, 5, 4), dt.f32, dt.Shard(1))
        y = p.input("y", (3, 2, 6, 4), dt.f32, dt.Shard(1))
        w = p.input("w", (4, 7), dt.f32, R)
        scores = dt.matmul(x, y, transpose_b=True)
        assert (scores.shape, scores.placements) == ((3, 2, 5, 6), (dt.Shard(1),))
        p.output("scores", scores)
        p.output("projected", x @ w)
    x, y, w = torch.randn(3, 2, 5, 4), torch.randn(3, 2, 6, 4), torch.randn(4, 7)
    out = p.reference({"x": x, "y": y, "w": w})
    torch.testing.assert_close(out["scores"], torch.einsum("abmk,abnk->abmn", x, y))
    torch.testing.assert_close(out["projected"], x @ w)


def test_empty_tensors():
    with dt.Program("p", dt.Mesh(tp=2)) as p:
        x = p.input("x", (0, 4), dt.f32, dt.Shard(0))
        w = p.input("w", (4, 2), dt.f32, R)
        p.output("y", dt.relu(x @ w))
    assert p.reference({"x": torch.ones(0, 4), "w": torch.ones(4, 2)})["y"].shape == (0, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": None}, 'program "mlp" takes inputs x, up, down; missing: x, unknown: none'),
        ({"z": torch.ones(1)}, "missing: none, unknown: z"),
        ({"x": torch.ones(5, 5)}, 'input "x" should have shape (5, 4) and dtype torch.float32'),
        ({"up": torch.ones(4, 8).half()}, "got (4, 8) and torch.float16"),
    ],
)
def test_inputs_must_fit(change: dict[str, torch.Tensor | None], message: str):
    given = tensors(torch.float32) | change
    with pytest.raises(InputError) as error:
        mlp(dt.f32).reference({n: t for n, t in given.items() if t is not None})
    assert message in error.value.message
