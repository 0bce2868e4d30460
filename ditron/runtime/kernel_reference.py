"""The reference of a tile kernel: its core ops on torch tensors, one after another.

A kernel that runs tile by tile may run on whole tensors at once, since it never sums over a
dimension that its tiles cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from xdsl.ir import Operation, SSAValue

from ditron.ir import core
from ditron.ir.attrs import dtype_name
from ditron.plan.dtypes import DTYPES, Kind

Functions = Mapping[str, Callable[..., torch.Tensor]]


def run_kernel(
    kernel: core.FuncOp,
    views: Sequence[torch.Tensor],
    functions: Functions,
    *,
    exact: bool = False,
) -> dict[int, torch.Tensor]:
    """Run a kernel on tensors; what it stores, by the view's number.

    Args:
        kernel: what to run.
        views: the tensors that its views are, in order; of those that it only stores, nothing is
            read.
        functions: the reference functions, by the name of the op.
        exact: floats are float64 throughout, and casts between floats do not round.
    """
    args: list[SSAValue] = list(kernel.body.block.args)
    tiles: dict[SSAValue, torch.Tensor] = {}
    stored: dict[int, torch.Tensor] = {}
    for op in kernel.body.block.ops:
        match op:
            case core.LoadOp():
                view = args.index(op.view)
                tile = stored.get(view, views[view] if view < len(views) else None)
                assert tile is not None
                tiles[op.result] = tile.double() if exact and tile.is_floating_point() else tile
            case core.StoreOp():
                stored[args.index(op.view)] = tiles[op.tile]
            case _:
                result = op.results[0]
                tiles[result] = _compute(op, [tiles[o] for o in op.operands], functions)
                if not (exact and _is_float(result)):
                    tiles[result] = tiles[result].to(_torch_dtype(result))
                elif not tiles[result].is_floating_point():
                    tiles[result] = tiles[result].double()
    return stored


def _compute(op: Operation, operands: list[torch.Tensor], functions: Functions) -> torch.Tensor:
    match op:
        case core.DotOp():
            wide = [t if t.dtype == torch.float64 else t.float() for t in operands]
            return functions["matmul"](*wide, transpose_b=op.transpose_b is not None)
        case core.ConstantOp():
            shape, dtype = core.tile_type(op.result).dims, _torch_dtype(op.result)
            return functions["constant"](op.number, shape, dtype)
        case core.ExpandDimsOp():
            return functions["expand_dims"](*operands, op.added)
        case core.ReduceOp() | core.IotaOp() | core.SwapHalvesOp():
            return functions[op.name.partition(".")[2]](*operands, op.dim_index)
        case core.TransposeOp():
            return functions["transpose"](*operands, op.dims)
        case _:
            return functions[op.name.partition(".")[2]](*operands)


def _is_float(tile: SSAValue) -> bool:
    return DTYPES[dtype_name(core.tile_type(tile).element_type)].kind is Kind.FLOAT


def _torch_dtype(tile: SSAValue) -> torch.dtype:
    return getattr(torch, DTYPES[dtype_name(core.tile_type(tile).element_type)].torch_name)
