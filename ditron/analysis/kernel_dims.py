"""Which dimensions of a core kernel's views are one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from xdsl.ir import SSAValue

from ditron.ir import core

Dim = tuple[SSAValue, int]


@dataclass(frozen=True)
class SharedDim:
    """Dimension `a_dim` of view `a` and `b_dim` of view `b` run over the same indices."""

    a: int
    a_dim: int
    b: int
    b_dim: int


def dim_class(kernel: core.FuncOp) -> Callable[[Dim], Dim]:
    """What finds, for a dimension of a view or tile, the one that stands for its class.

    The dimensions of a class run over the same indices.
    """
    root: dict[Dim, Dim] = {}

    def find(dim: Dim) -> Dim:
        while root.get(dim, dim) != dim:
            dim = root[dim]
        return dim

    for a, b in _same_dims(kernel):
        root[find(b)] = find(a)
    return find


def shared_dims(kernel: core.FuncOp) -> list[SharedDim]:
    """Dimensions of views that a kernel cannot tell apart: each with the first of its class."""
    find = dim_class(kernel)
    classes: dict[Dim, Dim] = {}
    shared: list[SharedDim] = []
    args: list[SSAValue] = list(kernel.body.block.args)
    for i, (arg, type_) in enumerate(zip(args, kernel.view_types, strict=True)):
        for d in range(len(type_.dims)):
            first = classes.setdefault(find((arg, d)), (arg, d))
            if first != (arg, d):
                shared.append(SharedDim(args.index(first[0]), first[1], i, d))
    return shared


def _same_dims(kernel: core.FuncOp) -> Iterator[tuple[Dim, Dim]]:
    for op in kernel.body.block.ops:
        match op:
            case core.LoadOp():
                pairs = [(op.view, op.result)]
            case core.StoreOp():
                pairs = [(op.tile, op.view)]
            case core.DotOp():
                k, n = (1, 0) if op.transpose_b is not None else (0, 1)
                yield (op.lhs, 0), (op.result, 0)
                yield (op.lhs, 1), (op.rhs, k)
                yield (op.rhs, n), (op.result, 1)
                continue
            case core.ExpandDimsOp():
                for d in range(len(tile_dims(op.operand))):
                    yield (op.operand, d), (op.result, d + op.added)
                continue
            case _:
                pairs = [(operand, op.results[0]) for operand in op.operands]
        for a, b in pairs:
            sizes = zip(tile_dims(a), tile_dims(b), strict=True)
            yield from (((a, d), (b, d)) for d, (m, n) in enumerate(sizes) if m == n)


def tile_dims(value: SSAValue) -> tuple[int, ...]:
    """The static shape of a view or a tile."""
    assert isinstance(value.type, core.ViewType | core.TileType)
    return value.type.dims
