"""What a core kernel does to tags."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import SSAValue

from ditron.analysis.kernel_dims import tile_dims
from ditron.analysis.ring import BINARY, Tags, cast, constant, dot, function
from ditron.ir import core
from ditron.ir.attrs import dtype_name

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
                names = (
                    dtype_name(core.tile_type(t).element_type) for t in (op.operand, op.result)
                )
                tiles[op.result] = cast(tiles[op.operand], *names)
            case core.ConstantOp():
                tiles[op.result] = constant(op.number).reshape((1,) * len(tile_dims(op.result)))
            case core.ExpandDimsOp():
                tile, ndim = tiles[op.operand], len(tile_dims(op.operand))
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
