"""What a task of a grid does, told in boxes, and what it would do for another box of its result.

    x[%m * 128, 0] [128, 64], w[0, %n * 256] [64, 256] -> h[%m * 128, %n * 256] [128, 256]
    to make h[%i * 32, 512 + %j * 16] [32, 16]:
    x[%i * 32, 0] [32, 64], w[0, 512 + %j * 16] [64, 16]

Dimensions of a kernel's views that run over the same indices move and change size together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from xdsl.ir import SSAValue

from ditron.analysis.kernel_dims import dim_class, whole_dims
from ditron.ir import core, device
from ditron.ir.index import Ssa
from ditron.passes.kernel_calls import resized
from ditron.plan.expr import Binary, Const, Expr, as_expr, binary
from ditron.plan.fold import Fold

Coords = Mapping[SSAValue, Expr]


@dataclass(frozen=True)
class Box:
    """A view of a buffer; `dims` are its capacity, and lie in the box as `axes` say."""

    buffer: SSAValue
    offsets: tuple[Expr, ...]
    sizes: tuple[Expr, ...]
    at: Expr | None
    axes: tuple[int, ...] | None
    dims: tuple[int, ...]

    @property
    def fold(self) -> Fold:
        """How the dimensions lie in the box."""
        return Fold(tuple(range(len(self.dims))) if self.axes is None else self.axes, self.dims)

    def full_sizes(self) -> tuple[Expr, ...]:
        """The sizes of the box that holds all of the dimensions."""
        parts = (self.fold.parts(axis) for axis in range(len(self.sizes)))
        return tuple(as_expr(prod(self.dims[d] for d in part)) for part in parts)

    def turned(self, coords: Coords) -> Box:
        """The same in other coordinates."""
        return replace(
            self,
            offsets=tuple(turned(e, coords) for e in self.offsets),
            sizes=tuple(turned(e, coords) for e in self.sizes),
            at=None if self.at is None else turned(self.at, coords),
        )


@dataclass(frozen=True)
class TileTask:
    """A kernel, the boxes that it is given, and the numbers besides."""

    func: core.FuncOp
    boxes: tuple[Box, ...]
    indices: tuple[Expr, ...]

    @staticmethod
    def of(grid: device.GridOp, func: core.FuncOp) -> TileTask:
        """A grid's task in the grid's coordinates."""
        call = grid.body_op
        assert isinstance(call, device.CallOp)
        return TileTask(func, tuple(map(_box, grid.views)), tuple(call.index_exprs))

    def turned(self, coords: Coords) -> TileTask:
        """The same in other coordinates."""
        boxes = tuple(box.turned(coords) for box in self.boxes)
        return TileTask(self.func, boxes, tuple(turned(e, coords) for e in self.indices))

    def views_of(self, buffer: SSAValue) -> list[int]:
        """The views of a buffer."""
        return [i for i, box in enumerate(self.boxes) if box.buffer is buffer]


def _box(view: device.ViewOp) -> Box:
    axes = None if view.fold is None else view.fold.axes
    offsets, sizes = tuple(view.offset_exprs), tuple(view.size_exprs)
    return Box(view.buffer, offsets, sizes, view.at, axes, view.result.type.dims)


def turned(expr: Expr, coords: Coords) -> Expr:
    """An index expression in other coordinates."""
    match expr:
        case Ssa(value=value):
            return coords.get(value, expr)
        case Binary(op, lhs, rhs):
            return binary(op, turned(lhs, coords), turned(rhs, coords))
        case _:
            return expr


def units(grid: device.GridOp) -> Coords:
    """What is known of coordinates that take one value: it is 0."""
    pairs = zip(grid.body.block.args, grid.dims, strict=True)
    return {arg: as_expr(0) for arg, bound in pairs if bound == 1}


def recut(
    grid: device.GridOp, func: core.FuncOp, number: int, region: Box, within: device.GridOp
) -> TileTask | None:
    """A grid's task as it would make a region of what the tasks write by their view `number`.

    The region is in the coordinates of the grid `within`. None where the kernel works on more than
    that at once, or its boxes do not follow.
    """
    task = TileTask.of(grid, func)
    alone = [i for i in range(len(task.boxes)) if func.writes(i)] == [number]
    if not alone or any(box.at is not None for box in task.boxes):
        return None
    recutting = _Recut.of(grid, task, number, region, region.turned(units(within)))
    if recutting is None:
        return None
    boxes = [recutting.box(i) for i in range(len(task.boxes))]
    numbers = [recutting.index(index) for index in task.indices]
    if None in boxes or None in numbers:
        return None
    found = [box for box in boxes if box is not None]
    types = [
        core.ViewType.get(box.dims, view.element_type)
        for box, view in zip(found, func.view_types, strict=True)
    ]
    new = resized(func, func.kernel_name, types)
    return TileTask(new, tuple(found), tuple(n for n in numbers if n is not None))


STAYS = -1


@dataclass(frozen=True)
class _Recut:
    """A region in place of what a task makes, dimension by dimension of its result.

    Attributes:
        task: that makes `made`.
        coords: each of the grid's coordinates, with how many values it takes.
        along: the dimension that a coordinate moves the result along.
        follows: of each view's dimensions the one of the result that it moves with, or STAYS.
    """

    task: TileTask
    made: Box
    region: Box
    coords: Mapping[SSAValue, int]
    along: Mapping[SSAValue, int]
    follows: Sequence[Sequence[int]]

    @staticmethod
    def of(
        grid: device.GridOp, task: TileTask, number: int, region: Box, plain: Box
    ) -> _Recut | None:
        made = task.boxes[number]
        coords: dict[SSAValue, int] = dict(zip(grid.body.block.args, grid.dims, strict=True))
        along = _walked(made, coords)
        folded = made.axes is not None or region.axes is not None
        if along is None or folded or made.sizes != made.full_sizes():
            return None
        many = {d: coords[c] for c, d in along.items()}
        moved = {
            d
            for d, (old, new) in enumerate(zip(made.dims, region.dims, strict=True))
            if many.get(d, 1) > 1 or old != new or plain.offsets[d] != Const(0)
        }
        find = dim_class(task.func)
        made_by = {find((task.func.views[number], d)): d for d in range(len(made.dims))}
        whole = {made_by.get(find(dim)) for dim in whole_dims(task.func)}
        if len(made_by) < len(made.dims) or whole & moved:
            return None
        follows = [
            [
                d if (d := made_by.get(find((arg, i)), STAYS)) in moved else STAYS
                for i in range(len(box.dims))
            ]
            for arg, box in zip(task.func.views, task.boxes, strict=True)
        ]
        return _Recut(task, made, region, coords, along, follows)

    def box(self, number: int) -> Box | None:
        """What a view becomes; None where it does not follow."""
        box, follows = self.task.boxes[number], self.follows[number]
        if box.sizes != box.full_sizes():
            return None
        fold = box.fold
        steps = fold.steps()
        offsets = list[Expr]()
        for axis, offset in enumerate(box.offsets):
            moves = {follows[d]: steps[d] for d in fold.parts(axis) if follows[d] != STAYS}
            new = self._offset(offset, moves)
            if new is None:
                return None
            offsets.append(new)
        pairs = list(zip(follows, box.dims, strict=True))
        dims = tuple(size if d == STAYS else self.region.dims[d] for d, size in pairs)
        if any(
            old != new and fold.leading(fold.axes[d]) != d
            for d, (old, new) in enumerate(zip(box.dims, dims, strict=True))
        ):
            return None
        new = replace(box, offsets=tuple(offsets), dims=dims)
        sizes = list(new.full_sizes())
        for d, along in enumerate(follows):
            if along != STAYS:
                row = prod(dims[e] for e in fold.parts(fold.axes[d]))
                sizes[fold.axes[d]] = self.region.sizes[along] * (row // dims[d])
        return replace(new, sizes=tuple(sizes))

    def _offset(self, offset: Expr, moves: Mapping[int, int]) -> Expr | None:
        """Where a box begins along an axis that moves by these steps with the result's dims."""
        terms = linear(offset)
        if terms is None:
            return None
        new = as_expr(terms.constant)
        for value, factor in terms.factors.items():
            if value not in self.coords:
                new = new + Ssa(value) * factor
                continue
            d = self.along.get(value, STAYS)
            step = self.made.dims[d] * moves.get(d, 0)
            if self.coords[value] > 1 and factor != step:
                return None
        for d, step in moves.items():
            new = new + self.region.offsets[d] * step
        return new

    def index(self, index: Expr) -> Expr | None:
        """What a number becomes that the kernel is given besides."""
        terms = linear(index)
        if terms is None:
            return None
        new = as_expr(terms.constant)
        for value, factor in terms.factors.items():
            d = self.along.get(value, STAYS)
            if value not in self.coords:
                new = new + Ssa(value) * factor
            elif d != STAYS and factor % self.made.dims[d] == 0:
                new = new + self.region.offsets[d] * (factor // self.made.dims[d])
            elif d != STAYS or self.coords[value] > 1:
                return None
        return new


def _walked(made: Box, coords: Mapping[SSAValue, int]) -> dict[SSAValue, int] | None:
    """The dimension that each coordinate moves a box along, if they take it over the buffer."""
    buffer = made.buffer.type
    assert isinstance(buffer, device.BufferType)
    along: dict[SSAValue, int] = {}
    for d, (offset, block, size) in enumerate(
        zip(made.offsets, made.dims, buffer.dims, strict=True)
    ):
        terms = linear(offset)
        if terms is None or terms.constant or len(terms.factors) > 1:
            return None
        bound = 1
        for value, factor in terms.factors.items():
            if value not in coords or value in along or factor != block:
                return None
            along[value], bound = d, coords[value]
        if bound * block < size:
            return None
    return along


@dataclass(frozen=True)
class Linear:
    """A sum of values times factors, and a constant."""

    constant: int
    factors: Mapping[SSAValue, int]

    def plus(self, other: Linear, times: int) -> Linear:
        """The sum of this and some times another."""
        values = dict.fromkeys([*self.factors, *other.factors])
        factors = {v: self.factors.get(v, 0) + times * other.factors.get(v, 0) for v in values}
        return Linear(self.constant + times * other.constant, factors)


NOTHING = Linear(0, {})


def linear(expr: Expr) -> Linear | None:
    """An expression as such a sum; None where it is none."""
    match expr:
        case Const(value):
            return Linear(value, {})
        case Ssa(value=value):
            return Linear(0, {value: 1})
        case Binary("+" | "-" as op, lhs, rhs):
            a, b, times = linear(lhs), linear(rhs), 1 if op == "+" else -1
        case Binary("*", lhs, Const(times)):
            a, b = NOTHING, linear(lhs)
        case _:
            a = b = None
            times = 0
    return None if a is None or b is None else a.plus(b, times)
