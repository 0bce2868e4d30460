"""core: kernels on one tile, straight-line code on static shapes.

A `core.func` gets views (boxes of buffers, clipped at run time to what is really there) and loads,
computes on and stores tiles. It can touch nothing but its views, which is what the proofs rest on.

    core.func @matmul(%a: !core.view<128x64xbf16>, %b: !core.view<64x256xbf16>, ...) {
      %0 = core.load %a : !core.view<128x64xbf16>
      ...
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack, unpack

from xdsl.dialects.builtin import (
    ArrayAttr,
    Float32Type,
    FloatAttr,
    FunctionType,
    IntAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    SymbolNameConstraint,
    UnitAttr,
    i32,
    i64,
)
from xdsl.ir import (
    Attribute,
    Block,
    Dialect,
    ParametrizedAttribute,
    Region,
    SSAValue,
    TypeAttribute,
)
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.traits import (
    IsolatedFromAbove,
    MemoryReadEffect,
    MemoryWriteEffect,
    NoTerminator,
    Pure,
    SymbolOpInterface,
)
from xdsl.utils.exceptions import VerifyException

from ditron.ir.attrs import dtype_name


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
class DotOp(IRDLOperation):
    """`lhs [m, k] @ rhs [k, n]` (`rhs [n, k]` with transpose_b), accumulated in float32."""

    name = "core.dot"
    lhs = operand_def(TileType)
    rhs = operand_def(TileType)
    transpose_b = opt_prop_def(UnitAttr)
    result = result_def(TileType)
    traits = traits_def(Pure())
    assembly_format = (
        "$lhs `,` $rhs (`transpose_b` $transpose_b^)? attr-dict"
        " `:` type($lhs) `,` type($rhs) `->` type($result)"
    )

    def __init__(self, lhs: SSAValue, rhs: SSAValue, *, transpose_b: bool = False) -> None:
        b = tile_type(rhs).dims
        dims = (tile_type(lhs).dims[0], b[0] if transpose_b else b[1])
        super().__init__(
            operands=[lhs, rhs],
            result_types=[TileType.get(dims, Float32Type())],
            properties={"transpose_b": UnitAttr() if transpose_b else None},
        )

    def verify_(self) -> None:
        a, b = tile_type(self.lhs).dims, tile_type(self.rhs).dims
        c = tile_type(self.result)
        if len(a) != 2 or len(b) != 2:
            raise VerifyException(f"core.dot multiplies matrices, got {a} and {b}")
        if self.transpose_b is not None:
            b = b[::-1]
        if a[1] != b[0] or c.dims != (a[0], b[1]):
            raise VerifyException(f"core.dot shapes do not agree: {a} @ {b} -> {c.dims}")
        element, other = tile_type(self.lhs).element_type, tile_type(self.rhs).element_type
        if element != other or isinstance(element, IntegerType):
            raise VerifyException(f"core.dot takes one float type, got {element} and {other}")
        if not isinstance(c.element_type, Float32Type):
            raise VerifyException("core.dot accumulates in f32")


@irdl_op_definition
class CastOp(IRDLOperation):
    """Convert each element, rounding to nearest even."""

    name = "core.cast"
    operand = operand_def(TileType)
    result = result_def(TileType)
    traits = traits_def(Pure())
    assembly_format = "$operand attr-dict `:` type($operand) `->` type($result)"

    def __init__(self, operand: SSAValue, element: Attribute) -> None:
        result = TileType(tile_type(operand).shape, element)
        super().__init__(operands=[operand], result_types=[result])

    def verify_(self) -> None:
        if tile_type(self.operand).dims != tile_type(self.result).dims:
            raise VerifyException("core.cast keeps the shape")


@irdl_op_definition
class ConstantOp(IRDLOperation):
    """One number as a tile of size 1 in every dimension, so that it broadcasts."""

    name = "core.constant"
    value = prop_def(FloatAttr | IntegerAttr)
    result = result_def(TileType)
    traits = traits_def(Pure())
    assembly_format = "$value attr-dict `->` type($result)"

    def __init__(self, value: float, element: Attribute, ndim: int) -> None:
        number: Attribute
        if element in (i32, i64):
            number = IntegerAttr(int(value), i64 if element == i64 else i32)
        else:
            number = FloatAttr(unpack("f", pack("f", value))[0], Float32Type())
        result = TileType.get([1] * ndim, element)
        super().__init__(properties={"value": number}, result_types=[result])

    @property
    def number(self) -> float:
        return self.value.value.data

    def verify_(self) -> None:
        tile = tile_type(self.result)
        if any(d != 1 for d in tile.dims):
            raise VerifyException(f"core.constant is of size 1 in every dimension, got {tile.dims}")
        if tile.element_type != self.value.type or dtype_name(tile.element_type) == "bool":
            raise VerifyException(f"core.constant: {self.value} is no element of {tile}")


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


class BinaryOp(IRDLOperation):
    """Elementwise, with size-1 dimensions broadcast; one element type throughout."""

    lhs = operand_def(TileType)
    rhs = operand_def(TileType)
    result = result_def(TileType)
    traits = traits_def(Pure())
    assembly_format = "$lhs `,` $rhs attr-dict `:` type($lhs) `,` type($rhs) `->` type($result)"

    def __init__(self, lhs: SSAValue, rhs: SSAValue) -> None:
        a, b = tile_type(lhs), tile_type(rhs)
        dims = [max(p, q) for p, q in zip(a.dims, b.dims, strict=True)]
        super().__init__(operands=[lhs, rhs], result_types=[TileType.get(dims, a.element_type)])

    def verify_(self) -> None:
        a, b, c = tile_type(self.lhs), tile_type(self.rhs), tile_type(self.result)
        if not a.element_type == b.element_type == c.element_type:
            raise VerifyException(f"{self.name} takes one element type, cast first")
        fits = len(a.dims) == len(b.dims) == len(c.dims) and all(
            z == max(x, y) and min(x, y) in (1, z)
            for x, y, z in zip(a.dims, b.dims, c.dims, strict=True)
        )
        if not fits:
            raise VerifyException(f"{self.name} shapes do not agree: {a.dims}, {b.dims}")


@irdl_op_definition
class AddOp(BinaryOp):
    name = "core.add"


@irdl_op_definition
class SubOp(BinaryOp):
    name = "core.sub"


@irdl_op_definition
class MulOp(BinaryOp):
    name = "core.mul"


class UnaryOp(IRDLOperation):
    """Elementwise on floats."""

    operand = operand_def(TileType)
    result = result_def(TileType)
    traits = traits_def(Pure())
    assembly_format = "$operand attr-dict `:` type($operand) `->` type($result)"

    def __init__(self, operand: SSAValue) -> None:
        super().__init__(operands=[operand], result_types=[operand.type])

    def verify_(self) -> None:
        if self.operand.type != self.result.type:
            raise VerifyException(f"{self.name} keeps the type")
        element = tile_type(self.operand).element_type
        if isinstance(element, IntegerType) and not isinstance(self, ReluOp):
            raise VerifyException(f"{self.name} takes floats, got {element}")


@irdl_op_definition
class SiluOp(UnaryOp):
    name = "core.silu"


@irdl_op_definition
class GeluOp(UnaryOp):
    """Gelu by the error function, not its tanh approximation."""

    name = "core.gelu"


@irdl_op_definition
class ReluOp(UnaryOp):
    name = "core.relu"


@irdl_op_definition
class ExpOp(UnaryOp):
    name = "core.exp"


@irdl_op_definition
class FuncOp(IRDLOperation):
    """A kernel: one program a tile. Its arguments are views."""

    name = "core.func"
    sym_name = prop_def(SymbolNameConstraint())
    body = region_def("single_block")
    traits = traits_def(SymbolOpInterface(), IsolatedFromAbove(), NoTerminator())

    def __init__(self, name: str, body: Region) -> None:
        super().__init__(properties={"sym_name": StringAttr(name)}, regions=[body])

    @staticmethod
    def empty(name: str, views: Sequence[ViewType]) -> FuncOp:
        """A kernel with its arguments and no code yet."""
        return FuncOp(name, Region(Block(arg_types=views)))

    @property
    def kernel_name(self) -> str:
        return self.sym_name.data

    @property
    def view_types(self) -> tuple[ViewType, ...]:
        types = self.body.block.arg_types
        return tuple(t for t in types if isinstance(t, ViewType))

    @property
    def function_type(self) -> FunctionType:
        return FunctionType.from_lists(list(self.body.block.arg_types), [])

    def reads(self, arg: int) -> bool:
        """Whether argument `arg` is loaded from."""
        return any(isinstance(u.operation, LoadOp) for u in self.body.block.args[arg].uses)

    def writes(self, arg: int) -> bool:
        """Whether argument `arg` is stored to."""
        return any(isinstance(u.operation, StoreOp) for u in self.body.block.args[arg].uses)

    def verify_(self) -> None:
        for arg in self.body.block.args:
            if not isinstance(arg.type, ViewType):
                raise VerifyException(f"a kernel's arguments are views, got {arg.type}")
        for op in self.body.block.ops:
            if not isinstance(op, KERNEL_OPS):
                raise VerifyException(f"{op.name} cannot stand in a core.func")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.kernel_name)
        with printer.in_parens():
            printer.print_list(self.body.block.args, printer.print_block_argument)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False, print_empty_block=False)

    @classmethod
    def parse(cls, parser: Parser) -> FuncOp:
        name = parser.parse_symbol_name()
        args = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_argument)
        return cls(name.data, parser.parse_region(args))


KERNEL_OPS = (LoadOp, StoreOp, ConstantOp, ExpandDimsOp, DotOp, CastOp, BinaryOp, UnaryOp)

Core = Dialect(
    "core",
    [
        FuncOp,
        LoadOp,
        StoreOp,
        ConstantOp,
        ExpandDimsOp,
        DotOp,
        CastOp,
        AddOp,
        SubOp,
        MulOp,
        SiluOp,
        GeluOp,
        ReluOp,
        ExpOp,
    ],
    [ViewType, TileType],
)
