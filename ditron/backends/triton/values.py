"""What a block of a kernel's tile holds, as Triton code.

A tile is asked for block by block: along the axes that go with its dimensions, in the shape of a
frame, which is the vector axes among them in some order. So a transpose moves nothing, a sum or a
product makes loops of its own over what it sums (`sums.py`), and what does not change in a loop is
computed before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from xdsl.ir import Operation, SSAValue

from ditron.analysis.kernel_work import multiplies
from ditron.backends.triton.blocks import Blocks
from ditron.backends.triton.origins import origin
from ditron.backends.triton.parameters import TYPES
from ditron.backends.triton.sums import Sums
from ditron.backends.triton.views import (
    ONE,
    Axes,
    Axis,
    Extent,
    Frame,
    View,
    mask,
    places,
    turned,
)
from ditron.backends.triton.walk import Walk, define, make_axis, open_loop, whole_block
from ditron.errors import PlanError
from ditron.ir import core
from ditron.ir.attrs import dtype_name

if TYPE_CHECKING:
    from ditron.backends.triton.tiles import TileCode

Rule = Callable[[Sequence[str]], str]

RULES: dict[type[Operation], Rule] = {
    core.AddOp: lambda o: f"{o[0]} + {o[1]}",
    core.SubOp: lambda o: f"{o[0]} - {o[1]}",
    core.MulOp: lambda o: f"{o[0]} * {o[1]}",
    core.DivOp: lambda o: f"{o[0]} / {o[1]}",
    core.LeOp: lambda o: f"{o[0]} <= {o[1]}",
    core.SiluOp: lambda o: f"{o[0]} * tl.sigmoid({o[0]})",
    core.GeluOp: lambda o: f"0.5 * {o[0]} * (1.0 + tl.erf({o[0]} * {math.sqrt(0.5)!r}))",
    core.ReluOp: lambda o: f"tl.where({o[0]} < 0, 0, {o[0]})",  # NaN stays, as in torch
    core.RsqrtOp: lambda o: f"tl.rsqrt({o[0]})",
    core.ExpOp: lambda o: f"tl.exp({o[0]})",
}
# What is written where it is used.
LITERAL = (
    *(core.ConstantOp, core.IndexOp),
    *(core.TransposeOp, core.ExpandDimsOp, core.SwapHalvesOp),
)

Key = tuple[object, ...]
Needed = tuple[SSAValue, Axes, Frame]


class KernelValues:
    """The tiles of one kernel on views, inside a walk."""

    def __init__(
        self,
        tiles: TileCode,
        func: core.FuncOp,
        views: Sequence[View],
        blocks: Blocks,
        indices: Sequence[str],
        walk: Walk,
    ) -> None:
        self.tiles, self.func, self.blocks = tiles, func, blocks
        self.code, self.names = tiles.code, tiles.names
        self.views = list(views)
        self.view_of: dict[SSAValue, View] = dict(zip(func.views, views, strict=True))
        self.index_of: dict[SSAValue, str] = dict(zip(func.indices, indices, strict=True))
        self.sums = Sums(self)
        # By loop, the outermost first: what is known in it, and the axes that it has made.
        self._known: list[dict[Key, str]] = [{}]
        self._axes: list[dict[Key, Axis]] = [{}]
        self._whole: list[list[Axis]] = [[a for a in walk.frame if not a.looped]]
        self._closed = {axis.index for axis in walk.axes if axis.looped}

    def opened(self, axis: Axis) -> None:
        """From now on code is inside a loop along this axis."""
        self._closed.discard(axis.index)
        self._known.append({})
        self._axes.append({})
        self._whole.append([])

    @contextmanager
    def loop(self, axis: Axis, needed: Sequence[Needed], stages: int = 0) -> Generator[None]:
        """A loop along an axis, before which all is computed that does not change in it."""
        for value, axes, frame in needed:
            self.prepare(value, axes, frame)
        depth = self.code.depth
        open_loop(self.code, axis, stages)
        self.opened(axis)
        yield
        self.code.depth = depth
        self._closed.add(axis.index)
        for stack in (self._known, self._axes, self._whole):
            stack.pop()

    def prepare(self, value: SSAValue, axes: Axes, frame: Frame) -> None:
        """Compute what of a tile needs no axis whose loop is still to come."""
        op = _owner(value)
        if isinstance(op, core.ConstantOp | core.IndexOp | core.IotaOp):
            return
        if self._closed.isdisjoint(a.swaps or a.index for a in _used(value, axes)):
            self.tile(value, axes, frame)
            return
        for operand in self.operands(op, axes, frame):
            self.prepare(*operand)

    def operands(  # noqa: PLR0911 - one a kind
        self, op: Operation, axes: Axes, frame: Frame
    ) -> list[Needed]:
        """The blocks that a block of an op's result is made of; products first."""
        match op:
            case core.ConstantOp() | core.IndexOp() | core.IotaOp() | core.LoadOp():
                return []
            case core.LoadAtOp():
                return [(op.at, (ONE,), ())]
            case core.GatherOp():
                return [(op.ids, axes[:-1], frame)]
            case core.ExpandDimsOp():
                return [(op.operand, axes[op.added :], frame)]
            case core.TransposeOp():
                return [(op.operand, tuple(_swapped(axes, *op.dims)), frame)]
            case core.SwapHalvesOp():
                return [(op.operand, *_with_halves_swapped(axes, frame, op.dim_index))]
            case core.DotOp() | core.ReduceOp() | core.ArgmaxOp():
                return self.sums.operands(op, axes, frame)
            case _:
                found = [(operand, axes, frame) for operand in op.operands]
                return sorted(found, key=lambda needed: not multiplies(needed[0]))

    def tile(self, value: SSAValue, axes: Axes, frame: Frame) -> str:
        """The variable (or literal) that holds a block of a tile."""
        key = _place(value, axes, frame)
        for known in reversed(self._known):
            if key in known:
                return known[key]
        op = _owner(value)
        text = self._compute(op, axes, frame)
        if not isinstance(op, LITERAL) and not text.isidentifier():
            name = self.names.fresh(self._hint(op))
            self.code(f"{name} = {text}")
            text = name
        self._known[-1][key] = text
        return text

    def knows(self, value: SSAValue, axes: Axes, frame: Frame) -> bool:
        """Whether a block of a tile is there already."""
        return any(_place(value, axes, frame) in known for known in self._known)

    def learn(self, value: SSAValue, axes: Axes, frame: Frame, text: str) -> None:
        """Take down what holds a block of a tile: it came with something else."""
        name = self.names.fresh(self._hint(_owner(value)))
        self.code(f"{name} = {text}")
        self._known[-1][_place(value, axes, frame)] = name

    def stored(self, value: SSAValue, axes: Axes, frame: Frame) -> str:
        """The same, as it is stored."""
        text = self.tile(value, axes, frame)
        return f"{text}.to(tl.uint8)" if _is_bool(value) else text

    def _compute(  # noqa: C901, PLR0911 - one a kind
        self, op: Operation, axes: Axes, frame: Frame
    ) -> str:
        match op:
            case core.LoadOp():
                text = self.tiles.load(self.view_of[op.view], axes, frame)
                return f"{text} != 0" if _is_bool(op.result) else text
            case core.LoadAtOp():
                return self._load_at(op, axes, frame)
            case core.GatherOp():
                return self._gather(op, axes, frame)
            case core.ConstantOp():
                number = op.number
                return repr(number) if math.isfinite(number) else f'float("{number}")'
            case core.IndexOp():
                return self.index_of[op.index]
            case core.IotaOp():
                index, turn = places(axes, frame, core.tile_type(op.result).dims)[op.dim_index]
                name = dtype_name(core.tile_type(op.result).element_type)
                return f"tl.cast({index}, {TYPES[name]}){turn}"
            case core.TransposeOp() | core.ExpandDimsOp() | core.SwapHalvesOp():
                return self.tile(*self.operands(op, axes, frame)[0])
            case core.DotOp() | core.ReduceOp() | core.ArgmaxOp():
                return self.sums.code_of(op, axes, frame)
            case core.CastOp():
                return self._cast(op, self.tile(op.operand, axes, frame))
            case core.WhereOp():
                found = self._of(op, axes, frame)
                return f"tl.where({', '.join(found)})"
            case _:
                return self._rule(op)(self._of(op, axes, frame))

    def _of(self, op: Operation, axes: Axes, frame: Frame) -> list[str]:
        """An op's operands, in the order that it has them."""
        texts = {needed[0]: self.tile(*needed) for needed in self.operands(op, axes, frame)}
        return [texts[operand] for operand in op.operands]

    def _rule(self, op: Operation) -> Rule:
        rule = RULES.get(type(op))
        if rule is None:
            raise PlanError(f"Triton has no code for {op.name}")
        if any(map(_is_bool, op.operands)):
            raise PlanError(f"{op.name} on bool has no Triton code: cast first")
        return rule

    def _load_at(self, op: core.LoadAtOp, axes: Axes, frame: Frame) -> str:
        view, dim = self.view_of[op.view], op.dim_index
        at = self.tile(op.at, (ONE,), ())
        dims = core.tile_type(op.result).dims
        where, inside = places(axes, frame, dims), mask(axes, frame, dims)
        index, turn = where[dim]
        place = f"{at} + {index}"
        where[dim] = (place, turn)
        inside.append(f"(({place} >= 0) & ({place} < {view.sizes[dim]})){turn}")
        return self.tiles.load_where(view, where, inside)

    def _gather(self, op: core.GatherOp, axes: Axes, frame: Frame) -> str:
        view = self.view_of[op.view]
        ids = self.tile(op.ids, axes[:-1], frame)
        dims = core.tile_type(op.result).dims
        column = places(axes, frame, dims)[-1]
        inside = mask(axes, frame, dims)
        inside.append(f"(({ids} >= 0) & ({ids} < {view.sizes[0]}))")
        return self.tiles.load_where(view, [(ids, ""), column], inside)

    def _cast(self, op: core.CastOp, tile: str) -> str:
        name = dtype_name(core.tile_type(op.result).element_type)
        if isinstance(op.operand.owner, core.ConstantOp | core.IndexOp):
            return f"tl.cast({tile}, {TYPES[name]})"
        if name == "bool":
            return f"{tile} != 0"
        return f"{tile}.to({TYPES[name]})"

    def _hint(self, op: Operation) -> str:
        match op:
            case core.LoadOp() | core.GatherOp() | core.LoadAtOp():
                return f"{self.view_of[op.view].buffer}_tile"
            case core.CastOp():
                return f"as_{dtype_name(core.tile_type(op.result).element_type)}"
            case _:
                return op.name.removeprefix("core.")

    def extent(self, tile: SSAValue, dim: int) -> Extent:
        """How far a tile goes along a dimension."""
        found = origin(self.func, tile, dim)
        if isinstance(found, int):
            return Extent(str(found), True, found)
        return self.views[found[0]].extent(found[1])

    def inner(
        self, op: Operation, axes: Axes, extent: Extent, frame: Frame, wish: Axis | None, least: int
    ) -> Axis:
        """The axis that an op sums over: `wish`, or one of equal size, where one block holds it.

        Args:
            op: that sums.
            axes: where its result is asked for.
            extent: how far it sums.
            frame: whose axes it must not be, but for `wish`.
            wish: the axis of the result along the same dimension, if there is one.
            least: elements of its blocks.
        """
        taken = {axis.index for axis in frame if axis is not wish}
        held = [a for known in reversed(self._whole) for a in known]
        for axis in [] if self.blocks.loops else [*([wish] if wish else []), *held]:
            same = (axis.size, axis.total) == (extent.size, extent.total) and axis.block >= least
            if same and axis.vector and not axis.start and axis.index not in taken:
                return axis
        key = (op, _key(op.results[0], axes))
        for known in reversed(self._axes):
            if key in known:
                return known[key]
        depth = self.blocks.depth or whole_block(extent.total)
        whole = extent.total <= depth and not self.blocks.loops
        block = whole_block(extent.total, least) if extent.total <= depth else depth
        made = make_axis(self.names, "inner", extent, max(block, least), loop=not whole)
        self._axes[-1][key] = made
        if made.looped:
            self._closed.add(made.index)
        else:
            define(self.code, made)
            self._whole[-1].append(made)
        return made

    def inside(self, axis: Axis, frame: Frame, tile: str, beyond: str) -> str:
        """A block, with another value where it reaches beyond an axis."""
        if not axis.masked:
            return tile
        return f"tl.where(({axis.index} < {axis.size}){turned(axis, frame)}, {tile}, {beyond})"


