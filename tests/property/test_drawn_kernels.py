"""Tile kernels drawn at random: compiled, proved, run in any order, and held against torch.

All elements are integers so small that sums and products are exact: results are equal to the bit.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

import ditron as dt
from tests.unit import interleaved

SIZES = st.sampled_from([0, 1, 2, 3, 5, 8, 13])
R = dt.Replicate()

# The operands that a kernel may load: shape by [M, N, K], and the result's dims they are cut along.
OPERANDS: dict[str, tuple[tuple[str, ...], tuple[int | None, ...]]] = {
    "x": (("M", "N"), (0, 1)),
    "z": (("M", "N"), (0, 1)),
    "row": (("N",), (1,)),
    "column": (("M", "1"), (0, None)),
    "one": (("1", "1"), (None, None)),
    "a": (("M", "K"), (0, None)),
    "w": (("K", "N"), (None, 1)),
}

SIGNS = {"+": operator.add, "-": operator.sub, "*": operator.mul}

Tree = tuple[Any, ...]


def trees() -> st.SearchStrategy[Tree]:
    """Expressions of [M, N] tiles."""
    full = st.sampled_from([("x",), ("z",), ("dot",)])
    small = st.sampled_from([("row",), ("column",), ("one",), (2,), (-1,)])
    return st.recursive(
        full,
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(["+", "-", "*"]), inner, small),
            st.tuples(st.sampled_from(["+", "-"]), small, inner),
            st.tuples(st.sampled_from(["+", "-"]), inner, inner),
            st.tuples(st.just("relu"), inner),
            st.tuples(st.just("round"), inner),
        ),
        max_leaves=4,
    )


@dataclass(frozen=True)
class Case:
    tree: Tree
    sizes: dict[str, int]
    block: tuple[int, int]
    ranks: int
    result: Any
    replicas: frozenset[str]
    options: dt.Options


@st.composite
def cases(draw: st.DrawFn) -> Case:
    tile = st.tuples(st.integers(1, 9), st.integers(1, 9))
    return Case(
        draw(trees()),
        {"M": draw(SIZES), "N": draw(SIZES), "K": draw(SIZES), "1": 1},
        draw(tile),
        draw(st.integers(1, 4)),
        draw(st.sampled_from([R, dt.Shard(0), dt.Shard(1)])),
        draw(st.frozensets(st.sampled_from(sorted(OPERANDS)))),
        dt.Options(
            tile=draw(st.none() | tile),
            fusion=draw(st.sampled_from([None, False])),
            workers=draw(st.integers(1, 2)),
        ),
    )


def used(tree: Tree) -> set[str]:
    """The operands of an expression."""
    head, *rest = tree
    own = {"a", "w"} if head == "dot" else {head} & OPERANDS.keys()
    return own.union(*(used(part) for part in rest))


def evaluate(tree: Tree, k: Any, load: Any) -> Any:
    """An expression of tiles, or of tensors, for which `k` is torch-like."""
    head, *rest = tree
    parts = [evaluate(part, k, load) for part in rest]
    if head in SIGNS:
        return SIGNS[head](*parts)
    match head:
        case int():
            return head
        case "dot":
            return load("a") @ load("w")
        case "relu":
            return k.relu(*parts)
        case "round":
            return k.cast(*parts, dt.f32)
        case _:
            return load(head)


def kernel(case: Case, names: list[str]) -> dt.Kernel:
    """The case's expression as a kernel of its operands."""

    def body(k: Any, *args: Any) -> None:
        *inputs, y = args
        tensors = dict(zip(names, inputs, strict=True))
        coordinates = k.tile(y, case.block)

        def load(name: str) -> Any:
            cuts = OPERANDS[name][1]
            tensor = tensors[name]
            index = [0 if c is None else coordinates[c] for c in cuts]
            sizes = zip(tensor.shape, cuts, strict=True)
            block = [size if c is None else case.block[c] for size, c in sizes]
            return k.load(tensor, tuple(index), tuple(block))

        k.store(y, coordinates, evaluate(case.tree, k, load))

    scope: dict[str, Any] = {"body": body}
    arguments = ", ".join([*names, "y"])
    exec(f"def drawn(k, {arguments}): body(k, {arguments})", scope)
    return dt.kernel(scope["drawn"])


def place(case: Case, name: str) -> Any:
    """Where an operand lies: as the result, where it is cut along with it, or whole."""
    cuts = OPERANDS[name][1]
    dim = case.result.dim if isinstance(case.result, dt.Shard) else None
    if dim is None or dim not in cuts or name in case.replicas:
        return R
    return dt.Shard(cuts.index(dim))


class TorchLike:
    @staticmethod
    def relu(x: torch.Tensor) -> torch.Tensor:
        return x.relu()

    @staticmethod
    def cast(x: torch.Tensor, _: object) -> torch.Tensor:
        return x


@settings(
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=80,
    suppress_health_check=[HealthCheck.too_slow],
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
)
@given(cases())
def test_kernels_compute_what_torch_computes(case: Case) -> None:
    names = sorted(used(case.tree))
    shapes = {n: tuple(case.sizes[d] for d in OPERANDS[n][0]) for n in names}
    with dt.Program("p", dt.Mesh(tp=case.ranks)) as p:
        values = [p.input(n, shapes[n], dt.f32, place(case, n)) for n in names]
        out = dt.like(values[0], shape=(case.sizes["M"], case.sizes["N"]), placements=case.result)
        h = dt.call(kernel(case, names), *values, out=out)
        p.output("y", dt.relu(h))
    note(str(p.ir))
    generator = torch.Generator().manual_seed(0)
    inputs = {n: torch.randint(-1, 2, shapes[n], generator=generator).float() for n in names}
    expected = evaluate(case.tree, TorchLike, inputs.__getitem__).relu() + 0.0
    assert torch.equal(p.reference(inputs)["y"] + 0.0, expected)
    with dt.compile(p, options=case.options) as exe:
        assert exe.report.delivery is not None
        for seed in range(2):
            for outputs in interleaved.run(exe, p.mesh, inputs, seed=seed, launches=2):
                assert torch.equal(outputs["y"] + 0.0, expected)
