"""Placements: shards against torch, the rule table against real sums and slices."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ditron.errors import MeshError, PlacementError
from ditron.plan.placement import (
    AxisRule,
    Mesh,
    Partial,
    Placement,
    Replicate,
    Shard,
    cast_rule,
    collective_placement,
    find_mends,
    matmul_placement,
    matmul_rule,
    pointwise_placement,
    pointwise_rule,
    shard_extent,
    shard_size,
    show,
)

S0, S1, R, P = Shard(0), Shard(1), Replicate(), Partial()
ALL: tuple[Placement, ...] = (S0, S1, R, P)
SIZES = st.integers(0, 40)
RANKS = st.integers(1, 9)


@given(SIZES, RANKS)
def test_shards_are_torch_chunks(size: int, n: int):
    chunks = [len(c) for c in torch.arange(size).chunk(n)] if size else []
    chunks += [0] * (n - len(chunks))  # torch leaves empty chunks out
    assert shard_extent(size, n, np.arange(n)).tolist() == chunks
    assert [int(shard_extent(size, n, r)) for r in range(n)] == chunks
    assert shard_size(size, n) == max(chunks)


def local(x: torch.Tensor, placement: Placement, n: int, r: int) -> torch.Tensor:
    """What rank r holds of a global tensor; a partial sum's terms are r + 1 over their total."""
    match placement:
        case Shard(dim):
            q = shard_size(x.shape[dim], n)
            start = min(r * q, x.shape[dim])
            return x.narrow(dim, start, int(shard_extent(x.shape[dim], n, r)))
        case Partial():
            return x * (r + 1) / (n * (n + 1) / 2)
        case Replicate():
            return x


def whole(parts: list[torch.Tensor], placement: Placement) -> torch.Tensor:
    """The global tensor of all ranks' parts."""
    match placement:
        case Shard(dim):
            return torch.cat(parts, dim)
        case Partial():
            return torch.stack(parts).sum(0)
        case Replicate():
            for part in parts[1:]:
                torch.testing.assert_close(part, parts[0])
            return parts[0]


@given(st.data(), SIZES, SIZES, SIZES, RANKS, st.booleans())
def test_matmul_rule_holds(data: st.DataObject, m: int, n: int, k: int, ranks: int, trans: bool):
    pairs = [p for p in itertools.product(ALL, ALL) if matmul_rule(transpose_b=trans)(p)]
    pa, pb = data.draw(st.sampled_from(pairs))
    a, b = torch.rand(m, k).double(), torch.rand(*((n, k) if trans else (k, n))).double()
    parts: list[torch.Tensor] = []
    for r in range(ranks):
        lb = local(b, pb, ranks, r)
        parts.append(local(a, pa, ranks, r) @ (lb.T if trans else lb))
    (placement,) = matmul_placement((pa,), (pb,), transpose_b=trans)
    torch.testing.assert_close(whole(parts, placement), a @ (b.T if trans else b))


@given(st.data(), st.sampled_from(["add", "sub", "mul"]), SIZES, SIZES, RANKS)
def test_binary_rule_holds(data: st.DataObject, fn: str, m: int, n: int, ranks: int):
    pairs = [p for p in itertools.product(ALL, ALL) if pointwise_rule(fn, [(m, n)] * 2)(p)]
    pa, pb = data.draw(st.sampled_from(pairs))
    a, b = torch.rand(m, n).double(), torch.rand(m, n).double()
    compute = getattr(torch, fn)
    parts: list[torch.Tensor] = []
    for r in range(ranks):
        la, lb = local(a, pa, ranks, r), local(b, pb, ranks, r)
        if isinstance(pa, Shard) and pb == R:  # a replica is read where the shard lies
            lb = local(b, pa, ranks, r)
        if isinstance(pb, Shard) and pa == R:
            la = local(a, pb, ranks, r)
        parts.append(compute(la, lb))
    (placement,) = pointwise_placement(fn, [(pa,), (pb,)], [(m, n)] * 2)
    torch.testing.assert_close(whole(parts, placement), compute(a, b))


def table(rule: AxisRule, operands: int) -> dict[str, str]:
    rows = ((p, rule(p)) for p in itertools.product(ALL, repeat=operands))
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
    assert table(cast_rule(keeps_sums=False), 1) == same
    assert table(cast_rule(keeps_sums=True), 1) == {str(p): str(p) for p in ALL}


