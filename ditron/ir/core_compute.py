"""Core ops that compute on tiles."""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack, unpack

from xdsl.dialects.builtin import (
    Float32Type,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    UnitAttr,
    i1,
    i32,
    i64,
)
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from ditron.ir.attrs import dtype_name
from ditron.ir.core_tiles import AlongDim, TileType, tile_type


@irdl_op_definition
class DotOp(IRDLOperation):
    """`lhs [..., m, k] @ rhs [..., k, n]` (`rhs [..., n, k]` with transpose_b), in float32.

    Dimensions before the last two broadcast where they are 1.
    """

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
        a = tile_type(lhs).dims
        stack = map(max, a[:-2], b[:-2])
        dims = (*stack, a[-2], b[-2] if transpose_b else b[-1])
        super().__init__(
            operands=[lhs, rhs],
            result_types=[TileType.get(dims, Float32Type())],
            properties={"transpose_b": UnitAttr() if transpose_b else None},
        )

    def verify_(self) -> None:
        a, b = tile_type(self.lhs).dims, tile_type(self.rhs).dims
        c = tile_type(self.result)
        if len(a) < 2 or len(a) != len(b):
            raise VerifyException(f"core.dot multiplies matrices, got {a} and {b}")
        k, n = b[:-3:-1] if self.transpose_b is not None else b[-2:]
        stack = [
            max(x, y) for x, y in zip(a[:-2], b[:-2], strict=True) if min(x, y) in (1, max(x, y))
        ]
        if a[-1] != k or c.dims != (*stack, a[-2], n):
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
class IndexOp(IRDLOperation):
    """An index that the kernel is called with, as a tile of size 1 in every dimension."""

    name = "core.index"
    index = operand_def(IndexType)
    result = result_def(TileType)
    traits = traits_def(Pure())
    assembly_format = "$index attr-dict `->` type($result)"

    def __init__(self, index: SSAValue, element: Attribute, ndim: int) -> None:
        super().__init__(operands=[index], result_types=[TileType.get([1] * ndim, element)])

    def verify_(self) -> None:
        tile = tile_type(self.result)
        if any(d != 1 for d in tile.dims) or tile.element_type not in (i32, i64):
            raise VerifyException(f"core.index makes one integer, got {tile}")


@irdl_op_definition
class IotaOp(AlongDim):
    """0, 1, 2, ... along a dimension of a tile as it is; of size 1 in the others."""

    name = "core.iota"
    operand = operand_def(TileType)
    result = result_def(TileType)
    traits = traits_def(Pure())
    assembly_format = "$operand `dim` $dim attr-dict `:` type($operand) `->` type($result)"

    def __init__(self, operand: SSAValue, dim: int, element: Attribute = i32) -> None:
        dims = [size if d == dim else 1 for d, size in enumerate(tile_type(operand).dims)]
        super().__init__(
            operands=[operand],
            properties={"dim": IntegerAttr(dim, i64)},
            result_types=[TileType.get(dims, element)],
        )

    def verify_(self) -> None:
        tile, like = tile_type(self.result), tile_type(self.operand).dims
        dims = tuple(size if d == self.dim_index else 1 for d, size in enumerate(like))
        if not 0 <= self.dim_index < len(like) or tile.dims != dims:
            raise VerifyException(f"core.iota along dim {self.dim_index} of {like} is not {tile}")
        if tile.element_type not in (i32, i64):
            raise VerifyException(f"core.iota makes integers, got {tile}")


class ReduceOp(AlongDim):
    """One element for all along a dimension, which stays, of size 1; of f32 or integers."""

    operand = operand_def(TileType)
    result = result_def(TileType)
    traits = traits_def(Pure())
    assembly_format = "$operand `dim` $dim attr-dict `:` type($operand) `->` type($result)"

    def __init__(self, operand: SSAValue, dim: int) -> None:
        tile = tile_type(operand)
        dims = [1 if d == dim else size for d, size in enumerate(tile.dims)]
        super().__init__(
            operands=[operand],
            properties={"dim": IntegerAttr(dim, i64)},
            result_types=[TileType.get(dims, tile.element_type)],
        )

    def verify_(self) -> None:
        tile, result = tile_type(self.operand), tile_type(self.result)
        dims = tuple(1 if d == self.dim_index else size for d, size in enumerate(tile.dims))
        if not 0 <= self.dim_index < len(tile.dims) or result.dims != dims:
            raise VerifyException(
                f"{self.name} along dim {self.dim_index} of {tile} is not {result}"
            )
        if tile.element_type != result.element_type:
            raise VerifyException(f"{self.name} keeps the element type: {tile} and {result}")
        if tile.element_type not in (Float32Type(), i32, i64):
            raise VerifyException(f"{self.name} is of f32 or integers, cast first: {tile}")


@irdl_op_definition
class SumOp(ReduceOp):
    name = "core.sum"


@irdl_op_definition
class MaxOp(ReduceOp):
    """NaN is larger than any number."""

    name = "core.max"


