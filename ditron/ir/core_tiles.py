"""Views and tiles, and the core ops between the two: what a kernel reads and writes."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, IntAttr, IntegerAttr, i32, i64
from xdsl.ir import Attribute, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect
from xdsl.utils.exceptions import VerifyException

from ditron.ir.attrs import dtype_name
from ditron.ir.effects import ReadsAndWrites


class Shaped(ParametrizedAttribute, TypeAttribute):
    """`<128x64xbf16>`: a static shape and an element type."""

    shape: ArrayAttr[IntAttr]
    element_type: Attribute

    @property
    def dims(self) -> tuple[int, ...]:
        return tuple(d.data for d in self.shape)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            shape, element = parser.parse_ranked_shape()
        return (ArrayAttr([IntAttr(d) for d in shape]), element)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_dimension_list(self.dims)
            printer.print_string("x")
            printer.print_attribute(self.element_type)

    def verify(self) -> None:
        if not self.shape.data or any(d.data < 1 for d in self.shape):
            raise VerifyException(f"tile dimensions must be static and positive, got {self.dims}")
        dtype_name(self.element_type)


@irdl_attr_definition
class ViewType(Shaped):
    """A box of a buffer; the shape is its capacity, clipped at run time."""

    name = "core.view"
    shape: ArrayAttr[IntAttr]
    element_type: Attribute

    @staticmethod
    def get(dims: Sequence[int], element: Attribute) -> ViewType:
        return ViewType(ArrayAttr([IntAttr(d) for d in dims]), element)


@irdl_attr_definition
class TileType(Shaped):
    """A tile held in registers or shared memory."""

    name = "core.tile"
    shape: ArrayAttr[IntAttr]
    element_type: Attribute

    @staticmethod
    def get(dims: Sequence[int], element: Attribute) -> TileType:
        return TileType(ArrayAttr([IntAttr(d) for d in dims]), element)


def tile_type(value: SSAValue) -> TileType:
    """The type of a tile value."""
    assert isinstance(value.type, TileType)
    return value.type


@irdl_op_definition
class LoadOp(IRDLOperation):
    """Read a whole view into a tile."""

    name = "core.load"
    view = operand_def(ViewType)
    result = result_def(TileType)
    traits = traits_def(MemoryReadEffect())
    assembly_format = "$view attr-dict `:` type($view) `->` type($result)"

    def __init__(self, view: SSAValue) -> None:
        assert isinstance(view.type, ViewType)
        result = TileType(view.type.shape, view.type.element_type)
        super().__init__(operands=[view], result_types=[result])

    def verify_(self) -> None:
        _same(self, self.view.type, self.result.type)


@irdl_op_definition
class StoreOp(IRDLOperation):
    """Write a tile over a whole view."""

    name = "core.store"
    tile = operand_def(TileType)
    view = operand_def(ViewType)
    traits = traits_def(MemoryWriteEffect())
    assembly_format = "$tile `,` $view attr-dict `:` type($tile) `,` type($view)"

    def __init__(self, tile: SSAValue, view: SSAValue) -> None:
        super().__init__(operands=[tile, view])

    def verify_(self) -> None:
        _same(self, self.tile.type, self.view.type)


def _same(op: IRDLOperation, a: Attribute, b: Attribute) -> None:
    assert isinstance(a, Shaped)
    assert isinstance(b, Shaped)
    if (a.dims, a.element_type) != (b.dims, b.element_type):
        raise VerifyException(f"{op.name}: {a} and {b} do not hold the same tile")


@irdl_op_definition
class GatherOp(IRDLOperation):
    """Rows of a view [V, D] by the ids in a tile [...]: a tile [..., D]; zeros for an id beyond."""

    name = "core.gather"
    view = operand_def(ViewType)
    ids = operand_def(TileType)
    result = result_def(TileType)
    traits = traits_def(MemoryReadEffect())
    assembly_format = (
        "$view `[` $ids `]` attr-dict `:` type($view) `,` type($ids) `->` type($result)"
    )

    def __init__(self, view: SSAValue, ids: SSAValue) -> None:
        assert isinstance(view.type, ViewType)
        dims = (*tile_type(ids).dims, *view.type.dims[1:])
        result = TileType.get(dims, view.type.element_type)
        super().__init__(operands=[view, ids], result_types=[result])

    def verify_(self) -> None:
        table, ids, result = self.view.type, tile_type(self.ids), tile_type(self.result)
        assert isinstance(table, ViewType)
        if len(table.dims) != 2 or result.dims != (*ids.dims, table.dims[-1]):
            raise VerifyException(f"core.gather: {table} by {ids} does not make {result}")
        if table.element_type != result.element_type or not _is_integer(ids):
            raise VerifyException(f"core.gather takes integer ids and keeps the rows' type: {ids}")


class AlongDim(IRDLOperation):
    """Works along one dimension of a tile or view."""

    dim = prop_def(IntegerAttr.constr(i64))

    @property
    def dim_index(self) -> int:
        return self.dim.value.data


class AtOp(AlongDim):
    """Touches part of `dim` of a view, from the number in the tile `at` on."""

    view = operand_def(ViewType)
    at = operand_def(TileType)

    @property
    def part(self) -> SSAValue:
        """The tile that is part of the view."""
        return self.operands[0] if isinstance(self, StoreAtOp) else self.results[0]

    def check(self, tile: TileType) -> None:
        """Raise unless the tile is such a part, and `at` one integer."""
        view, at = self.view.type, tile_type(self.at)
        assert isinstance(view, ViewType)
        dims = zip(tile.dims, view.dims, strict=False)
        beyond = isinstance(self, StoreAtOp)  # is left out
        fits = len(tile.dims) == len(view.dims) and all(
            beyond or mine <= whole if d == self.dim_index else mine == whole
            for d, (mine, whole) in enumerate(dims)
        )
        if not fits or not 0 <= self.dim_index < len(view.dims):
            raise VerifyException(f"{self.name}: {tile} is no part of {view} along its dim")
        if tile.element_type != view.element_type:
            raise VerifyException(f"{self.name}: {tile} and {view} are of one element type")
        if at.dims != (1,) or not _is_integer(at):
            raise VerifyException(f"{self.name} begins at one integer, got {at}")


@irdl_op_definition
class LoadAtOp(AtOp):
    """Read as many elements of `dim` as the result has, from `at` on; they lie in the view."""

    name = "core.load_at"
    result = result_def(TileType)
    traits = traits_def(MemoryReadEffect())
    assembly_format = (
        "$view `[` $at `]` `dim` $dim attr-dict `:` type($view) `,` type($at) `->` type($result)"
    )

    def __init__(self, view: SSAValue, at: SSAValue, dim: int, size: int) -> None:
        assert isinstance(view.type, ViewType)
        dims = [size if d == dim else whole for d, whole in enumerate(view.type.dims)]
        super().__init__(
            operands=[view, at],
            properties={"dim": IntegerAttr(dim, i64)},
            result_types=[TileType.get(dims, view.type.element_type)],
        )

    def verify_(self) -> None:
        self.check(tile_type(self.result))


@irdl_op_definition
class StoreAtOp(AtOp):
    """Write a tile over part of `dim`, from `at` on; what of it is beyond the view is left out."""

    name = "core.store_at"
    tile = operand_def(TileType)
    traits = traits_def(ReadsAndWrites())
    assembly_format = (
        "$tile `,` $view `[` $at `]` `dim` $dim attr-dict"
        " `:` type($tile) `,` type($view) `,` type($at)"
    )

    def __init__(self, tile: SSAValue, view: SSAValue, at: SSAValue, dim: int) -> None:
        super().__init__(operands=[tile, view, at], properties={"dim": IntegerAttr(dim, i64)})

    def verify_(self) -> None:
        self.check(tile_type(self.tile))


def _is_integer(tile: Shaped) -> bool:
    return tile.element_type in (i32, i64)
