"""Rules of views against real slices on every rank; reshapes against torch's own."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ditron.errors import PlacementError, ShapeError
from ditron.plan.placement import Mesh, Partial, Placements, Replicate, Scope, Shard
from ditron.plan.placement_rules import apply_rule, find_mends
from ditron.plan.placement_table import concat_rule, slice_rule, transpose_rule, update_rule
from ditron.plan.reshape import matching_dims, reshape
from ditron.plan.spec import TensorSpec
from tests.unit.mesh_run import Layout, box, local, meshes, placements, run, whole

S0, S1, R, P = Shard(0), Shard(1), Replicate(), Partial()


def rand(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, dtype=torch.float64)


@settings(deadline=None)
@given(st.data(), meshes(), st.integers(0, 8), st.integers(0, 8))
def test_slice_and_transpose(data: st.DataObject, mesh: Mesh, m: int, n: int):
    start = data.draw(st.integers(0, m))
    size = data.draw(st.integers(0, m - start))
    x, lying = rand(m, n), data.draw(placements(2, mesh))
    rule = slice_rule(2, 0)
    while ways := find_mends(rule, [lying]):
        lying = ways[0][0].move.of(lying)
    result = Layout((size, n), apply_rule(rule, [lying], Scope()))
    got = run(
        partial(torch.narrow, dim=0, start=start, length=size),
        [(x, lying)],
        rule.becomes,
        result,
        mesh,
    )
    torch.testing.assert_close(got, x.narrow(0, start, size))

    lying = data.draw(placements(2, mesh))
    turn = transpose_rule(2, 0, 1)
    result = Layout((n, m), apply_rule(turn, [lying], Scope()))
    torch.testing.assert_close(run(torch.t, [(x, lying)], turn.becomes, result, mesh), x.t())


@settings(deadline=None)
@given(st.data(), meshes(), st.integers(1, 3))
def test_concat(data: st.DataObject, mesh: Mesh, count: int):
    n = data.draw(st.integers(0, 6))
    values = [rand(data.draw(st.integers(0, 5)), n) for _ in range(count)]
    lying = [data.draw(placements(2, mesh)) for _ in values]
    rule = concat_rule(count, 2, 0)
    while ways := find_mends(rule, lying):
        for mend in ways[0]:
            lying[mend.operand] = mend.move.of(lying[mend.operand])
    expected = torch.cat(values)
    names = Scope(None, tuple("abc"[:count]))
    result = Layout(tuple(expected.shape), apply_rule(rule, lying, names))
    operands = list(zip(values, lying, strict=True))
    got = run(lambda *v: torch.cat(v), operands, rule.becomes, result, mesh)
    torch.testing.assert_close(got, expected)


@settings(deadline=None)
@given(st.data(), meshes(), st.integers(0, 9), st.integers(0, 5))
def test_update(data: st.DataObject, mesh: Mesh, m: int, n: int):
    """Each rank writes those elements of the value that lie in its part of the state."""
    start = data.draw(st.integers(0, m))
    size = data.draw(st.integers(0, m - start))
    state, value = rand(m, n), rand(size, n)
    lying = [data.draw(placements(2, mesh, sums=False)), data.draw(placements(2, mesh))]
    rule, kept = update_rule(2, 0), lying[0]
    while ways := find_mends(rule, lying):
        assert all(mend.operand == 1 for way in ways for mend in way)
        for mend in ways[0]:
            lying[1] = mend.move.of(lying[1])
    assert apply_rule(rule, lying, Scope(None, ("state", "value"))) == kept
    parts: list[torch.Tensor] = []
    for rank in range(mesh.ranks):
        (top, bottom), (left, right) = box(Layout((m, n), kept), mesh, rank)
        (_, _), (first, _) = box(Layout((size, n), lying[1]), mesh, rank)
        part, mine = local(state, kept, mesh, rank).clone(), local(value, lying[1], mesh, rank)
        begin, end = max(top, start), min(bottom, start + size)
        if begin < end:
            columns = mine[:, left - first : right - first]
            part[begin - top : end - top] = columns[begin - start : end - start]
        parts.append(part)
    expected = state.clone()
    expected[start : start + size] = value
    torch.testing.assert_close(whole(parts, Layout((m, n), kept), mesh), expected)


@settings(deadline=None)
@given(st.data(), meshes(), st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_reshape_keeps_every_part(data: st.DataObject, mesh: Mesh, shape: list[int]):
    """What is allowed needs nothing from other ranks; what moves nothing is allowed."""
    total = math.prod(shape)
    after = data.draw(st.sampled_from(reshapes_of(total)))
    lying = data.draw(placements(len(shape), mesh))
    x = torch.arange(float(total), dtype=torch.float64).reshape(shape) + 1
    spec = TensorSpec(tuple(shape), "f32", lying)
    try:
        result = reshape(spec, after, Scope(mesh))
    except PlacementError:
        cut = [p for p in lying if isinstance(p, Shard)]
        assert cut
        return
    parts = [local(x, lying, mesh, rank).flatten() for rank in range(mesh.ranks)]
    for rank, part in enumerate(parts):
        there = local(x.reshape(after), result.placements, mesh, rank)
        assert torch.equal(there.flatten(), part)


def reshapes_of(total: int) -> list[tuple[int, ...]]:
    """Shapes with a number of elements."""
    if total == 0:
        return [(0,), (0, 3), (2, 0), (0, 2, 0), (3, 0, 2)]
    pairs = [(a, total // a) for a in range(1, total + 1) if total % a == 0]
    triples = [(a, 1, b) for a, b in pairs] + [(a, 2, b // 2) for a, b in pairs if b % 2 == 0]
    return [(total,), *pairs, *triples]


CASES: list[tuple[tuple[int, ...], Placements, tuple[int, ...], Placements]] = [
    ((8, 6), (S0,), (48,), (S0,)),
    ((48,), (S0,), (8, 6), (S0,)),
    ((6, 8), (S1,), (6, 4, 2), (S1,)),
    ((6, 4, 2), (S1,), (6, 8), (S1,)),
    ((1, 8), (S1,), (8,), (S0,)),
    ((8,), (S0,), (1, 8, 1), (S1,)),
    ((0, 6), (S1,), (0, 6), (S1,)),
    ((5, 6), (S0,), (5, 2, 3), (S0,)),
    ((8, 6), (P,), (48,), (P,)),
    ((8, 6), (R,), (4, 12), (R,)),
]


@pytest.mark.parametrize(("shape", "before", "target", "after"), CASES)
def test_reshapes(
    shape: tuple[int, ...], before: Placements, target: tuple[int, ...], after: Placements
):
    result = reshape(TensorSpec(shape, "f32", before), target, Scope(Mesh(tp=4)))
    assert (result.shape, result.placements) == (target, after)


@pytest.mark.parametrize(
    ("shape", "before", "target", "why"),
    [
        ((8, 6), (S1,), (48,), "dim 1 is cut, and is not the outermost of those that it is merged"),
        ((6, 8), (S0,), (48,), "the parts of dim 0 would not be those of dim 0"),
        ((6,), (S0,), (2, 3), "use all_gather(x, dim=0) first"),
        ((0, 6), (S1,), (6, 0), "would move data, as it is [shard(1)]"),
    ],
)
def test_reshapes_that_move(
    shape: tuple[int, ...], before: Placements, target: tuple[int, ...], why: str
):
    with pytest.raises(PlacementError) as caught:
        reshape(TensorSpec(shape, "f32", before), target, Scope(Mesh(tp=4)))
    assert why in caught.value.message


def test_reshapes_of_nested_parts():
    mesh = Mesh(dp=2, tp=2)
    result = reshape(TensorSpec((8, 3), "f32", (S0, S0)), (24,), Scope(mesh))
    assert result.placements == (S0, S0)
    with pytest.raises(PlacementError) as caught:
        reshape(TensorSpec((8, 4), "f32", (S0, S1)), (32,), Scope(mesh))
    assert 'use all_gather(x, dim=1, axis="tp") first' in caught.value.message
    with pytest.raises(ShapeError, match="32 elements do not make 5"):
        reshape(TensorSpec((8, 4), "f32", (S0, S1)), (5,), Scope(mesh))


def test_matching_dims():
    assert list(matching_dims((8, 6), (2, 4, 6))) == [([0], [0, 1]), ([1], [2])]
    assert list(matching_dims((1, 4), (4, 1))) == [([0, 1], [0, 1])]
    assert list(matching_dims((2, 3, 4), (6, 4))) == [([0, 1], [0]), ([2], [1])]
    assert list(matching_dims((0, 4), (0, 2, 2))) == [([0], [0]), ([1], [1, 2])]
    assert list(matching_dims((0, 4), (0, 7))) == [([0, 1], [0, 1])]
