"""Kernels and copies on boxes, as Triton code.

A tile of the plan is walked in blocks that fit registers; `values.py` writes what a block holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ditron.backends.triton.blocks import Blocks
from ditron.backends.triton.expressions import Values
from ditron.backends.triton.names import Code, Names
from ditron.backends.triton.origins import walked
from ditron.backends.triton.values import KernelValues
from ditron.backends.triton.views import (
    ONE,
    Axes,
    Axis,
    Extent,
    Frame,
    Place,
    View,
    address,
    corner,
    mask,
    places,
)
from ditron.backends.triton.walk import Walk
from ditron.errors import PlanError
from ditron.ir import core


class TileCode:
    """Writes one task's body."""

    def __init__(self, code: Code, names: Names, values: Values, *, staged: bool = False) -> None:
        self.code, self.names, self.values, self.staged = code, names, values, staged

    def transfer(self, source: View, target: View, blocks: Blocks) -> None:
        """Copy a box to one of its shape."""
        box = [target.extent(d) for d in range(len(target.capacity))]
        walk = Walk(self.code, self.names, box, blocks.blocks)
        for _ in walk.loops():
            pass
        inside = mask(walk.axes, walk.frame)
        where = places(walk.axes, walk.frame, target.capacity)
        self._put(target, where, inside, self._get(source, where, inside))
        walk.done()

    def reshape(self, source: View, target: View, elements: int) -> None:
        """Copy a box to one of another shape: the same elements in row-major order."""
        size = " * ".join(s for s in target.sizes if s != "1") or "1"
        extent = Extent(size, all(target.whole), prod(target.capacity))
        walk = Walk(self.code, self.names, [extent], [elements])
        for _ in walk.loops():
            pass
        (axis,) = walk.axes
        inside = mask(walk.axes, walk.frame)
        data = self._get(source, self._places_in(source, axis), inside)
        self._put(target, self._places_in(target, axis), inside, data)
        walk.done()

    def _places_in(self, view: View, axis: Axis) -> list[Place]:
        """Where the elements along an axis lie in a box."""
        found: list[Place] = []
        left = axis.index
        for d in reversed(range(len(view.capacity))):
            if all(view.capacity[i] == 1 for i in range(d)):
                found += [(left, ""), *[("0", "")] * d]
                break
            if view.capacity[d] == 1:
                found.append(("0", ""))
                continue
            size = view.sizes[d] if view.sizes[d].isalnum() else f"({view.sizes[d]})"
            found.append((f"{left} % {size}", ""))
            rest = self.names.fresh("rest")
            self.code.define(rest, f"{left} // {size}")
            left = rest
        return found[::-1]

    def call(
        self,
        func: core.FuncOp,
        views: Sequence[View],
        blocks: Blocks,
        indices: Sequence[str] = (),
    ) -> None:
        """Run a kernel on views; `indices` are what it is called with, as code."""
        _check(func)
        box = [
            Extent(str(found), True, found)
            if isinstance(found, int)
            else views[found[0]].extent(found[1])
            for found in walked(func)
        ]
        walk = Walk(self.code, self.names, box, blocks.blocks)
        values = KernelValues(self, func, views, blocks, indices, walk)
        stores = [s for s in func.body.block.ops if isinstance(s, core.StoreOp | core.StoreAtOp)]
        for axis in walk.loops():
            for store in stores:
                values.prepare(store.tile, walk.axes, walk.frame)
            values.opened(axis)
        for store in stores:
            data = values.stored(store.tile, walk.axes, walk.frame)
            view = values.view_of[store.view]
            if isinstance(store, core.StoreAtOp):
                at = values.tile(store.at, (ONE,), ())
                self._store_at(view, store.dim_index, at, walk, data)
            else:
                self.store(view, walk.axes, walk.frame, data)
        walk.done()

    def _store_at(self, view: View, dim: int, at: str, walk: Walk, data: str) -> None:
        where = places(walk.axes, walk.frame, [axis.total for axis in walk.axes])
        index, turn = where[dim]
        place = f"{at} + {index}"
        where[dim] = (place, turn)
        inside = mask(walk.axes, walk.frame)
        inside.append(f"(({place} >= 0) & ({place} < {view.sizes[dim]})){turn}")
        self._put(view, where, inside, data)

    def load(self, view: View, axes: Axes, frame: Frame) -> str:
        """Code of a block of a view."""
        if view.tiles:
            return f"{view.tiles}.load({corner(view, axes, self.values)})"
        where = places(axes, frame, view.capacity)
        return self._get(view, where, mask(axes, frame, view.capacity))

    def load_where(self, view: View, where: Sequence[Place], inside: Sequence[str]) -> str:
        """Code of a block whose places are looked up; 0 where a condition does not hold."""
        return self._get(view, where, inside)

    def store(self, view: View, axes: Axes, frame: Frame, data: str) -> None:
        """Write a block of a view; of one element where others that the walk makes have more."""
        if view.tiles:
            self._store_tiles(view, axes, data)
            return
        # A block is whole along each axis, also where all views have one element there.
        dims = [
            size if size != axis.total else size + axis.block
            for size, axis in zip(view.capacity, axes, strict=True)
        ]
        where: list[Place] = places(axes, frame, dims)
        self._put(view, where, mask(axes, frame, dims), data)

    def _get(self, view: View, where: Sequence[Place], inside: Sequence[str]) -> str:
        guard = f", mask={' & '.join(inside)}, other=0" if inside else ""
        return f"tl.load({address(view, where, self.values)}{guard})"

    def _put(self, view: View, where: Sequence[Place], inside: Sequence[str], data: str) -> None:
        guard = f", mask={' & '.join(inside)}" if inside else ""
        self.code(f"tl.store({address(view, where, self.values)}, {data}{guard})")

    def _store_tiles(self, view: View, axes: Axes, data: str) -> None:
        """A block through a descriptor, in halves where it is twice as wide as that's."""
        place = corner(view, axes, self.values)
        if axes[1].block == view.columns:
            self.code(f"{view.tiles}.store({place}, {data})")
            return
        left, right = self.names.fresh("left"), self.names.fresh("right")
        self.code(f"{left}, {right} = halves({data})")
        self.code(f"{view.tiles}.store({place}, {left})")
        self.code(f"{view.tiles}.store({place[:-1]} + {view.columns}], {right})")


def _check(func: core.FuncOp) -> None:
    stored: set[object] = set()
    for op in func.body.block.ops:
        if isinstance(op, core.StoreOp | core.StoreAtOp):
            stored.add(op.view)
        elif isinstance(op, core.LoadOp | core.LoadAtOp | core.GatherOp) and op.view in stored:
            name = func.kernel_name
            raise PlanError(f"@{name} loads what it has stored: Triton code cannot do that")