@pytest.mark.parametrize(
    "rule",
    [
        matmul_rule(),
        matmul_rule(transpose_b=True),
        *(pointwise_rule(fn, [(4, 4), (4, 4)]) for fn in ("add", "sub", "mul")),
        pointwise_rule("add", [(1, 4), (4, 1)]),
    ],
)
def test_whatever_does_not_fit_can_be_mended(rule: AxisRule):
    for a, b in itertools.product(ALL, ALL):
        if rule((a, b)) is not None:
            continue
        for mends in find_mends(rule, [(a,), (b,)], [2, 2], 0):
            operands = [a, b]
            for mend in mends:
                have = (operands[mend.operand],)
                (operands[mend.operand],) = collective_placement(mend.kind, have, dim=mend.dim)
            assert rule(tuple(operands)) is not None


def test_the_preferred_mend_moves_least():
    def first(rule: AxisRule, a: Placement, b: Placement) -> list[str]:
        mends, *_ = find_mends(rule, [(a,), (b,)], [2, 2], 0)
        return [mend.call("ab"[mend.operand]) for mend in mends]

    add = pointwise_rule("add", [(4, 4), (4, 4)])
    assert first(matmul_rule(), S0, S1) == ["all_gather(a, dim=0)"]
    assert first(matmul_rule(), P, S0) == ["reduce_scatter(a, dim=1)"]
    assert first(add, P, S1) == ["reduce_scatter(a, dim=1)"]
    assert first(add, P, R) == ["all_reduce(a)"]
    outer = pointwise_rule("add", [(1, 4), (4, 1)])
    assert first(outer, S0, S1) == ["all_gather(a, dim=0)", "all_gather(b, dim=1)"]


def test_broadcasting_needs_unsharded_dims():
    assert pointwise_placement("add", [(S0,), (R,)], [(8, 4), (1, 4)]) == (S0,)
    assert pointwise_placement("add", [(S1,), (S1,)], [(8, 4), (1, 4)]) == (S1,)
    assert pointwise_placement("mul", [(S0,), (S0,)], [(1, 4), (1, 4)]) == (S0,)
    with pytest.raises(PlacementError, match=r"all_gather\(b, dim=0\)"):
        pointwise_placement("add", [(S0,), (S0,)], [(8, 4), (1, 4)])


def test_rules_hold_for_each_axis_of_a_mesh():
    assert matmul_placement((S0, R), (R, S1)) == (S0, S1)
    assert matmul_placement((R, P), (P, R)) == (P, P)
    assert collective_placement("all_gather", (S0, S1), axis=1, dim=1) == (S0, R)


@pytest.mark.parametrize(
    ("kind", "have", "advice"),
    [
        ("all_gather", S1, "needs x shard(0), but it is shard(1): all_gather(x, dim=1) makes"),
        ("all_gather", P, "all_reduce(x) or reduce_scatter(x, dim=...) sums it"),
        ("all_gather", R, "whole on every rank already, so leave this collective out"),
        ("reduce_scatter", S0, "needs x partial(sum), but it is shard(0)"),
        ("all_reduce", R, "needs x partial(sum), but it is replicate"),
    ],
)
def test_collectives_say_what_they_need(kind: str, have: Placement, advice: str):
    dim = None if kind == "all_reduce" else 0
    with pytest.raises(PlacementError) as error:
        collective_placement(kind, (have,), dim=dim)
    assert advice in error.value.message


def test_mesh():
    mesh = Mesh(dp=2, tp=4)
    assert mesh.axes == ("dp", "tp")
    assert (mesh.ranks, mesh.size("tp"), mesh.index("tp")) == (8, 4, 1)
    assert repr(mesh) == "Mesh(dp=2, tp=4)"
    assert mesh == Mesh(dp=2, tp=4) != Mesh(tp=4, dp=2)
    with pytest.raises(MeshError, match="has no axis 'pp'; it has dp, tp"):
        mesh.size("pp")


def test_bad_values_are_refused_at_the_users_line():
    with pytest.raises(MeshError, match=r"test_placement.py:\d+: a mesh has at least one axis"):
        Mesh()
    with pytest.raises(MeshError, match=r"test_placement.py:\d+: .*'tp' needs a size .* got 0"):
        Mesh(tp=0)
    with pytest.raises(PlacementError, match=r"test_placement.py:\d+: Shard takes the index"):
        Shard("rows")  # pyright: ignore[reportArgumentType]
    with pytest.raises(PlacementError, match=r'test_placement.py:\d+: Partial knows "sum" only'):
        Partial("max")
    assert show((S0, R, P)) == "[shard(0), replicate, partial(sum)]"
