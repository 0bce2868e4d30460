"""What a core kernel does to tags, and which dimensions of its views are one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from ditron.analysis.ring import BINARY, Tags, constant, dot, function
from ditron.ir import core

Dim = tuple[SSAValue, int]


@dataclass(frozen=True)
class SharedDim:
    """Dimension `a_dim` of view `a` and `b_dim` of view `b` run over the same indices."""

    a: int
    a_dim: int
    b: int
    b_dim: int


def shared_dims(kernel: core.FuncOp) -> list[SharedDim]:
    """Dimensions of views that a kernel cannot tell apart: each with the first of its class."""
    root: dict[Dim, Dim] = {}

    def find(dim: Dim) -> Dim:
        while root.get(dim, dim) != dim:
            dim = root[dim]
        return dim

    for a, b in _same_dims(kernel):
        root[find(b)] = find(a)
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
                for d in range(len(_dims(op.operand))):
                    yield (op.operand, d), (op.result, d + op.added)
                continue
            case _:
                pairs = [(operand, op.results[0]) for operand in op.operands]
        for a, b in pairs:
            sizes = zip(_dims(a), _dims(b), strict=True)
            yield from (((a, d), (b, d)) for d, (m, n) in enumerate(sizes) if m == n)


def _dims(value: SSAValue) -> tuple[int, ...]:
    assert isinstance(value.type, core.ViewType | core.TileType)
    return value.type.dims


Load = Callable[[int], Tags]
Store = Callable[[int, Tags], None]


def run_kernel(kernel: core.FuncOp, load: Load, store: Store) -> None:
    """Run a kernel on tags; `load` and `store` move those of a view by its number.

    Tags have any leading dimensions, so that many tasks run at once.
    """
    args: Sequence[SSAValue] = kernel.body.block.args
    tiles: dict[SSAValue, Tags] = {}
    for op in kernel.body.block.ops:
        match op:
            case core.LoadOp():
                tiles[op.result] = load(args.index(op.view))
            case core.StoreOp():
                store(args.index(op.view), tiles[op.tile])
            case core.DotOp():
                transpose = op.transpose_b is not None
                tiles[op.result] = dot(tiles[op.lhs], tiles[op.rhs], transpose_b=transpose)
            case core.CastOp():
                tiles[op.result] = tiles[op.operand]
            case core.ConstantOp():
                tiles[op.result] = constant(op.number).reshape((1,) * len(_dims(op.result)))
            case core.ExpandDimsOp():
                tile, ndim = tiles[op.operand], len(_dims(op.operand))
                many, dims = tile.shape[:-ndim], tile.shape[-ndim:]
                tiles[op.result] = tile.reshape(*many, *[1] * op.added, *dims)
            case core.BinaryOp():
                tiles[op.result] = BINARY[_name(op)](tiles[op.lhs], tiles[op.rhs])
            case core.UnaryOp():
                tiles[op.result] = function(_name(op))(tiles[op.operand])
            case _:
                raise AssertionError(op.name)


def _name(op: core.BinaryOp | core.UnaryOp) -> str:
    return op.name.partition(".")[2]
