"""Where the dimensions of a kernel's tiles come from: of which view, so how far they go."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Operation, SSAValue

from ditron.errors import PlanError
from ditron.ir import core

Origin = tuple[int, int]
"""The number of a view, and a dimension of it."""


def origin(func: core.FuncOp, tile: SSAValue, dim: int) -> Origin | int:
    """What tells how far a tile goes along a dimension; its size where that never varies."""
    return _Origins(func).of(tile, dim)


def needed_sizes(func: core.FuncOp) -> set[Origin]:
    """The sizes that a kernel's loops and masks go by."""
    origins = _Origins(func)
    return {found for found in origins.needed() if not isinstance(found, int)}


def walked(func: core.FuncOp) -> list[Origin | int]:
    """The box that a kernel is walked by: its first result's, or what is put into that."""
    return _Origins(func).walked(next(op for op in func.body.block.ops if _stores(op)))


def walked_dims(func: core.FuncOp) -> tuple[int, ...]:
    """The capacity of that box."""
    store = next(op for op in func.body.block.ops if _stores(op))
    assert isinstance(store, core.StoreOp | core.StoreAtOp)
    return core.tile_type(store.tile).dims


def _stores(op: Operation) -> bool:
    return isinstance(op, core.StoreOp | core.StoreAtOp)


class _Origins:
    def __init__(self, func: core.FuncOp) -> None:
        self.func = func
        args: list[SSAValue] = list(func.body.block.args)
        self._numbers = {arg: i for i, arg in enumerate(args)}

    def of(self, tile: SSAValue, dim: int) -> Origin | int:  # noqa: C901, PLR0911 - one a kind
        dims = core.tile_type(tile).dims
        op = tile.owner
        if dims[dim] == 1:
            return 1
        match op:
            case core.LoadOp():
                return self._numbers[op.view], dim
            case core.LoadAtOp():
                return dims[dim] if dim == op.dim_index else (self._numbers[op.view], dim)
            case core.GatherOp():
                last = dim == len(dims) - 1
                return (self._numbers[op.view], 1) if last else self.of(op.ids, dim)
            case core.TransposeOp():
                first, second = op.dims
                return self.of(op.operand, {first: second, second: first}.get(dim, dim))
            case core.ExpandDimsOp():
                return self.of(op.operand, dim - op.added)
            case core.DotOp() if dim == len(dims) - 1:
                columns = dim - 1 if op.transpose_b is not None else dim
                return self.of(op.rhs, columns)
            case core.DotOp() if dim == len(dims) - 2:
                return self.of(op.lhs, dim)
            case Operation():
                for operand in op.operands:
                    if core.tile_type(operand).dims[dim] > 1:
                        return self.of(operand, dim)
            case _:
                pass
        raise PlanError(f"how far a tile goes along dim {dim} is not known to Triton code")

    def walked(self, store: Operation) -> list[Origin | int]:
        if isinstance(store, core.StoreAtOp):
            return [self.of(store.tile, d) for d in range(len(core.tile_type(store.tile).dims))]
        assert isinstance(store, core.StoreOp)
        number = self._numbers[store.view]
        return [(number, d) for d in range(len(core.tile_type(store.tile).dims))]

    def needed(self) -> Iterator[Origin | int]:
        for op in self.func.body.block.ops:
            match op:
                case core.StoreOp():
                    yield from self.walked(op)
                case core.StoreAtOp():
                    yield from self.walked(op)
                    yield self._numbers[op.view], op.dim_index
                case core.LoadAtOp():
                    yield self._numbers[op.view], op.dim_index
                case core.GatherOp():
                    yield self._numbers[op.view], 0
                    yield self._numbers[op.view], 1
                case core.DotOp():
                    yield self.of(op.lhs, len(core.tile_type(op.lhs).dims) - 1)
                case core.ReduceOp() | core.ArgmaxOp():
                    yield self.of(op.operand, op.dim_index)
                case _:
                    pass
