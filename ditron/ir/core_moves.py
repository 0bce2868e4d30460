"""Core ops that only move a tile's elements."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from ditron.ir.core_tiles import AlongDim, TileType, tile_type


@irdl_op_definition
class ExpandDimsOp(IRDLOperation):
    """The same elements with dimensions of size 1 put before the others."""

    name = "core.expand_dims"
    operand = operand_def(TileType)
    result = result_def(TileType)
    traits = traits_def(Pure())
    assembly_format = "$operand attr-dict `:` type($operand) `->` type($result)"

    def __init__(self, operand: SSAValue, ndim: int) -> None:
        tile = tile_type(operand)
        dims = [1] * (ndim - len(tile.dims)) + list(tile.dims)
        super().__init__(operands=[operand], result_types=[TileType.get(dims, tile.element_type)])

    @property
    def added(self) -> int:
        """How many dimensions the result has more."""
        return len(tile_type(self.result).dims) - len(tile_type(self.operand).dims)

    def verify_(self) -> None:
        tile, result = tile_type(self.operand), tile_type(self.result)
        if self.added < 1 or result.dims != (1,) * self.added + tile.dims:
            raise VerifyException(
                f"core.expand_dims puts dimensions of size 1 first: {tile.dims} -> {result.dims}"
            )
        if tile.element_type != result.element_type:
            raise VerifyException("core.expand_dims keeps the element type")


@irdl_op_definition
class TransposeOp(IRDLOperation):
    """Two dimensions change places."""

    name = "core.transpose"
    operand = operand_def(TileType)
    first = prop_def(IntegerAttr.constr(i64))
    second = prop_def(IntegerAttr.constr(i64))
    result = result_def(TileType)
    traits = traits_def(Pure())
    assembly_format = (
        "$operand `dims` $first `,` $second attr-dict `:` type($operand) `->` type($result)"
    )

    def __init__(self, operand: SSAValue, first: int, second: int) -> None:
        tile = tile_type(operand)
        dims = swapped(tile.dims, first, second)
        super().__init__(
            operands=[operand],
            properties={"first": IntegerAttr(first, i64), "second": IntegerAttr(second, i64)},
            result_types=[TileType.get(dims, tile.element_type)],
        )

    @property
    def dims(self) -> tuple[int, int]:
        """The dimensions that change places."""
        return self.first.value.data, self.second.value.data

    def verify_(self) -> None:
        tile, result = tile_type(self.operand), tile_type(self.result)
        if any(not 0 <= d < len(tile.dims) for d in self.dims):
            raise VerifyException(f"core.transpose: {tile.dims} has no dims {self.dims}")
        if result != TileType.get(swapped(tile.dims, *self.dims), tile.element_type):
            raise VerifyException(f"core.transpose of dims {self.dims} of {tile} is not {result}")


@irdl_op_definition
class SwapHalvesOp(AlongDim):
    """The first and the second half of a dimension of a tile as it is change places."""

    name = "core.swap_halves"
    operand = operand_def(TileType)
    result = result_def(TileType)
    traits = traits_def(Pure())
    assembly_format = "$operand `dim` $dim attr-dict `:` type($operand) `->` type($result)"

    def __init__(self, operand: SSAValue, dim: int) -> None:
        super().__init__(
            operands=[operand],
            properties={"dim": IntegerAttr(dim, i64)},
            result_types=[operand.type],
        )

    def verify_(self) -> None:
        tile, dim = tile_type(self.operand), self.dim_index
        if not 0 <= dim < len(tile.dims) or tile.dims[dim] % 2:
            raise VerifyException(f"core.swap_halves: dim {dim} of {tile} has no halves")
        if self.result.type != tile:
            raise VerifyException("core.swap_halves keeps the type")


def swapped(dims: Sequence[int], first: int, second: int) -> list[int]:
    """The dims with two of them in each other's place."""
    changed = list(dims)
    changed[first], changed[second] = dims[second], dims[first]
    return changed
