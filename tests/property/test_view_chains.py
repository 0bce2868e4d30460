"""Chains of views between products, pointwise ops and collectives: right, whatever shares bytes."""

from __future__ import annotations

import math
import re
from itertools import count

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ditron as dt
from ditron.analysis.expand import expand
from ditron.analysis.report import prove
from ditron.analysis.symbols import kernels, task_program
from ditron.errors import PlacementError, ProofError
from ditron.plan.storage import from_bytes, to_bytes
from ditron.testing import interleavings
from ditron.tools.inputs import make_inputs
from ditron.tools.loading import parse_dump
from tests.property.mutant_table import judge

R, S0 = dt.Replicate(), dt.Shard(0)
RANKS = st.sampled_from([1, 2, 3, 4, 5, 7, 8])
NUMBERS = count()
TILES = st.sampled_from([None, (1, 2), (2, 3), (2, 4), (8, 8)])


def _reshaped(x: dt.Value, data: st.DataObject) -> dt.Value:
    sizes = list(x.shape)
    at = data.draw(st.integers(0, len(sizes) - 1))
    if len(sizes) > 1 and data.draw(st.booleans()):
        at = min(at, len(sizes) - 2)
        sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
    elif len(sizes) < 4:
        into = [d for d in range(1, sizes[at] + 1) if sizes[at] % d == 0]
        part = data.draw(st.sampled_from(into))
        sizes[at : at + 1] = [sizes[at] // part, part]
    return dt.reshape(x, sizes)


def _sliced(x: dt.Value, data: st.DataObject) -> dt.Value:
    dim = data.draw(st.integers(0, len(x.shape) - 1))
    start = data.draw(st.integers(0, x.shape[dim] - 1))
    return dt.slice(x, dim, start, data.draw(st.integers(1, x.shape[dim] - start)))


def _split(x: dt.Value, data: st.DataObject) -> dt.Value:
    dim = data.draw(st.integers(0, len(x.shape) - 1))
    if x.shape[dim] % 2:
        return x
    a, b = dt.split(x, x.shape[dim] // 2, dim=dim)
    return dt.silu(a) * b if data.draw(st.booleans()) else b + a


def _turned(x: dt.Value, data: st.DataObject) -> dt.Value:
    dims = st.integers(0, len(x.shape) - 1)
    return dt.transpose(x, data.draw(dims), data.draw(dims))


def _joined(x: dt.Value, data: st.DataObject) -> dt.Value:
    dim = data.draw(st.integers(0, len(x.shape) - 1))
    return dt.concat([dt.relu(x), dt.exp(x)], dim=dim)


def _multiplied(x: dt.Value, data: st.DataObject) -> dt.Value:
    if len(x.shape) != 2:
        return dt.relu(x)
    width, name = data.draw(st.integers(1, 8)), f"w{next(NUMBERS)}"
    return dt.matmul(x, x.program.input(name, (x.shape[1], width), dt.f32, R))


def _whole(x: dt.Value, _: st.DataObject) -> dt.Value:
    return dt.redistribute(x, R)


STEPS = st.sampled_from(
    [_reshaped, _reshaped, _sliced, _split, _turned, _joined, _multiplied, _whole]
)


def chain(data: st.DataObject, ranks: int) -> dt.Program:
    """A few steps, each on the last one's result; what placements forbid is left out."""
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=2, max_size=3)))
    cut = data.draw(st.sampled_from([R, S0, dt.Shard(len(shape) - 1)]))
    with dt.Program("chain", dt.Mesh(tp=ranks)) as p:
        x = p.input("x", shape, dt.f32, cut)
        kept = x
        for step in data.draw(st.lists(STEPS, min_size=2, max_size=7)):
            try:
                x = step(x, data)
            except PlacementError:
                continue
            if math.prod(x.shape) > 600:
                break
            kept = x if data.draw(st.integers(0, 3)) == 0 else kept
        p.output("y", dt.relu(x))
        if kept is not x:
            p.output("kept", kept)
    return p


@settings(max_examples=25, deadline=None)
@given(RANKS, TILES, st.data())
def test_chains_are_what_torch_makes_of_them(
    ranks: int, tile: tuple[int, int] | None, data: st.DataObject
):
    program = chain(data, ranks)
    inputs = [make_inputs(task_program(program.ir), seed=launch) for launch in range(2)]
    wanted = [program.reference(one) for one in inputs]
    with dt.compile(program, options=dt.Options(tile=tile)) as exe:
        assert to_bytes(from_bytes(to_bytes(exe.plan))) == to_bytes(exe.plan)
        for run in interleavings(exe, lambda launch: inputs[launch - 1], seeds=[0], launches=2):
            assert run.finished, run.hang
            for mine, theirs in zip(run.outputs, wanted, strict=True):
                for name, tensor in theirs.items():
                    torch.testing.assert_close(mine[name], tensor, rtol=1e-4, atol=1e-5)


def heads(ranks: int = 2) -> dt.Program:
    """A product's columns as heads of three kinds, and back."""
    with dt.Program("heads", dt.Mesh(tp=ranks)) as p:
        x = p.input("x", (4, 4), dt.f32, R)
        w = p.input("w", (4, ranks * 16), dt.f32, dt.Shard(1))
        parts = dt.reshape(dt.matmul(x, w), (4, ranks, 4, 4))
        a, b = dt.split(parts, (1, 3), dim=2)
        turned = dt.transpose(dt.reshape(a, (4, ranks * 4)), 0, 1)
        p.output("turned", dt.relu(turned))
        p.output("rest", dt.softmax(dt.reshape(b, (4, 3 * ranks, 4)), dim=2))
    return p


def test_nothing_is_copied():
    with dt.compile(heads()) as exe:
        names = [op.name for op in exe.plan.ops]
        assert names == ["matmul", "relu", "softmax"]


BROKEN = {
    "other columns": (r"(%matmul\[%\w+, )4 \+", r"\g<1>0 +"),
    "not turned": (r"dims\[1, 0\]", "dims[0, 1]"),
    "a row too far": (r"(%matmul\[)(%\w+, 4 \+ )", r"\g<1>1 + \2"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_one_wrong_view_is_refused(what: str):
    with dt.compile(heads(), options=dt.Options(tile=(4, 4))) as exe:
        text = exe.stages["10-elide-waits"]
    right = parse_dump(text, "right.mlir")
    prove(expand(right), kernels(right), task_program(right))
    broken, many = re.subn(*BROKEN[what], text)
    assert many, text
    wrong = parse_dump(broken, "wrong.mlir")
    with pytest.raises(ProofError):
        prove(expand(wrong), kernels(wrong), task_program(wrong))


def test_mutants_of_views_are_refused():
    with dt.compile(heads(), options=dt.Options(tile=(2, 4))) as exe:
        tally = judge(heads(), exe, every=3, offset=0, seeds=range(2))
    assert not tally.wrong, str(tally)
    assert tally.refused.total() > tally.harmless.total()
