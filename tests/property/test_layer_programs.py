"""Layers, views and states on 1 to 8 ranks, in any order, launch after launch."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ditron as dt
from ditron.analysis.expand import expand
from ditron.analysis.report import prove
from ditron.analysis.symbols import kernels, task_program
from ditron.errors import DeliveryError, InputError, PlanError
from ditron.plan.storage import from_bytes, to_bytes
from ditron.plan.tables import Arguments
from ditron.testing import interleavings
from ditron.tools.inputs import make_inputs
from ditron.tools.loading import parse_dump

R = dt.Replicate()
LAUNCHES = 3
RANKS = st.sampled_from([1, 2, 3, 4, 5, 7, 8])
SIZES = st.integers(1, 9)
DTYPES = st.sampled_from([dt.f32, dt.bf16])
Body = Callable[[dt.Program], None]


def compiled(body: Body, ranks: int, splits: int | None = None) -> dt.Executable:
    with dt.Program("p", dt.Mesh(tp=ranks)) as p:
        body(p)
    return dt.compile(p, options=dt.Options(splits=splits))


def agree(
    body: Body, ranks: int, tile: tuple[int, int] | None = None, splits: int | None = None
) -> None:
    """Launch after launch with new inputs, states kept: what the reference makes of the same."""
    with dt.Program("p", dt.Mesh(tp=ranks)) as p:
        body(p)
    program = task_program(p.ir)
    given_ = [make_inputs(program, seed=launch) for launch in range(LAUNCHES)]
    held: dict[str, torch.Tensor] = {}
    wanted: list[dict[str, torch.Tensor]] = []
    states = [op.tensor_name.data for op in program.states]
    for inputs in given_:
        wanted.append(p.reference({**inputs, **held}))
        held = {name: wanted[-1][name] for name in states}
    with dt.compile(p, options=dt.Options(tile=tile, splits=splits)) as exe:
        for run in interleavings(
            exe, lambda launch: given_[launch - 1], seeds=range(2), launches=LAUNCHES
        ):
            assert run.finished, run.hang
            for mine, theirs in zip(run.outputs, wanted, strict=True):
                for name, tensor in theirs.items():
                    close(mine[name], tensor)


def close(mine: torch.Tensor, theirs: torch.Tensor) -> None:
    """Sums are made in another order: a few units in the last place of values below 10."""
    if mine.dtype == torch.bfloat16:
        torch.testing.assert_close(mine, theirs, rtol=2**-7, atol=2**-7)
    else:
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


@settings(max_examples=12, deadline=None)
@given(RANKS, SIZES, SIZES, DTYPES, st.sampled_from([None, (1, 2), (2, 3)]))
def test_rows(ranks: int, rows: int, width: int, dtype: dt.DType, tile: tuple[int, int] | None):
    def body(p: dt.Program) -> None:
        x = p.input("x", (rows, width), dtype, dt.Shard(0))
        gain = p.input("gain", (width,), dtype, R)
        p.output("norm", dt.rms_norm(x, gain) + x)
        p.output("plain", dt.rms_norm(dt.all_gather(x, dim=0)))
        p.output("softmax", dt.softmax(x, dim=1))
        p.output("largest", dt.amax(x))
        p.output("where", dt.argmax(x))

    agree(body, ranks, tile)


@settings(max_examples=8, deadline=None)
@given(RANKS, SIZES, SIZES, SIZES, st.sampled_from([dt.i32, dt.i64]))
def test_embeddings(ranks: int, tokens: int, rows: int, width: int, dtype: dt.DType):
    def body(p: dt.Program) -> None:
        ids = p.input("ids", (tokens, 2), dtype, R)
        by_row = p.weight("by_row", (rows, width), dt.f32, dt.Shard(0))
        by_column = p.weight("by_column", (rows, width), dt.f32, dt.Shard(1))
        p.output("y", dt.all_reduce(dt.embedding(ids, by_row)))
        p.output("z", dt.embedding(ids, by_column))

    agree(body, ranks)


@settings(max_examples=10, deadline=None)
@given(RANKS, SIZES, st.integers(2, 4), st.integers(1, 3), DTYPES, st.data())
def test_views(ranks: int, rows: int, heads: int, width: int, dtype: dt.DType, data: st.DataObject):
    start = data.draw(st.integers(0, 2 * width - 1))
    size = data.draw(st.integers(1, 2 * width - start))

    def body(p: dt.Program) -> None:
        x = p.input("x", (rows, 2 * width * heads * ranks), dtype, dt.Shard(1))
        split = dt.reshape(x, (rows, heads * ranks, 2 * width))
        cos = p.input("cos", (rows, 1, 2 * width), dt.f32, R)
        sin = p.input("sin", (rows, 1, 2 * width), dt.f32, R)
        turned = dt.rope(split, cos, sin)
        part = dt.slice(turned, 2, start, size)
        p.output("part", dt.concat([part, split], dim=2))
        p.output("back", dt.reshape(turned, x.shape))
        p.output("other", dt.transpose(turned, 0, 1))
        p.output("merged", dt.reshape(dt.all_gather(turned, dim=1), (rows * heads * ranks, -1)))

    agree(body, ranks)


@settings(max_examples=12, deadline=None)
@given(RANKS, st.integers(1, 4), st.integers(0, 5), SIZES, st.sampled_from([0, 1, None]), DTYPES)
@example(2, 1, 1, 1, 0, dt.f32)  # a rank's part is one row, and the update is in another's
def test_states(ranks: int, tokens: int, most: int, width: int, cut: int | None, dtype: dt.DType):
    placed = R if cut is None else dt.Shard(cut)

    def body(p: dt.Program) -> None:
        value = p.input("value", (tokens, width), dtype, dt.Shard(1) if cut == 1 else R)
        position = p.scalar("position", dt.i32, max=most)
        kept = p.state("kept", (tokens + most, width), dtype, placed)
        fixed = p.state("fixed", (tokens + most, width), dtype, placed)
        before = kept + kept
        p.output("before", before)
        new = dt.update(kept, value, at=position, dim=0)
        p.output("after", new * new)
        p.output("fixed_twice", dt.relu(dt.update(fixed, value, at=most, dim=0)))
        if cut != 0:
            p.output("read", dt.slice(new, 0, position, tokens))

    agree(body, ranks)


@settings(max_examples=10, deadline=None)
@given(st.sampled_from([1, 2, 3, 4]), st.integers(1, 3), st.integers(1, 2), DTYPES, st.booleans())
def test_attention(ranks: int, tokens: int, together: int, dtype: dt.DType, causal: bool):
    def body(p: dt.Program) -> None:
        groups = 2 * ranks
        q = p.input("q", (2, tokens, groups * together, 4), dtype, dt.Shard(2))
        k = p.input("k", (2, tokens, groups, 4), dtype, dt.Shard(2))
        v = p.input("v", (2, tokens, groups, 4), dtype, dt.Shard(2))
        position = p.scalar("position", dt.i32, max=5)
        keys = dt.update(
            p.state("keys", (2, 8, groups, 4), dtype, dt.Shard(2)), k, at=position, dim=1
        )
        values = dt.update(
            p.state("values", (2, 8, groups, 4), dtype, dt.Shard(2)), v, at=position, dim=1
        )
        p.output("prompt", dt.attention(q, k, v, causal=causal))
        p.output("cached", dt.attention(q, keys, values, at=position, causal=causal))

    agree(body, ranks)


@settings(max_examples=10, deadline=None)
@given(st.sampled_from([1, 2, 3]), st.integers(1, 2), st.integers(1, 3), DTYPES, st.integers(1, 11))
@example(2, 2, 2, dt.bf16, 11)  # a range a place, most of them beyond the last
def test_split_attention(ranks: int, batch: int, together: int, dtype: dt.DType, splits: int):
    def body(p: dt.Program) -> None:
        heads = p.input("q", (batch, 1, 2 * ranks * together, 4), dtype, dt.Shard(2))
        new = p.input("new", (batch, 1, 2 * ranks, 4), dtype, dt.Shard(2))
        kept = p.state("kept", (batch, 11, 2 * ranks, 4), dtype, dt.Shard(2))
        position = p.scalar("position", dt.i32, max=10)
        cache = dt.update(kept, new, at=position, dim=1)
        p.output("y", dt.attention(heads, cache, cache, at=position))

    agree(body, ranks, splits=splits)


@settings(max_examples=12, deadline=None)
@given(RANKS, st.integers(1, 3), SIZES, SIZES, st.integers(1, 9))
@example(4, 12, 5, 9, 9)  # the last rank has none of what is summed
def test_turned_stacks_whose_sum_is_cut(ranks: int, stacks: int, inner: int, rows: int, cols: int):
    def body(p: dt.Program) -> None:
        x = p.input("x", (stacks, inner, rows), dt.f32, dt.Shard(1))
        w = p.weight("w", (inner, cols), dt.f32, dt.Shard(0))
        p.output("y", dt.all_reduce(dt.matmul(dt.transpose(x, 1, 2), w)))

    agree(body, ranks)


@settings(max_examples=8, deadline=None)
@given(RANKS, SIZES, SIZES, SIZES, st.booleans())
def test_stacks_of_matrices(ranks: int, stacks: int, rows: int, inner: int, turned: bool):
    def body(p: dt.Program) -> None:
        a = p.input("a", (stacks, rows, inner), dt.f32, dt.Shard(0))
        b = p.input("b", (stacks, *((5, inner) if turned else (inner, 5))), dt.f32, dt.Shard(0))
        c = p.input("c", (inner, 4), dt.f32, dt.Shard(1))
        p.output("each", dt.matmul(a, b, transpose_b=turned))
        p.output("one", dt.matmul(dt.all_gather(a, dim=0), c))

    agree(body, ranks)


BROKEN: dict[str, tuple[Body, str, str]] = {}


def breaks(pattern: str, instead: str) -> Callable[[Body], Body]:
    """A program, and what in its lowered text to replace."""

    def add(body: Body) -> Body:
        BROKEN[body.__name__] = body, pattern, instead
        return body

    return add


@breaks(r"with %me \* 4", "with 0")
def wrong_first_row(p: dt.Program) -> None:
    ids = p.input("ids", (3,), dt.i32, R)
    p.output("y", dt.all_reduce(dt.embedding(ids, p.weight("t", (8, 4), dt.f32, dt.Shard(0)))))


@breaks(r"with %me \* 4", "with 0")
def wrong_first_place(p: dt.Program) -> None:
    kept, position = p.state("kept", (8, 4), dt.f32, dt.Shard(0)), p.scalar("at", dt.i32, max=6)
    value = p.input("value", (2, 4), dt.f32, R)
    p.output("y", dt.relu(dt.update(kept, value, at=position, dim=0)))


@breaks(r"(device.view %x\[%m \* 6), 3", r"\1, 2")
def wrong_slice(p: dt.Program) -> None:
    p.output("y", dt.slice(p.input("x", (6, 5), dt.f32, R), 1, 3, 2))


@breaks(r"core.sum (%\d+) dim 1", r"core.max \1 dim 1")
def wrong_reduction(p: dt.Program) -> None:
    p.output("y", dt.softmax(p.input("x", (6, 5), dt.f32, R)))


@breaks(r"core.le (%\d+), (%\d+) : (\S+), (\S+) ->", r"core.le \2, \1 : \4, \3 ->")
def wrong_mask(p: dt.Program) -> None:
    q, k, v = (p.input(n, (1, 3, 1, 2), dt.f32, R) for n in "qkv")
    p.output("y", dt.attention(q, k, v))


@breaks(r"with %n \* 3", "with %n * 2")
def wrong_range(p: dt.Program) -> None:
    q, k, v = (p.input(n, (1, size, 1, 2), dt.f32, R) for n, size in (("q", 1), ("k", 8), ("v", 8)))
    p.output("y", dt.attention(q, k, v))


@breaks(r"core.constant -1", "core.constant 1")
def wrong_turn(p: dt.Program) -> None:
    x, cos, sin = (p.input(n, (3, 4), dt.f32, R) for n in ("x", "cos", "sin"))
    p.output("y", dt.rope(x, cos, sin))


@pytest.mark.parametrize("name", BROKEN)
def test_one_wrong_thing_is_refused(name: str) -> None:
    body, pattern, instead = BROKEN[name]
    with compiled(body, 2, splits=3) as exe:
        text = exe.stages["11-elide-waits"]
    broken, count = re.subn(pattern, instead, text)
    assert count >= 1, text
    right = parse_dump(text, "right.mlir")
    prove(expand(right), kernels(right), task_program(right))
    wrong = parse_dump(broken, "wrong.mlir")
    with pytest.raises(DeliveryError):
        prove(expand(wrong), kernels(wrong), task_program(wrong))


def test_a_place_beyond_the_last_is_refused() -> None:
    with compiled(wrong_first_place, 2) as exe:
        with pytest.raises(InputError, match='"at" should be 0 to 6, got 7'):
            exe.run({"value": torch.zeros(2, 4), "at": 7})
        exe.run({"value": torch.ones(2, 4), "at": 6})
        assert exe.state("kept")[5:].tolist() == [[0.0] * 4, [1.0] * 4, [1.0] * 4]
        exe.bind({"kept": torch.full((8, 4), 2.0)})
        exe.run({"value": torch.ones(2, 4), "at": 0})
        assert exe.state("kept")[:, 0].tolist() == [1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("tasks", "values", "why"),
    [
        ([99], [1], "arguments.task is 0 to 3"),
        ([1, 0], [1, 2], "arguments are sorted by task"),
        ([0], [1, 2], "arguments.value has 1 rows, got 2"),
    ],
)
def test_a_plan_file_with_wrong_indices_is_refused(tasks: list[int], values: list[int], why: str):
    with compiled(wrong_first_row, 2) as exe:
        plan = exe.plan
    assert plan.arguments.value.tolist() == [0, 4]
    assert to_bytes(from_bytes(to_bytes(plan))) == to_bytes(plan)
    wrong = Arguments(np.array(tasks, np.int32), np.array(values, np.int64))
    with pytest.raises(PlanError, match=why):
        from_bytes(to_bytes(replace(plan, arguments=wrong)))


def test_a_state_may_have_the_name_of_an_op_before_it() -> None:
    def body(p: dt.Program) -> None:
        value = dt.gelu(p.input("x", (2, 4), dt.f32, R), name="kept")
        position = p.scalar("position", dt.i32, max=2)
        kept = p.state("kept", (4, 4), dt.f32, R)
        p.output("y", dt.relu(dt.update(kept, value, at=position, dim=0)))

    agree(body, 2)