def _owner(value: SSAValue) -> Operation:
    assert isinstance(value.owner, Operation)
    return value.owner


def _used(value: SSAValue, axes: Axes) -> list[Axis]:
    """The axes that a tile has more than one element along, or has to seem so."""
    dims = core.tile_type(value).dims
    return [a for a, size in zip(axes, dims, strict=True) if size > 1 or a.full]


def _key(value: SSAValue, axes: Axes) -> Key:
    dims = core.tile_type(value).dims
    whole = isinstance(value.owner, core.DotOp)  # blocks of products are whole anyway
    return tuple(
        (a.index, a.full and size == 1 and not whole) if size > 1 or a.full or whole else None
        for a, size in zip(axes, dims, strict=True)
    )


def _place(value: SSAValue, axes: Axes, frame: Frame) -> Key:
    """The same for blocks that are alike: of one element along what they do not vary in."""
    varies = {
        a.index for a in (axes if isinstance(value.owner, core.DotOp) else _used(value, axes))
    }
    shape = tuple(a.index if a.index in varies else None for a in frame)
    return (value, _key(value, axes), shape if any(shape) else ())


def _swapped(axes: Axes, first: int, second: int) -> list[Axis]:
    changed = list(axes)
    changed[first], changed[second] = axes[second], axes[first]
    return changed


def _with_halves_swapped(axes: Axes, frame: Frame, dim: int) -> tuple[Axes, Frame]:
    """Where what lies along an axis comes from, whose halves change places."""
    old = axes[dim]
    size = old.size if old.size.isalnum() else f"({old.size})"
    half = str(int(size) // 2) if size.isdigit() else f"{size} // 2"
    index = f"(({old.index} + {half}) % {size})"
    new = replace(old, index=index, masked=False, swaps=old.swaps or old.index)
    others = (new if axis.index == old.index else axis for axis in frame)
    return (*axes[:dim], new, *axes[dim + 1 :]), tuple(others)


def _is_bool(value: SSAValue) -> bool:
    return dtype_name(core.tile_type(value).element_type) == "bool"
