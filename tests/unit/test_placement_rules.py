"""The rule table against real sums and slices on every rank, and its mends."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ditron.errors import PlacementError
from ditron.plan.moves import moves
from ditron.plan.placement import Mesh, Partial, Placement, Placements, Replicate, Scope, Shard
from ditron.plan.placement_rules import Rule, apply_rule, find_mends
from ditron.plan.placement_table import (
    aligned_rows_rule,
    attention_rule,
    cast_rule,
    embedding_rule,
    matmul_rule,
    pointwise_rule,
    rows_rule,
)
from ditron.runtime import reference
from tests.unit.mesh_run import Layout, box, local, meshes, placements, run, whole

S0, S1, R, P = Shard(0), Shard(1), Replicate(), Partial()
ALL: tuple[Placement, ...] = (S0, S1, R, P)
SIZES = st.integers(0, 9)
AB = Scope(None, ("a", "b"))


def check(
    rule: Rule,
    fn: Callable[..., torch.Tensor],
    operands: Sequence[tuple[torch.Tensor, Placements]],
    mesh: Mesh,
) -> None:
    """Carry an op out on every rank, after whatever moves mend it."""
    lying = [p for _, p in operands]
    while ways := find_mends(rule, lying):
        for mends in ways:
            now = list(lying)
            for mend in mends:
                ndim = len(rule.becomes[mend.operand])
                assert mend.move in moves(now[mend.operand], mend.move.axis, ndim)
                now[mend.operand] = mend.move.of(now[mend.operand])
        for mend in ways[0]:
            lying[mend.operand] = mend.move.of(lying[mend.operand])
    tensors = [x for x, _ in operands]
    expected = fn(*tensors)
    result = Layout(tuple(expected.shape), apply_rule(rule, lying, AB))
    got = run(fn, list(zip(tensors, lying, strict=True)), rule.becomes, result, mesh)
    torch.testing.assert_close(got, expected)


def rand(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, dtype=torch.float64)


@settings(deadline=None)
@given(st.data(), meshes(), st.integers(0, 2), st.booleans(), st.booleans())
def test_matmul(data: st.DataObject, mesh: Mesh, batch: int, shared: bool, transpose_b: bool):
    lead = tuple(data.draw(st.integers(1, 4)) for _ in range(batch))
    m, n, k = (data.draw(SIZES) for _ in range(3))
    a = rand(*lead, m, k)
    b = rand(*(() if shared else lead), *((n, k) if transpose_b else (k, n)))
    rule = matmul_rule(a.ndim, b.ndim, transpose_b=transpose_b)
    operands = [(x, data.draw(placements(x.ndim, mesh))) for x in (a, b)]

    def matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x @ (y.mT if transpose_b else y)

    check(rule, matmul, operands, mesh)


@settings(deadline=None)
@given(st.data(), meshes(), st.sampled_from(["add", "sub", "mul"]), SIZES, SIZES)
def test_binary(data: st.DataObject, mesh: Mesh, fn: str, m: int, n: int):
    shapes = [(m, n), (m, 1), (1, n), (1, 1)]
    a, b = (rand(*data.draw(st.sampled_from(shapes))) for _ in range(2))
    operands = [(x, data.draw(placements(2, mesh))) for x in (a, b)]
    rule = pointwise_rule(fn, [tuple(a.shape), tuple(b.shape)])
    check(rule, getattr(torch, fn), operands, mesh)


@settings(deadline=None)
@given(st.data(), meshes(), SIZES, SIZES)
def test_unary(data: st.DataObject, mesh: Mesh, m: int, n: int):
    operands = [(rand(m, n), data.draw(placements(2, mesh)))]
    check(pointwise_rule("exp", [(m, n)]), torch.exp, operands, mesh)
    check(cast_rule("cast", 2, keeps_sums=True), torch.Tensor.double, operands, mesh)


@settings(deadline=None)
@given(st.data(), meshes(), st.integers(1, 3), st.booleans())
def test_rows(data: st.DataObject, mesh: Mesh, ndim: int, with_gain: bool):
    shape = tuple(data.draw(st.integers(1, 6)) for _ in range(ndim))
    dim = ndim - 1 if with_gain else data.draw(st.integers(0, ndim - 1))
    operands = [(rand(*shape), data.draw(placements(ndim, mesh)))]
    if with_gain:
        operands.append((rand(shape[-1]), data.draw(placements(1, mesh))))

    def norm(x: torch.Tensor, gain: torch.Tensor | None = None) -> torch.Tensor:
        return x.softmax(dim) if gain is None else x.softmax(dim) * gain

    check(rows_rule("rows", ndim, dim, beside=int(with_gain)), norm, operands, mesh)


@settings(deadline=None)
@given(st.data(), meshes(), st.integers(0, 6), st.integers(1, 4))
def test_rope(data: st.DataObject, mesh: Mesh, tokens: int, heads: int):
    shapes = [(tokens, heads, 4), *[(data.draw(st.sampled_from([tokens, 1])), 1, 4)] * 2]
    operands = [(rand(*shape), data.draw(placements(3, mesh))) for shape in shapes]
    check(aligned_rows_rule("rope", shapes, 2), reference.rope, operands, mesh)


@settings(deadline=None)
@given(st.data(), meshes(), st.integers(1, 2), st.integers(1, 2), st.integers(1, 3))
def test_attention(data: st.DataObject, mesh: Mesh, batch: int, group: int, tokens: int):
    heads = data.draw(st.integers(1, 3)) if group == 1 else mesh.ranks
    shapes = [(batch, tokens, heads * group, 2), *[(batch, tokens + 1, heads, 2)] * 2]
    operands = [(rand(*shape), data.draw(placements(4, mesh))) for shape in shapes]
    attention = partial(reference.attention, offset=1, causal=True, scale=0.5)
    check(attention_rule(), attention, operands, mesh)


@settings(deadline=None)
@given(st.data(), meshes(), st.integers(0, 6), st.integers(1, 6))
def test_argmax(data: st.DataObject, mesh: Mesh, m: int, n: int):
    labels = torch.randint(0, 99, (data.draw(st.sampled_from([m, 1])), n))
    operands = [(rand(m, n), data.draw(placements(2, mesh)))]
    check(rows_rule("amax", 2, 1), partial(reference.amax, dim=1), operands, mesh)
    operands.append((labels, data.draw(placements(2, mesh, sums=False))))
    rule = aligned_rows_rule("argmax", [(m, n), tuple(labels.shape)], 1)
    check(rule, partial(reference.argmax, dim=1), operands, mesh)


@settings(deadline=None)
@given(st.data(), meshes(), st.integers(0, 6), st.integers(0, 6), st.integers(1, 5))
def test_embedding(data: st.DataObject, mesh: Mesh, tokens: int, rows: int, width: int):
    ids, table = torch.randint(-1, rows + 1, (tokens,)), rand(rows, width)
    rule = embedding_rule(1)
    lying = [data.draw(placements(1, mesh, sums=False)), data.draw(placements(2, mesh))]
    while ways := find_mends(rule, lying):
        for mend in ways[0]:
            lying[mend.operand] = mend.move.of(lying[mend.operand])
    result = Layout((tokens, width), apply_rule(rule, lying, Scope(None, ("ids", "table"))))
    parts: list[torch.Tensor] = []
    for rank in range(mesh.ranks):
        (row, _), _ = box(Layout((rows, width), lying[1]), mesh, rank)
        mine = local(ids, lying[0], mesh, rank) - row
        parts.append(reference.embedding(mine, local(table, lying[1], mesh, rank)))
    torch.testing.assert_close(whole(parts, result, mesh), reference.embedding(ids, table))


def table(rule: Rule, operands: int) -> dict[str, str]:
    rows = ((p, rule.on_axis(p)) for p in itertools.product(ALL, repeat=operands))
    return {" ".join(map(str, p)): str(result) for p, result in rows if result is not None}


def test_the_tables_are_those_of_the_documentation():
    assert table(matmul_rule(), 2) == {
        "replicate replicate": "replicate",
        "shard(0) replicate": "shard(0)",
        "replicate shard(1)": "shard(1)",
        "shard(1) shard(0)": "partial(sum)",
        "partial(sum) replicate": "partial(sum)",
        "replicate partial(sum)": "partial(sum)",
    }
    shards = {
        "shard(0) shard(0)": "shard(0)",
        "shard(1) shard(1)": "shard(1)",
        "shard(0) replicate": "shard(0)",
        "shard(1) replicate": "shard(1)",
        "replicate shard(0)": "shard(0)",
        "replicate shard(1)": "shard(1)",
        "replicate replicate": "replicate",
    }
    square = [(4, 4), (4, 4)]
    sums = {"partial(sum) partial(sum)": "partial(sum)"}
    scaled = {
        "partial(sum) replicate": "partial(sum)",
        "replicate partial(sum)": "partial(sum)",
    }
    assert table(pointwise_rule("add", square), 2) == shards | sums
    assert table(pointwise_rule("sub", square), 2) == shards | sums
    assert table(pointwise_rule("mul", square), 2) == shards | scaled
    same = {str(p): str(p) for p in ALL if p != P}
    assert table(pointwise_rule("exp", square[:1]), 1) == same
    assert table(cast_rule("cast", 2, keeps_sums=False), 1) == same
    assert table(cast_rule("cast", 2, keeps_sums=True), 1) == {str(p): str(p) for p in ALL}


def test_the_tables_of_layers():
    assert table(rows_rule("softmax", 2, 1), 1) == {
        "shard(0)": "shard(0)",
        "replicate": "replicate",
    }
    assert table(rows_rule("rms_norm", 2, 1, beside=1), 2) == {
        "shard(0) replicate": "shard(0)",
        "replicate replicate": "replicate",
    }
    assert table(embedding_rule(2), 2) == {
        "replicate replicate": "replicate",
        "shard(0) replicate": "shard(0)",
        "shard(1) replicate": "shard(1)",
        "replicate shard(0)": "partial(sum)",
        "replicate shard(1)": "shard(2)",
    }
    assert table(attention_rule(numbers=1), 4) == {
        f"{S0} {S0} {S0} {R}": str(S0),
        f"{R} {R} {R} {R}": str(R),
    }
    assert attention_rule().on_axis((Shard(2),) * 3) == Shard(2)


def test_the_preferred_mend():
    def first(rule: Rule, a: Placement, b: Placement) -> list[str]:
        mends, *_ = find_mends(rule, [(a,), (b,)])
        return [mend.move.call("ab"[mend.operand], AB) for mend in mends]

    add = pointwise_rule("add", [(4, 4), (4, 4)])
    assert first(matmul_rule(), S0, S1) == ["all_gather(a, dim=0)"]
    assert first(matmul_rule(), P, S0) == ["reduce_scatter(a, dim=1)"]
    assert first(add, P, S1) == ["reduce_scatter(a, dim=1)"]
    assert first(add, P, R) == ["all_reduce(a)"]
    outer = pointwise_rule("add", [(1, 4), (4, 1)])
    assert first(outer, S0, S1) == ["all_gather(a, dim=0)", "all_gather(b, dim=1)"]


def binary(fn: str, a: Layout, b: Layout, mesh: Mesh | None = None) -> Placements:
    rule = pointwise_rule(fn, [a.shape, b.shape])
    return apply_rule(rule, [a.placements, b.placements], Scope(mesh, ("a", "b")))


def test_broadcasting_needs_unsharded_dims():
    assert binary("add", Layout((8, 4), (S0,)), Layout((1, 4), (R,))) == (S0,)
    assert binary("add", Layout((8, 4), (S1,)), Layout((1, 4), (S1,))) == (S1,)
    assert binary("mul", Layout((1, 4), (S0,)), Layout((1, 4), (S0,))) == (S0,)
    with pytest.raises(PlacementError, match=r"all_gather\(b, dim=0\)"):
        binary("add", Layout((8, 4), (S0,)), Layout((1, 4), (S0,)))


def test_rules_hold_for_each_axis_of_a_mesh():
    assert apply_rule(matmul_rule(), [(S0, R), (R, S1)], AB) == (S0, S1)
    assert apply_rule(matmul_rule(), [(R, P), (P, R)], AB) == (P, P)
    with pytest.raises(PlacementError) as error:
        apply_rule(matmul_rule(), [(S1, R), (S1, S0)], Scope(Mesh(dp=2, tp=2), ("a", "b")))
    assert error.value.message == (
        "matmul has no rule for a [shard(1), replicate] and b [shard(1), shard(0)]; to mend it use"
        ' all_gather(b, dim=0, axis="tp") or all_to_all(b, split_dim=1, concat_dim=0, axis="tp")'
        ' or shard(a, dim=1, axis="tp")'
    )


def test_parts_out_of_reach_are_joined():
    mesh, nested = Mesh(dp=2, tp=2), Layout((8, 4), (S0, S0))
    assert binary("add", nested, Layout((8, 4), (S0, R)), mesh) == (S0, S0)
    with pytest.raises(PlacementError) as error:
        binary("add", nested, Layout((8, 4), (R, S0)), mesh)
    assert 'to mend it use all_gather(b, dim=0, axis="tp")' in error.value.message
