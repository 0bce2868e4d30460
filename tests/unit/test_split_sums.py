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


QKV = (("q", 1, 4), ("k", 10, 2), ("v", 10, 2))
