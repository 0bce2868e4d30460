"""`split-sums`: the same results by parts, and where it pays."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

import ditron as dt
from ditron.analysis.symbols import task_program
from ditron.errors import OptionError
from ditron.ir import task
from ditron.passes.split_sums import SplitSumsPass
from ditron.runtime import reference

R = dt.Replicate()


def decoding(
    q: tuple[int, ...], kv: tuple[int, ...], dtype: dt.DType = dt.f32, mesh: dt.Mesh | None = None
) -> dt.Program:
    placed = dt.Shard(2) if mesh is not None else R
    with dt.Program("p", mesh or dt.Mesh(tp=1)) as p:
        at = p.scalar("at", dt.i32, max=kv[1] - q[1])
        values = [p.input(n, s, dtype, placed) for n, s in (("q", q), ("k", kv), ("v", kv))]
        p.output("y", dt.attention(*values, at=at, name="attend"))
    return p


def split(program: dt.Program, one: SplitSumsPass) -> ModuleOp:
    module = program.ir.clone()
    one.apply(Context(), module)
    module.verify()
    return module


def ranges(module: ModuleOp) -> int:
    """How many the parts of the one attention are; 1 where it is whole."""
    found = [op for op in module.walk() if isinstance(op, task.AttentionPartsOp)]
    return task.spec_of(found[0].result).shape[1] if found else 1


@settings(max_examples=30, deadline=None)
@given(st.data(), st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), st.integers(1, 40))
def test_parts_join_to_torchs_attention(
    data: st.DataObject, batch: int, groups: int, together: int, places: int
):
    at = data.draw(st.integers(0, places - 1))
    splits = data.draw(st.integers(1, places + 2))
    narrow = data.draw(st.booleans())
    program = decoding(
        (batch, 1, groups * together, 8), (batch, places, groups, 8), dt.bf16 if narrow else dt.f32
    )
    module = split(program, SplitSumsPass(splits=splits))
    assert ranges(module) == -(-places // -(-places // splits))
    made = torch.bfloat16 if narrow else torch.float32
    q, k, v = (
        torch.randn(batch, t, h, 8).to(made)
        for t, h in ((1, groups * together), (places, groups), (places, groups))
    )
    k[:, at + 1 :] = v[:, at + 1 :] = torch.nan
    given_ = {"q": q, "k": k, "v": v, "at": at}
    mine = reference.reference(task_program(module), given_)["y"]
    q, k, v = (x.float().transpose(1, 2) for x in (q, k[:, : at + 1], v[:, : at + 1]))
    theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    torch.testing.assert_close(mine, theirs.transpose(1, 2).to(made))


@pytest.mark.parametrize(
    ("machine", "q", "kv", "parts"),
    [
        ("h200", (1, 1, 32, 128), (1, 512, 8, 128), 16),  # 128 tasks on 132 workers
        ("h200", (8, 1, 32, 128), (8, 512, 8, 128), 2),
        ("h200", (64, 1, 32, 128), (64, 512, 8, 128), 1),  # 512 tasks already
        ("h200", (1, 1, 32, 128), (1, 64, 8, 128), 1),  # too little to read
        ("h200", (1, 16, 32, 128), (1, 512, 8, 128), 1),  # a prompt
        ("mi300x8", (1, 1, 32, 128), (1, 512, 8, 128), 16),
        ("cpu", (1, 1, 32, 128), (1, 4096, 8, 128), 1),
    ],
)
def test_a_split_fills_the_workers(
    machine: str, q: tuple[int, ...], kv: tuple[int, ...], parts: int
):
    assert ranges(split(decoding(q, kv, dt.bf16), SplitSumsPass(machine))) == parts


def test_a_rank_has_fewer_heads_and_so_more_parts():
    program = decoding((1, 1, 32, 128), (1, 4096, 8, 128), dt.bf16, dt.Mesh(tp=4))
    assert ranges(split(program, SplitSumsPass("h200"))) == 64


def test_an_op_may_say_itself():
    program = decoding((1, 1, 4, 8), (1, 10, 2, 8))
    assert ranges(split(program, SplitSumsPass(per_op=("att*:splits=4",)))) == 4
    options = dt.Options(per_op={"attend": dt.OpOptions(splits=3)})
    with dt.compile(program, options=options) as exe:
        assert "places 4" in exe.stages["02-split-sums"]
        twice = [exe.run({n: torch.ones(1, t, h, 8) for n, t, h in QKV} | {"at": 7}) for _ in "ab"]
    assert torch.equal(twice[0]["y"], twice[1]["y"])
    with pytest.raises(OptionError, match="splits is at least 1, got 0"):
        dt.Options(splits=0)


def choosing(shape: tuple[int, ...], dtype: dt.DType = dt.f32) -> dt.Program:
    labels = (*(1 for _ in shape[1:]), shape[-1])
    with dt.Program("p", dt.Mesh(tp=1)) as p:
        x, names = p.input("x", shape, dtype, R), p.input("names", labels, dt.i64, R)
        p.output("most", dt.amax(x, name="most"))
        p.output("which", dt.argmax(x, names, name="which"))
    return p


def parts_of(module: ModuleOp) -> list[int]:
    """How many parts the greatest is found in; nothing where it is whole."""
    found = [op for op in module.walk() if isinstance(op, task.AmaxOp) and op.dim_index == 2]
    return [task.spec_of(op.operand).shape[1] for op in found]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 3), st.integers(1, 6), st.integers(1, 4), st.booleans(), st.integers(0, 99))
def test_the_greatest_of_parts_is_torchs(
    rows: int, sixteens: int, splits: int, with_nan: bool, seed: int
):
    length = 16 * sixteens
    program = choosing((rows, length))
    module = split(program, SplitSumsPass(splits=splits))
    most = max(n for n in range(1, sixteens + 1) if length % n == 0 and n <= splits)
    assert parts_of(module) == [most] * (most > 1)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(-3, 3, (rows, length), generator=generator).float()  # many are equal
    if with_nan:
        x[0, length // 2] = torch.nan
    names = torch.randperm(length, generator=generator)[None]
    made = reference.reference(task_program(module), {"x": x, "names": names})
    torch.testing.assert_close(made["most"], x.amax(1, keepdim=True), equal_nan=True)
    assert torch.equal(made["which"], names[0][x.argmax(1, keepdim=True)])


@pytest.mark.parametrize(
    ("machine", "shape", "parts"),
    [
        ("h200", (1, 151936), [128]),  # one row of logits
        ("h200", (256, 151936), []),  # rows enough
        ("h200", (1, 2048), []),  # too little to read
        ("cpu", (1, 151936), []),
    ],
)
def test_long_rows_are_split_where_it_pays(machine: str, shape: tuple[int, ...], parts: list[int]):
    assert parts_of(split(choosing(shape, dt.bf16), SplitSumsPass(machine))) == parts


QKV = (("q", 1, 4), ("k", 10, 2), ("v", 10, 2))
