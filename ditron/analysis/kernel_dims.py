"""Which dimensions of a core kernel's views are one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

from xdsl.ir import SSAValue

from ditron.errors import PlanError
from ditron.ir import core
from ditron.ir.core_moves import swapped

Dim = tuple[SSAValue, int]


@dataclass(frozen=True)
class SharedDim:
    """Dimension `a_dim` of view `a` and `b_dim` of view `b` run over the same indices."""

    a: int
    a_dim: int
    b: int
    b_dim: int


@lru_cache(maxsize=512)
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
    return cache(find)


def view_dim(kernel: core.FuncOp, tile: SSAValue, dim: int) -> tuple[int, int]:
    """A view, by its number, and the dimension of it that a tile's dimension runs over.

    Raises:
        PlanError: there is none.
    """
    find = dim_class(kernel)
    wanted = find((tile, dim))
    for i, view in enumerate(kernel.views):
        for d in range(len(tile_dims(view))):
            if find((view, d)) == wanted:
                return i, d
    message = f"@{kernel.kernel_name} numbers elements of a dimension that no view has"
    raise PlanError(message)


@lru_cache(maxsize=512)
def shared_dims(kernel: core.FuncOp) -> list[SharedDim]:
    """Dimensions of views that a kernel cannot tell apart: each with the first of its class."""
    find = dim_class(kernel)
    classes: dict[Dim, Dim] = {}
    shared: list[SharedDim] = []
    args: list[SSAValue] = list(kernel.views)
    for i, arg in enumerate(args):
        for d in range(len(tile_dims(arg))):
            first = classes.setdefault(find((arg, d)), (arg, d))
            if first != (arg, d):
                shared.append(SharedDim(args.index(first[0]), first[1], i, d))
    return shared


def halved_dims(kernel: core.FuncOp) -> set[tuple[int, int]]:
    """Dimensions of views, by their number, whose halves change places in a kernel."""
    swaps = (op for op in kernel.body.block.ops if isinstance(op, core.SwapHalvesOp))
    return {view_dim(kernel, op.operand, op.dim_index) for op in swaps}


def whole_dims(kernel: core.FuncOp) -> Iterator[Dim]:
    """Dimensions of tiles and views that a kernel needs all of at once, or numbers from 0 on."""
    for op in kernel.body.block.ops:
        match op:
            case core.DotOp():
                yield op.lhs, len(tile_dims(op.lhs)) - 1
            case core.GatherOp():
                yield op.view, 0
            case core.AtOp():
                yield op.view, op.dim_index
                yield op.part, op.dim_index
            case core.AlongDim():
                yield op.operands[0], op.dim_index
            case _:
                pass


@lru_cache(maxsize=512)
def spread_dims(kernel: core.FuncOp) -> list[tuple[int, int]]:
    """Dimensions of views, by their number, whose one element goes with all of another's."""
    find = dim_class(kernel)
    spread = {
        find((operand, d))
        for op in kernel.body.block.ops
        if isinstance(op, core.BinaryOp | core.WhereOp)
        for operand in op.operands
        for d, (m, n) in enumerate(zip(tile_dims(operand), tile_dims(op.results[0]), strict=True))
        if m == 1 < n
    }
    dims = ((i, d) for i, view in enumerate(kernel.views) for d in range(len(tile_dims(view))))
    return [(i, d) for i, d in dims if find((kernel.views[i], d)) in spread]


def _same_dims(kernel: core.FuncOp) -> Iterator[tuple[Dim, Dim]]:
    for op in kernel.body.block.ops:
        match op:
            case core.LoadOp() | core.StoreOp():
                yield from _like(*op.operands, *op.results)
            case core.GatherOp():
                ndim = len(tile_dims(op.ids))
                yield from (((op.ids, d), (op.result, d)) for d in range(ndim))
                yield (op.view, 1), (op.result, ndim)
            case core.AtOp():
                yield from _but_one(op.part, op.view, op.dim_index)
            case core.DotOp():
                yield from _dot_dims(op)
            case core.ReduceOp():
                yield from _but_one(op.operand, op.result, op.dim_index)
            case core.ArgmaxOp():
                yield from _like(op.operand, op.labels)
                yield from _but_one(op.operand, op.result, op.dim_index)
            case core.ExpandDimsOp() | core.TransposeOp():
                yield from _moved_dims(op)
            case core.IndexOp():
                pass
            case _:
                yield from (pair for o in op.operands for pair in _like(o, op.results[0]))


def _like(a: SSAValue, b: SSAValue) -> Iterator[tuple[Dim, Dim]]:
    """Elementwise: a dimension of size 1 stands for none of the other's."""
    sizes = zip(tile_dims(a), tile_dims(b), strict=True)
    yield from (((a, d), (b, d)) for d, (m, n) in enumerate(sizes) if m == n)


def _but_one(a: SSAValue, b: SSAValue, dim: int) -> Iterator[tuple[Dim, Dim]]:
    yield from (((a, d), (b, d)) for d in range(len(tile_dims(a))) if d != dim)


def _moved_dims(op: core.ExpandDimsOp | core.TransposeOp) -> Iterator[tuple[Dim, Dim]]:
    ndim = len(tile_dims(op.operand))
    if isinstance(op, core.ExpandDimsOp):
        yield from (((op.operand, d), (op.result, d + op.added)) for d in range(ndim))
    else:
        order = swapped(range(ndim), *op.dims)
        yield from (((op.operand, d), (op.result, i)) for i, d in enumerate(order))


def _dot_dims(op: core.DotOp) -> Iterator[tuple[Dim, Dim]]:
    inner = len(tile_dims(op.lhs)) - 1
    k, n = (inner, inner - 1) if op.transpose_b is not None else (inner - 1, inner)
    for d in range(inner):
        yield (op.lhs, d), (op.result, d)
        if d < inner - 1 and tile_dims(op.lhs)[d] == tile_dims(op.rhs)[d]:
            yield (op.lhs, d), (op.rhs, d)
    yield (op.lhs, inner), (op.rhs, k)
    yield (op.rhs, n), (op.result, inner)


def tile_dims(value: SSAValue) -> tuple[int, ...]:
    """The static shape of a view or a tile."""
    assert isinstance(value.type, core.ViewType | core.TileType)
    return value.type.dims
