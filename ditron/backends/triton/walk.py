"""Loops over the blocks of an iteration space."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ditron.backends.triton.names import Code, Names
from ditron.backends.triton.views import ONE, Axis, Extent, power_of_two

HINTS = ("cols", "rows")


class Walk:
    """The axes of a box; those that need loops are opened one after another, the outermost first.

    Args:
        code: where loops are written.
        names: of what is there.
        box: how far it goes along each dimension.
        blocks: elements of a block along each; 0 walks element by element.
    """

    def __init__(
        self, code: Code, names: Names, box: Sequence[Extent], blocks: Sequence[int]
    ) -> None:
        self.code = code
        self._depth = code.depth
        self.axes: tuple[Axis, ...] = tuple(
            make_axis(names, _hint(len(box) - 1 - d, d), extent, block)
            for d, (extent, block) in enumerate(zip(box, blocks, strict=True))
        )
        self.frame = tuple(axis for axis in self.axes if axis.vector)
        for axis in self.frame:
            if not axis.looped:
                define(code, axis)

    def loops(self) -> Iterator[Axis]:
        """The axes with loops, each before its loop is opened."""
        for axis in self.axes:
            if axis.looped:
                yield axis
                open_loop(self.code, axis)

    def done(self) -> None:
        """Leave the loops."""
        self.code.depth = self._depth


def _hint(from_last: int, d: int) -> str:
    return HINTS[from_last] if from_last < len(HINTS) else f"i{d}"


def make_axis(names: Names, hint: str, extent: Extent, block: int, *, loop: bool = False) -> Axis:
    """An axis whose variables are not written yet; with a loop where it has several blocks."""
    total = extent.total
    if not block:
        return ONE if extent.whole and total == 1 else _scalar(names, hint, extent)
    masked = not extent.whole or total % block != 0
    start = names.fresh(f"{hint}_at") if loop or total > block else ""
    return Axis(names.fresh(hint), extent.size, block, masked=masked, total=total, start=start)


def _scalar(names: Names, hint: str, extent: Extent) -> Axis:
    return Axis(names.fresh(hint), extent.size, 0, masked=False, total=extent.total)


def whole_block(total: int, least: int = 1) -> int:
    """A block that holds a dimension whole."""
    return max(power_of_two(total), least)


def define(code: Code, axis: Axis) -> None:
    """Write the elements of an axis's block."""
    first = f"{axis.start} + " if axis.start else ""
    code.define(axis.index, f"{first}tl.arange(0, {axis.block})")


def open_loop(code: Code, axis: Axis, stages: int = 0) -> None:
    """Write the head of an axis's loop; what follows is inside it.

    Args:
        code: where.
        axis: with a loop.
        stages: how far loads run ahead, where the loop says that itself.
    """
    if not axis.vector:
        code(f"for {axis.index} in range({axis.size}):")
        code.depth += 1
        return
    span = f"0, {axis.size}, {axis.block}"
    head = f"tl.range({span}, num_stages={stages})" if stages else f"range({span})"
    code(f"for {axis.start} in {head}:")
    code.depth += 1
    define(code, axis)
