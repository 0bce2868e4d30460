"""Kernels that a library has ready: a product of two views, and a sum of views in order.

What has one of these forms the host may have computed by the library's own kernels, a call a task:
on whole boxes, as large as a transfer, where an emitted kernel would walk tiles.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise

from xdsl.ir import Operation

from ditron.errors import PlanError
from ditron.ir import core


class LibraryCall(StrEnum):
    """What is called with a task's views, of which the last is written."""

    PRODUCT = "product"
    PRODUCT_TRANSPOSED = "product-transposed"  # by the second view's transpose
    SUM = "sum"  # first to last, in float32, rounded once


_STEPS = (core.LoadOp, core.CastOp, core.StoreOp)
MATRIX = 2


def library_call(func: core.FuncOp) -> LibraryCall:
    """The library's name for a kernel.

    Raises:
        PlanError: the library has no such kernel.
    """
    body = list(func.body.block.ops)
    work = [op for op in body if not isinstance(op, _STEPS)]
    match work:
        case [core.DotOp() as dot] if len(core.tile_type(dot.result).dims) == MATRIX:
            turned = dot.transpose_b is not None
            return LibraryCall.PRODUCT_TRANSPOSED if turned else LibraryCall.PRODUCT
        case [*adds] if all(isinstance(op, core.AddOp) for op in adds) and _in_order(body):
            return LibraryCall.SUM
        case _:
            names = ", ".join(op.name for op in work)
            raise PlanError(f"a library has no kernel for @{func.kernel_name}: {names}")


def _in_order(body: list[Operation]) -> bool:
    """Whether views are loaded from the first to the last, each added to the sum so far."""
    adds = [op for op in body if isinstance(op, core.AddOp)]
    chained = all(after.lhs is before.result for before, after in pairwise(adds))
    loads = [op for op in body if isinstance(op, core.LoadOp)]
    return chained and len(loads) == len(adds) + 1
