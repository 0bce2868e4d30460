"""Views, and the axes that a kernel walks them by, as Triton code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ditron.backends.triton.expressions import LEVELS, ZERO, Values, operand, range_of
from ditron.ir import device
from ditron.plan.expr import Expr, as_expr

# Elements of a buffer from which offsets need 64 bits.
WIDE = 1 << 31


def power_of_two(size: int) -> int:
    """The least power of two that is not smaller."""
    return 1 << max(size - 1, 0).bit_length()


@dataclass(frozen=True)
class Extent:
    """How far a dimension goes: `size` as code, whether that is always `total`, its capacity."""

    size: str
    whole: bool
    total: int


@dataclass(frozen=True)
class Axis:
    """One dimension of a kernel's iteration space.

    Attributes:
        index: the variable with the elements of the current block, counted from the box's start:
            a vector, or a scalar where `block` is 0.
        size: how many elements there are, as code.
        block: elements of a block.
        masked: whether a block may reach beyond the size.
        total: elements that the axis has at most.
        start: the variable with the current block's first element; "" where there is one block.
        swaps: the index of the axis whose halves are in each other's place along this one.
        full: whether blocks along it are whole even of what has one element there: a product's.
    """

    index: str
    size: str
    block: int
    masked: bool
    total: int
    start: str = ""
    full: bool = False
    swaps: str = ""

    @property
    def vector(self) -> bool:
        return self.block > 0

    @property
    def looped(self) -> bool:
        """Whether it takes a loop to walk it."""
        return bool(self.start) or not (self.vector or self.index == "0")


# A dimension of one element.
ONE = Axis("0", "1", 0, masked=False, total=1)

Axes = tuple[Axis, ...]
Frame = tuple[Axis, ...]
"""The vector axes of a block, in the order of its dimensions."""

Place = tuple[str, str]
"""Where a block lies along a dimension of a view, and how that is turned to its shape."""


@dataclass(frozen=True)
class View:
    """A box of a buffer in a kernel.

    Attributes:
        buffer: its name.
        pointer: the variable with its base address, which depends on the task's waits.
        dtype: of the elements.
        offsets: where the box starts.
        sizes: elements along each dimension, as code.
        whole: whether that is the capacity for every task.
        capacity: of the view.
        strides: of the buffer, in elements.
        elements: of the buffer.
        tiles: the variable with its tensor descriptor, where blocks of it are moved by that.
        columns: of a descriptor's block.
        token: what is added to the places of such blocks, for the task's waits; "" without any.
    """

    buffer: str
    pointer: str
    dtype: str
    offsets: tuple[Expr, ...]
    sizes: tuple[str, ...]
    whole: tuple[bool, ...]
    capacity: tuple[int, ...]
    strides: tuple[int, ...]
    elements: int
    tiles: str = ""
    columns: int = 0
    token: str = ""

    def extent(self, d: int) -> Extent:
        """How far it goes along a dimension."""
        return Extent(self.sizes[d], self.whole[d], self.capacity[d])


def strides_of(dims: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides."""
    return tuple(int(np.prod(dims[d + 1 :], dtype=np.int64)) for d in range(len(dims)))


def folded(view: device.ViewOp) -> tuple[tuple[Expr, ...], tuple[int, ...]]:
    """Where a view begins along each of its dimensions, and how far apart elements are there.

    Of the dimensions that are part of one of the buffer's the innermost begins where the box does.
    """
    assert isinstance(view.buffer.type, device.BufferType)
    offsets, strides = view.offset_exprs, strides_of(view.buffer.type.dims)
    fold = view.fold
    if fold is None:
        return tuple(offsets), strides
    inner = {axis: fold.parts(axis)[-1] for axis in set(fold.axes)}
    begins = (offsets[a] if inner[a] == d else as_expr(0) for d, a in enumerate(fold.axes))
    steps = (strides[a] * step for a, step in zip(fold.axes, fold.steps(), strict=True))
    return tuple(begins), tuple(steps)


def unseen(view: device.ViewOp) -> Expr:
    """Elements to where a box begins along dimensions that none of its view's is part of."""
    assert isinstance(view.buffer.type, device.BufferType)
    seen = range(len(view.offsets.data)) if view.fold is None else view.fold.axes
    strides = enumerate(strides_of(view.buffer.type.dims))
    parts = (view.offset_exprs[axis] * stride for axis, stride in strides if axis not in seen)
    return sum(parts, as_expr(0))


def turned(axis: Axis, frame: Frame) -> str:
    """What turns a vector along an axis to a block's shape: `[:, None]`."""
    if not axis.vector or len(frame) < 2:
        return ""
    return f"[{', '.join(':' if a.index == axis.index else 'None' for a in frame)}]"


def places(axes: Sequence[Axis], frame: Frame, dims: Sequence[int]) -> list[Place]:
    """Where a block lies in what has these dimensions; one element stands for a whole axis."""
    return [
        (axis.index, turned(axis, frame)) if size > 1 or axis.full else ("0", "")
        for axis, size in zip(axes, dims, strict=True)
    ]


def address(view: View, where: Sequence[Place], values: Values) -> str:
    """The addresses of a block of a view."""
    terms = [view.pointer]
    for d, (index, turn) in enumerate(where):
        text = _index(view, d, index, values)
        if text is not None:
            stride = view.strides[d]
            terms.append(text + turn if stride == 1 else f"{text}{turn} * {stride}")
    return " + ".join(terms)


def corner(view: View, axes: Sequence[Axis], values: Values) -> str:
    """Where a block of a tensor descriptor begins: `[m * 128, k]`."""
    found: list[list[str]] = []
    for offset, axis in zip(view.offsets, axes, strict=True):
        moves = range_of(offset, values) != ZERO
        found.append([operand(offset, values, LEVELS["+"])] if moves else [])
        found[-1] += [axis.start] if axis.start else []
    if view.token:
        fixed = [place for place, axis in zip(found, axes, strict=True) if not axis.start]
        (fixed or found)[0].append(view.token)
    return f"[{', '.join(' + '.join(place) or '0' for place in found)}]"


def _index(view: View, d: int, index: str, values: Values) -> str | None:
    """`(offset + index)` along a dimension, as an atom; None where that is 0."""
    parts: list[str] = []
    if range_of(view.offsets[d], values) != ZERO:
        parts.append(operand(view.offsets[d], values, LEVELS["+"]))
    if index != "0":
        parts.append(index)
    if not parts or parts == ["0"]:
        return None
    text = " + ".join(parts)
    if view.elements >= WIDE:
        return f"tl.cast({text}, tl.int64)"
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def mask(axes: Sequence[Axis], frame: Frame, dims: Sequence[int] | None = None) -> list[str]:
    """Which elements of a block are inside; nothing where all are.

    Where what has `dims` has one element for a whole axis, that is always inside.
    """
    sizes = dims or [axis.total + 1 for axis in axes]
    return [
        f"({axis.index} < {axis.size}){turned(axis, frame)}"
        for axis, size in zip(axes, sizes, strict=True)
        if axis.masked and axis.vector and (size > 1 or axis.full)
    ]
