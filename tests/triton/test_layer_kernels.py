"""What layers are made of: kernels interpreted against torch, and compiled for both vendors."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pytest
import torch
from triton_support import cross, interpreted, run

import ditron as dt
from ditron.backends.triton import compile as compiling
from ditron.backends.triton.interpreted import Worker
from ditron.plan.tables import Role
from ditron.runtime.inputs import torch_dtype

R, S0, S1, S2 = dt.Replicate(), dt.Shard(0), dt.Shard(1), dt.Shard(2)
Body = Callable[[dt.Program, dt.DType], None]


def embedding(p: dt.Program, dtype: dt.DType) -> None:
    ids, table = p.input("ids", (2, 5), dt.i64, R), p.input("table", (13, 12), dtype, S0)
    p.output("y", dt.all_reduce(dt.embedding(ids, table)))


def attention(p: dt.Program, dtype: dt.DType) -> None:
    q = p.input("q", (2, 3, 12, 8), dtype, S2)
    k, v = (p.input(n, (2, 7, 4, 8), dtype, S2) for n in "kv")
    p.output("y", dt.attention(q, k, v))
    p.output("z", dt.attention(q, k, v, causal=False, scale=0.3))


def decoding(p: dt.Program, dtype: dt.DType) -> None:
    """One head each, a place at run time, a cache longer than a block."""
    at = p.scalar("at", dt.i32, max=140)
    q = p.input("q", (1, 1, 2, 16), dtype, R)
    k, v = (p.state(n, (1, 141, 2, 16), dtype, R) for n in "kv")
    new = p.input("new", (1, 1, 2, 16), dtype, R)
    keys, values = dt.update(k, new, at=at, dim=1), dt.update(v, new, at=at, dim=1)
    p.output("y", dt.attention(q, keys, values, at=at))


def split_decoding(p: dt.Program, dtype: dt.DType) -> None:
    """Ranges of 36 of 141 places: the first is seen, some of the next, none of the others."""
    at = p.scalar("at", dt.i32, max=140)
    q = p.input("q", (2, 1, 6, 16), dtype, R)
    k, v = (p.input(n, (2, 141, 2, 16), dtype, R) for n in "kv")
    p.output("y", dt.attention(q, k, v, at=at))


def places(p: dt.Program, dtype: dt.DType) -> None:
    at = p.scalar("at", dt.i32, max=4)
    x = p.input("x", (7, 2, 6), dtype, S1)
    p.output("y", dt.slice(x, 0, at, 3))
    state = p.state("s", (9, 10), dtype, S0)
    p.output("z", dt.update(state, p.input("v", (3, 10), dtype, R), at=at, dim=0))


def shapes(p: dt.Program, dtype: dt.DType) -> None:
    x = p.input("x", (6, 20, 3), dtype, S0)
    p.output("y", dt.reshape(x, (6, 4, 15)))
    p.output("z", dt.transpose(x, 1, 2))
    first, second = dt.split(x, [8, 12], dim=1)
    p.output("w", dt.concat([second, first], dim=1))


def best(p: dt.Program, dtype: dt.DType) -> None:
    x = p.input("x", (3, 2, 37), dtype, S1)
    labels = p.input("labels", (1, 2, 37), dt.i64, S1)
    p.output("y", dt.argmax(x, labels))
    p.output("z", dt.amax(x))
    p.output("w", dt.argmax(x, dim=0))


def stacks(p: dt.Program, dtype: dt.DType) -> None:
    a, b = p.input("a", (3, 5, 18), dtype, S0), p.input("b", (3, 18, 20), dtype, S0)
    p.output("y", dt.matmul(a, b))
    shared = p.input("c", (20, 18), dtype, R)
    p.output("z", dt.matmul(a, shared, transpose_b=True))


def rows(p: dt.Program, dtype: dt.DType) -> None:
    x, gain = p.input("x", (2, 5, 3, 24), dtype, S1), p.input("gain", (24,), dtype, R)
    p.output("y", dt.rms_norm(x, gain))
    p.output("z", dt.softmax(x, dim=2))


def wide(p: dt.Program, dtype: dt.DType) -> None:
    """Sums longer than a block, in loops."""
    x, labels = p.input("x", (2, 20000), dtype, R), p.input("labels", (1, 20000), dt.i64, R)
    p.output("y", dt.softmax(x))
    p.output("w", dt.argmax(x, labels))
    p.output("z", dt.argmax(x))


def vectors(p: dt.Program, dtype: dt.DType) -> None:
    """A row times matrices; what is summed is longer than a block."""
    x, w = p.input("x", (1, 1300), dtype, R), p.input("w", (50, 1300), dtype, S0)
    y = dt.matmul(x, w, transpose_b=True)
    p.output("y", dt.silu(y))
    p.output("z", dt.all_reduce(dt.matmul(y, p.input("u", (50, 20), dtype, S0))))


CASES: list[tuple[Body, int]] = [
    (embedding, 3),
    (attention, 2),
    (decoding, 1),
    (split_decoding, 1),
    (places, 2),
    (shapes, 4),
    (best, 2),
    (stacks, 2),
    (rows, 3),
    (wide, 1),
    (vectors, 2),
]
AT = {"places": 4, "decoding": 133, "split_decoding": 40}
IDS = [f"{body.__name__}-{ranks}" for body, ranks in CASES]


def options_of(body: Body) -> dt.Options:
    return dt.Options(workers=2, tile=(16, 32), splits=4 if body is split_decoding else 1)


def program_of(body: Body, ranks: int, dtype: dt.DType) -> dt.Program:
    with dt.Program(body.__name__, dt.Mesh(tp=ranks)) as p:
        body(p, dtype)
    return p


def inputs_of(exe: dt.Executable) -> dict[str, torch.Tensor]:
    """Normals; integers from -1 to 13; the place near its end."""
    specs = {**exe.tensors(Role.INPUT), **exe.tensors(Role.STATE)}
    made: dict[str, torch.Tensor] = {}
    for name, spec in specs.items():
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        dtype = torch_dtype(spec.dtype)
        if dtype.is_floating_point:
            made[name] = torch.randn(spec.shape, generator=generator).to(dtype)
        else:
            made[name] = torch.randint(-1, 14, spec.shape, generator=generator).to(dtype)
    return made


@pytest.mark.parametrize("dtype", [dt.f32, dt.bf16], ids=["f32", "bf16"])
@pytest.mark.parametrize(("body", "ranks"), CASES, ids=IDS)
def test_layers_agree(worker: Worker, body: Body, ranks: int, dtype: dt.DType) -> None:
    program = program_of(body, ranks, dtype)
    exe = dt.compile(program, target="sm_90", options=options_of(body))
    interpreted(exe, worker)
    given = inputs_of(exe)
    if "at" in given:
        given["at"] = torch.tensor([AT[body.__name__]], dtype=torch.int32)
    wanted = program.reference(given)
    states = exe.tensors(Role.STATE)
    exe.bind({n: t for n, t in given.items() if n in states})
    outputs = run(exe, {n: t for n, t in given.items() if n not in states})
    rtol, atol = (0.02, 0.02) if dtype is dt.bf16 else (1e-4, 1e-5)
    for name, found in {**outputs, **{name: exe.state(name) for name in states}}.items():
        torch.testing.assert_close(found, wanted[name], rtol=rtol, atol=atol)


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
@pytest.mark.parametrize(("body", "ranks"), CASES, ids=IDS)
def test_layers_compile(body: Body, ranks: int, target: str) -> None:
    for dtype in (dt.f32, dt.bf16):
        program = program_of(body, ranks, dtype)
        exe = dt.compile(program, target=target, options=options_of(body))
        assert compiling.compile_program(cross(exe).program)
