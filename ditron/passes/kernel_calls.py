"""Kernels that a user wrote, at the tile sizes that a pass chooses."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import SSAValue
from xdsl.rewriter import Rewriter

from ditron.analysis.kernel_dims import Dim, dim_class, tile_dims
from ditron.ir import core


def resized(kernel: core.FuncOp, name: str, views: Sequence[SSAValue]) -> core.FuncOp:
    """A copy of a kernel for these views, with tiles of the sizes that follow.

    Dimensions that are one with a view's get the view's new size; others keep theirs.
    """
    new = kernel.clone()
    new.sym_name = StringAttr(name)
    new.location = kernel.location
    find = dim_class(new)
    size_of: dict[Dim, int] = {}
    args: list[SSAValue] = list(new.body.block.args)
    for arg, view in zip(args, views, strict=True):
        size_of |= {find((arg, d)): size for d, size in enumerate(tile_dims(view))}
    values = [*args, *(r for op in new.body.block.ops for r in op.results)]
    shapes = [
        [size_of.get(find((value, d)), size) for d, size in enumerate(tile_dims(value))]
        for value in values
    ]
    for value, shape in zip(values, shapes, strict=True):
        old = value.type
        assert isinstance(old, core.ViewType | core.TileType)
        kind = type(old)
        Rewriter.replace_value_with_new_type(value, kind.get(shape, old.element_type))
    return new
