"""Views and the axes that a kernel walks them by, as Triton code."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ditron.backends.triton.expressions import LEVELS, ZERO, Values, operand, range_of
from ditron.plan.expr import Expr

# Elements of a buffer from which offsets need 64 bits.
WIDE = 1 << 31


def power_of_two(size: int) -> int:
    """The least power of two that is not smaller."""
    return 1 << max(size - 1, 0).bit_length()


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
        start: the variable with the current block's first element; "" for 0.
    """

    index: str
    size: str
    block: int
    masked: bool
    total: int
    start: str = ""

    @property
    def vector(self) -> bool:
        return self.block > 0


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


def strides_of(dims: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides."""
    return tuple(int(np.prod(dims[d + 1 :], dtype=np.int64)) for d in range(len(dims)))


def address(view: View, axes: list[Axis], values: Values, *, broadcast: bool = True) -> str:
    """The addresses of a block of a view; `axes` go with its dimensions.

    A dimension of capacity 1 stands for the whole axis when it may `broadcast`.
    """
    terms = [view.pointer]
    vectors = [a for a in axes if a.vector]
    for d, axis in enumerate(axes):
        one = broadcast and view.capacity[d] == 1
        index = _index(view, d, None if one else axis.index, values)
        if index is None:
            continue
        if not one and axis.vector and len(vectors) > 1:
            index += "[:, None]" if axis is vectors[0] else "[None, :]"
        stride = view.strides[d]
        terms.append(index if stride == 1 else f"{index} * {stride}")
    return " + ".join(terms)


def corner(view: View, axes: list[Axis], values: Values) -> str:
    """Where a block of a tensor descriptor begins: `[m * 128, k]`."""
    places: list[list[str]] = []
    for offset, axis in zip(view.offsets, axes, strict=True):
        moves = range_of(offset, values) != ZERO
        places.append([operand(offset, values, LEVELS["+"])] if moves else [])
        places[-1] += [axis.start] if axis.start else []
    if view.token:
        fixed = [place for place, axis in zip(places, axes, strict=True) if not axis.start]
        (fixed or places)[0].append(view.token)
    return f"[{', '.join(' + '.join(place) or '0' for place in places)}]"


def _index(view: View, d: int, index: str | None, values: Values) -> str | None:
    """`(offset + index)` along a dimension, as an atom; None where that is 0."""
    parts: list[str] = []
    if range_of(view.offsets[d], values) != ZERO:
        parts.append(operand(view.offsets[d], values, LEVELS["+"]))
    if index is not None:
        parts.append(index)
    if not parts or parts == ["0"]:
        return None
    text = " + ".join(parts)
    if view.elements >= WIDE:
        return f"({text}).to(tl.int64)"
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def mask(axes: list[Axis], view: View | None = None) -> str | None:
    """Which elements of a block are inside, or None where all are.

    A dimension of the view that stands for a whole axis is always inside.
    """
    vectors = [a for a in axes if a.vector]
    terms: list[str] = []
    for d, axis in enumerate(axes):
        if not axis.masked or not axis.vector or (view is not None and view.capacity[d] == 1):
            continue
        text = f"({axis.index} < {axis.size})"
        if len(vectors) > 1:
            text += "[:, None]" if axis is vectors[0] else "[None, :]"
        terms.append(text)
    return " & ".join(terms) or None
