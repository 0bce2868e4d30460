"""Tiles of a kernel that is being traced: arithmetic on them adds core ops.

Floats are computed in float32 and rounded where a cast or a store says so. Nothing else is ever
converted: a tile of integers takes integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from xdsl.dialects.builtin import Float32Type
from xdsl.ir import Attribute, Block, Operation, SSAValue

from ditron.errors import DTypeError, ProgramError, ShapeError
from ditron.ir import core
from ditron.ir.attrs import dtype_attr, dtype_name
from ditron.ir.locations import caller_loc
from ditron.plan.callsite import user_line
from ditron.plan.dtypes import DTYPES, DType, Kind, as_dtype
from ditron.plan.spec import show_shape

if TYPE_CHECKING:
    import torch

F32 = Float32Type()
LARGEST_F32 = 2.0**128


@dataclass(frozen=True)
class Axis:
    """A dimension of a tile: its size at most, and the result's dimension that it is a part of."""

    size: int
    cut: int | None = None

    def __str__(self) -> str:
        return str(self.size) if self.cut is None else f"{self.size} of the result's dim {self.cut}"


class Tile:
    """A tile in a kernel that is being traced: what it will hold, not yet its elements."""

    __slots__ = ("axes", "context", "ssa")
    __array_ufunc__ = None  # numpy leaves operators to this class

    def __init__(self, context: Arithmetic, ssa: SSAValue, axes: Sequence[Axis]) -> None:
        self.context, self.ssa, self.axes = context, ssa, tuple(axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """The most that it holds; tiles at the end of a tensor hold less."""
        return core.tile_type(self.ssa).dims

    @property
    def dtype(self) -> DType:
        return DTYPES[dtype_name(core.tile_type(self.ssa).element_type)]

    def __repr__(self) -> str:
        return f"<Tile {show_shape(self.shape)} {self.dtype}>"

    def __bool__(self) -> bool:
        return self.context.refuse(
            ProgramError, "a tile has no elements until it runs, so it is neither true nor false"
        )

    def __add__(self, other: Tile | float) -> Tile:
        return self.context.add(self, other)

    def __radd__(self, other: Tile | float) -> Tile:
        return self.context.add(other, self)

    def __sub__(self, other: Tile | float) -> Tile:
        return self.context.sub(self, other)

    def __rsub__(self, other: Tile | float) -> Tile:
        return self.context.sub(other, self)

    def __mul__(self, other: Tile | float) -> Tile:
        return self.context.mul(self, other)

    def __rmul__(self, other: Tile | float) -> Tile:
        return self.context.mul(other, self)

    def __neg__(self) -> Tile:
        return self.context.sub(0, self)

    def __matmul__(self, other: Tile) -> Tile:
        return self.context.dot(self, other)


class Arithmetic:
    """What a kernel's `k` computes with, while it is traced to `block`."""

    def __init__(self, kernel: str, block: Block) -> None:
        self.kernel, self.block = kernel, block
        self.called_at = user_line()

    def add(self, a: Tile | float, b: Tile | float) -> Tile:
        """`a + b`; dimensions of size 1 broadcast, and so do missing leading ones."""
        return self._binary(core.AddOp, a, b)

    def sub(self, a: Tile | float, b: Tile | float) -> Tile:
        """`a - b`, as `add`."""
        return self._binary(core.SubOp, a, b)

    def mul(self, a: Tile | float, b: Tile | float) -> Tile:
        """`a * b`, element by element, as `add`."""
        return self._binary(core.MulOp, a, b)

    def silu(self, x: Tile) -> Tile:
        """`x * sigmoid(x)`."""
        return self._unary(core.SiluOp, x)

    def gelu(self, x: Tile) -> Tile:
        """`x * Phi(x)`, Phi the normal distribution function (not the tanh form)."""
        return self._unary(core.GeluOp, x)

    def relu(self, x: Tile) -> Tile:
        """`max(x, 0)`."""
        return self._unary(core.ReluOp, x)

    def exp(self, x: Tile) -> Tile:
        """`e ** x`."""
        return self._unary(core.ExpOp, x)

    def cast(self, x: Tile, dtype: DType | torch.dtype) -> Tile:
        """The same elements rounded to another dtype."""
        tile = self._tile("cast", x)
        try:
            element = dtype_attr(as_dtype(dtype).name)
        except DTypeError as error:
            self.refuse(DTypeError, error.message)
        return Tile(self, self._cast(tile, element), tile.axes)

    def dot(self, a: Tile, b: Tile, *, transpose_b: bool = False) -> Tile:
        """`a [m, k] @ b [k, n]` (or b [n, k] if `transpose_b`), accumulated in float32."""
        lhs, rhs = self._tile("dot", a), self._tile("dot", b)
        what = f"dot of {lhs!r} and {rhs!r}"
        if len(lhs.axes) != 2 or len(rhs.axes) != 2:
            self.refuse(ShapeError, f"{what}: expected two matrices")
        if lhs.dtype != rhs.dtype or lhs.dtype.kind is not Kind.FLOAT:
            self.refuse(DTypeError, f"{what}: expected one float dtype; cast one of them")
        n, inner = rhs.axes if transpose_b else rhs.axes[::-1]
        if lhs.axes[1] != inner:
            self.refuse(
                ShapeError,
                f"{what}: it sums over {lhs.axes[1]} of the one and {inner} of the other, which"
                f" must agree",
            )
        if inner.cut is not None:
            self.refuse(
                ShapeError,
                f"{what}: a kernel cannot sum over a dimension that its tiles cut; load it whole,"
                f" with index 0 and the dimension's size as its block",
            )
        op = core.DotOp(lhs.ssa, rhs.ssa, transpose_b=transpose_b)
        return Tile(self, self.emit(op), (lhs.axes[0], n))

    def refuse(self, kind: type[ProgramError], message: str) -> NoReturn:
        """Raise an error at the user's line, which names the kernel and where it is called."""
        where = user_line()
        at = f", called at {self.called_at}" if self.called_at != where else ""
        text = f"kernel {self.kernel}{at}: {message}"
        raise kind(text, where)

    def emit(self, op: Operation) -> SSAValue:
        """Append an op, with the user's line as its location."""
        op.location = caller_loc()
        self.block.add_op(op)
        return op.results[0]

    def rounded(self, tile: Tile, element: Attribute) -> SSAValue:
        """A tile as it is stored: floats are rounded to other floats.

        Raises:
            DTypeError: it would have to be converted otherwise.
        """
        to = DTYPES[dtype_name(element)]
        if tile.dtype != to and not (tile.dtype.kind is to.kind is Kind.FLOAT):
            self.refuse(DTypeError, f"{tile!r} does not go into {to}: cast it first")
        return self._cast(tile, element)

    def _cast(self, tile: Tile, element: Attribute) -> SSAValue:
        if core.tile_type(tile.ssa).element_type == element:
            return tile.ssa
        return self.emit(core.CastOp(tile.ssa, element))

    def _unary(self, op: type[core.UnaryOp], x: Tile) -> Tile:
        name = op.name.partition(".")[2]
        tile = self._tile(name, x)
        kinds = (Kind.FLOAT, Kind.INT) if op is core.ReluOp else (Kind.FLOAT,)
        if tile.dtype.kind not in kinds:
            self.refuse(DTypeError, f"{name} takes {' or '.join(kinds)} tiles, got {tile!r}")
        return Tile(self, self.emit(op(self._widened(tile))), tile.axes)

    def _binary(self, op: type[core.BinaryOp], a: Tile | float, b: Tile | float) -> Tile:
        name = op.name.partition(".")[2]
        x, y = self._operands(name, a, b)
        if x.dtype.kind is Kind.BOOL or (x.dtype.kind, y.dtype.kind).count(Kind.FLOAT) == 1:
            self.refuse(DTypeError, f"{name} of {x!r} and {y!r}: cast one of them first")
        if x.dtype.kind is Kind.INT and x.dtype != y.dtype:
            self.refuse(DTypeError, f"{name} of {x!r} and {y!r}: cast one of them first")
        ndim = max(len(x.axes), len(y.axes))
        x, y = (self._expanded(tile, ndim) for tile in (x, y))
        axes = [self._broadcast(name, (x, y), pair) for pair in zip(x.axes, y.axes, strict=True)]
        return Tile(self, self.emit(op(self._widened(x), self._widened(y))), axes)

    def _operands(self, name: str, a: Tile | float, b: Tile | float) -> tuple[Tile, Tile]:
        """Both as tiles; a number in the dtype of the other."""
        if isinstance(a, Tile):
            x = self._tile(name, a)
            return x, self._tile(name, b) if isinstance(b, Tile) else self._constant(name, b, x)
        y = self._tile(name, b)
        return self._constant(name, a, y), y

    def _tile(self, name: str, x: object) -> Tile:
        if not isinstance(x, Tile):
            self.refuse(ProgramError, f"{name} takes tiles, got {x!r}: load it first")
        if x.context is not self:
            self.refuse(ProgramError, f"{name} of a tile of kernel {x.context.kernel}")
        return x

    def _constant(self, name: str, number: object, beside: Tile) -> Tile:
        if isinstance(number, bool) or not isinstance(number, int | float):
            self.refuse(ProgramError, f"{name} takes tiles and numbers, got {number!r}")
        element: Attribute = F32
        if beside.dtype.kind is not Kind.FLOAT:
            if not math.isfinite(number) or int(number) != number:
                self.refuse(DTypeError, f"{name} of {beside!r} and {number}: cast the tile first")
            element = dtype_attr(beside.dtype.name)
        limit = 2 ** (8 * beside.dtype.bytes - 1) if element != F32 else LARGEST_F32
        if math.isfinite(number) and abs(number) >= limit:
            self.refuse(DTypeError, f"{name} of {beside!r} and {number}: it does not fit")
        op = core.ConstantOp(number, element, len(beside.axes))
        return Tile(self, self.emit(op), [Axis(1)] * len(beside.axes))

    def _expanded(self, tile: Tile, ndim: int) -> Tile:
        added = ndim - len(tile.axes)
        if not added:
            return tile
        op = core.ExpandDimsOp(tile.ssa, ndim)
        return Tile(self, self.emit(op), [Axis(1)] * added + list(tile.axes))

    def _widened(self, tile: Tile) -> SSAValue:
        """In the dtype that it is computed in: float32, or its own integers."""
        return self._cast(tile, F32) if tile.dtype.kind is Kind.FLOAT else tile.ssa

    def _broadcast(self, name: str, tiles: tuple[Tile, Tile], pair: tuple[Axis, Axis]) -> Axis:
        a, b = pair
        if a == b or b == Axis(1):
            return a
        if a == Axis(1):
            return b
        x, y = tiles
        return self.refuse(ShapeError, f"{name} of {x!r} and {y!r}: {a} does not go with {b}")