@irdl_op_definition
class ArgmaxOp(AlongDim):
    """The label of the first of the largest along a dimension, which stays, of size 1.

    Labels are of the operand's sizes, or 1 beside the dimension.
    """

    name = "core.argmax"
    operand = operand_def(TileType)
    labels = operand_def(TileType)
    result = result_def(TileType)
    traits = traits_def(Pure())
    assembly_format = (
        "$operand `labels` $labels `dim` $dim attr-dict"
        " `:` type($operand) `,` type($labels) `->` type($result)"
    )

    def __init__(self, operand: SSAValue, labels: SSAValue, dim: int) -> None:
        dims = [1 if d == dim else size for d, size in enumerate(tile_type(operand).dims)]
        super().__init__(
            operands=[operand, labels],
            properties={"dim": IntegerAttr(dim, i64)},
            result_types=[TileType.get(dims, tile_type(labels).element_type)],
        )

    def verify_(self) -> None:
        tile, labels, result = (tile_type(v) for v in (*self.operands, self.result))
        dims = tuple(1 if d == self.dim_index else size for d, size in enumerate(tile.dims))
        if not 0 <= self.dim_index < len(tile.dims) or result.dims != dims:
            raise VerifyException(
                f"core.argmax along dim {self.dim_index} of {tile} is not {result}"
            )
        if labels.element_type != result.element_type or labels.element_type not in (i32, i64):
            raise VerifyException(f"core.argmax has integer labels, got {labels} for {result}")
        if tile.dims[self.dim_index] != labels.dims[self.dim_index]:
            raise VerifyException(f"core.argmax: {labels} do not label {tile}")
        check_broadcast(self, [tile, labels], tile)


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
        check_broadcast(self, [a, b], c)


def check_broadcast(op: IRDLOperation, tiles: Sequence[TileType], result: TileType) -> None:
    """Raise unless tiles of these sizes, or 1, make the result."""
    ndims = {len(t.dims) for t in (*tiles, result)}
    columns = zip(result.dims, *(t.dims for t in tiles), strict=False)
    if len(ndims) > 1 or any(z != max(sizes) or {*sizes} - {1, z} for z, *sizes in columns):
        came = ", ".join(str(t.dims) for t in tiles)
        raise VerifyException(f"{op.name} shapes do not agree: {came}")


@irdl_op_definition
class AddOp(BinaryOp):
    name = "core.add"


@irdl_op_definition
class SubOp(BinaryOp):
    name = "core.sub"


@irdl_op_definition
class MulOp(BinaryOp):
    name = "core.mul"


@irdl_op_definition
class DivOp(BinaryOp):
    name = "core.div"


@irdl_op_definition
class LeOp(IRDLOperation):
    """`lhs <= rhs` element by element, size-1 dimensions broadcast: a tile of bools."""

    name = "core.le"
    lhs = operand_def(TileType)
    rhs = operand_def(TileType)
    result = result_def(TileType)
    traits = traits_def(Pure())
    assembly_format = "$lhs `,` $rhs attr-dict `:` type($lhs) `,` type($rhs) `->` type($result)"

    def __init__(self, lhs: SSAValue, rhs: SSAValue) -> None:
        dims = map(max, tile_type(lhs).dims, tile_type(rhs).dims)
        super().__init__(operands=[lhs, rhs], result_types=[TileType.get([*dims], i1)])

    def verify_(self) -> None:
        a, b, c = tile_type(self.lhs), tile_type(self.rhs), tile_type(self.result)
        if a.element_type != b.element_type or c.element_type != i1:
            raise VerifyException(f"{self.name} compares one element type and makes bools")
        check_broadcast(self, [a, b], c)


@irdl_op_definition
class WhereOp(IRDLOperation):
    """`lhs` where the condition holds, else `rhs`; size-1 dimensions broadcast."""

    name = "core.where"
    condition = operand_def(TileType)
    lhs = operand_def(TileType)
    rhs = operand_def(TileType)
    result = result_def(TileType)
    traits = traits_def(Pure())
    assembly_format = (
        "$condition `,` $lhs `,` $rhs attr-dict"
        " `:` type($condition) `,` type($lhs) `,` type($rhs) `->` type($result)"
    )

    def __init__(self, condition: SSAValue, lhs: SSAValue, rhs: SSAValue) -> None:
        tiles = [tile_type(v) for v in (condition, lhs, rhs)]
        dims = [max(sizes) for sizes in zip(*(t.dims for t in tiles), strict=True)]
        result = TileType.get(dims, tiles[1].element_type)
        super().__init__(operands=[condition, lhs, rhs], result_types=[result])

    def verify_(self) -> None:
        condition, a, b = (tile_type(v) for v in (self.condition, self.lhs, self.rhs))
        result = tile_type(self.result)
        one = a.element_type == b.element_type == result.element_type
        if condition.element_type != i1 or not one:
            raise VerifyException(f"{self.name} takes bools and two tiles of one element type")
        check_broadcast(self, [condition, a, b], result)


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
class RsqrtOp(UnaryOp):
    """`1 / sqrt(x)`."""

    name = "core.rsqrt"
