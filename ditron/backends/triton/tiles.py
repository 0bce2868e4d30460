"""The body of a kernel: core ops on tiles, and transfers, as Triton code.

A tile of the plan is walked in blocks that fit registers. A product loops over its summed dimension
inside a block; whatever else a kernel does is elementwise, so any cutting is right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from xdsl.ir import Operation, SSAValue

from ditron.backends.triton.blocks import Blocks
from ditron.backends.triton.expressions import Values
from ditron.backends.triton.names import Code, Names
from ditron.backends.triton.parameters import TYPES
from ditron.backends.triton.views import Axis, View, address, corner, mask
from ditron.errors import PlanError
from ditron.ir import core
from ditron.ir.attrs import dtype_name

Rule = Callable[[Sequence[str]], str]

RULES: dict[type[Operation], Rule] = {
    core.AddOp: lambda o: f"{o[0]} + {o[1]}",
    core.SubOp: lambda o: f"{o[0]} - {o[1]}",
    core.MulOp: lambda o: f"{o[0]} * {o[1]}",
    core.SiluOp: lambda o: f"{o[0]} * tl.sigmoid({o[0]})",
    core.GeluOp: lambda o: f"0.5 * {o[0]} * (1.0 + tl.erf({o[0]} * {math.sqrt(0.5)!r}))",
    core.ReluOp: lambda o: f"tl.where({o[0]} < 0, 0, {o[0]})",  # NaN stays, as in torch
    core.DivOp: lambda o: f"{o[0]} / {o[1]}",
    core.RsqrtOp: lambda o: f"tl.rsqrt({o[0]})",
    core.ExpOp: lambda o: f"tl.exp({o[0]})",
}

MOST_VECTORS = 2


class Walk:
    """Loops over the blocks of a box; inside them `axes` go with its dimensions."""

    def __init__(self, code: Code, names: Names, view: View, blocks: Sequence[int]) -> None:
        self.code, self.names = code, names
        self.axes: list[Axis] = []
        self._depth = code.depth
        hints = ["cols", "rows"]
        for d, (total, block) in enumerate(zip(view.capacity, blocks, strict=True)):
            at = len(view.capacity) - 1 - d
            hint = hints[at] if at < len(hints) else f"i{d}"
            self.axes.append(self._axis(hint, view.sizes[d], view.whole[d], total, block))

    def _axis(self, hint: str, size: str, whole: bool, total: int, block: int) -> Axis:
        index = self.names.fresh(hint)
        if not block:
            self.code(f"for {index} in range({size}):")
            self.code.depth += 1
            return Axis(index, size, 0, masked=False, total=total)
        text, start = f"tl.arange(0, {block})", ""
        if total > block:
            start = self.names.fresh(f"{hint}_at")
            self.code(f"for {start} in range(0, {size}, {block}):")
            self.code.depth += 1
            text = f"{start} + {text}"
        self.code.define(index, text)
        masked = not whole or total % block != 0
        return Axis(index, size, block, masked=masked, total=total, start=start)

    def done(self) -> None:
        """Leave the loops."""
        self.code.depth = self._depth


class TileCode:
    """Writes one kernel's body."""

    def __init__(self, code: Code, names: Names, values: Values, *, staged: bool = False) -> None:
        self.code, self.names, self.values, self.staged = code, names, values, staged

    def span(self, size: str, block: int, stages: int) -> str:
        """What a product's loop goes over; `staged` loops say how far their loads run ahead."""
        if self.staged:
            return f"tl.range(0, {size}, {block}, num_stages={stages})"
        return f"range(0, {size}, {block})"

    def transfer(self, source: View, target: View, blocks: Blocks) -> None:
        """Copy a box."""
        walk = Walk(self.code, self.names, target, blocks.blocks)
        inside = mask(walk.axes)
        data = self._load(source, walk.axes, inside, broadcast=False)
        self._store(target, walk.axes, inside, data)
        walk.done()

    def call(self, func: core.FuncOp, views: Sequence[View], blocks: Blocks) -> None:
        """Run a kernel on views."""
        _Kernel(self, func, views, blocks).emit()

    def _load(
        self, view: View, axes: list[Axis], inside: str | None, *, broadcast: bool = True
    ) -> str:
        where = address(view, axes, self.values, broadcast=broadcast)
        guard = "" if inside is None else f", mask={inside}, other=0"
        return f"tl.load({where}{guard})"

    def _store(self, view: View, axes: list[Axis], inside: str | None, data: str) -> None:
        where = address(view, axes, self.values, broadcast=False)
        guard = "" if inside is None else f", mask={inside}"
        self.code(f"tl.store({where}, {data}{guard})")

    def load(self, view: View, axes: list[Axis], *, broadcast: bool = True) -> str:
        """Code of a block of a view."""
        if view.tiles:
            return f"{view.tiles}.load({corner(view, axes, self.values)})"
        inside = mask(axes, view if broadcast else None)
        return self._load(view, axes, inside, broadcast=broadcast)

    def store(self, view: View, axes: list[Axis], data: str) -> None:
        """Write a block of a view."""
        if view.tiles:
            self._store_tiles(view, axes, data)
            return
        self._store(view, axes, mask(axes), data)

    def _store_tiles(self, view: View, axes: list[Axis], data: str) -> None:
        """A block through a descriptor, in halves where it is twice as wide as that's."""
        place = corner(view, axes, self.values)
        if axes[1].block == view.columns:
            self.code(f"{view.tiles}.store({place}, {data})")
            return
        left, right = self.names.fresh("left"), self.names.fresh("right")
        self.code(f"{left}, {right} = halves({data})")
        self.code(f"{view.tiles}.store({place}, {left})")
        self.code(f"{view.tiles}.store({place[:-1]} + {view.columns}], {right})")


UNWRITTEN = (
    core.GatherOp,
    core.AtOp,
    core.IndexOp,
    core.IotaOp,
    core.TransposeOp,
    core.ArgmaxOp,
    core.LeOp,
    core.WhereOp,
)
MATRIX = 2


def check_ops(func: core.FuncOp) -> None:
    """Raise a PlanError for an op that has no code."""
    for op in func.body.block.ops:
        stack = isinstance(op, core.DotOp) and len(core.tile_type(op.result).dims) > MATRIX
        if stack or isinstance(op, UNWRITTEN):
            what = "products of stacks of matrices" if stack else op.name
            raise PlanError(f"Triton has no code for {what} yet; target cpu has")


class _Kernel:
    """One core.func on views."""

    def __init__(
        self, tiles: TileCode, func: core.FuncOp, views: Sequence[View], blocks: Blocks
    ) -> None:
        self.tiles, self.func, self.blocks = tiles, func, blocks
        self.code, self.names = tiles.code, tiles.names
        self.view_of: dict[SSAValue, View] = dict(zip(func.body.block.args, views, strict=True))
        self.ops = list(func.body.block.ops)
        # Operands of products are as large as their blocks, also where a dimension is 1.
        self._of_dot = False
        self._check()

    def _check(self) -> None:
        stored: set[SSAValue] = set()
        for op in self.ops:
            if isinstance(op, core.StoreOp):
                stored.add(op.view)
            elif isinstance(op, core.LoadOp) and op.view in stored:
                name = self.func.kernel_name
                raise PlanError(f"@{name} loads what it has stored: Triton code cannot do that")

    def emit(self) -> None:
        stores = [op for op in self.ops if isinstance(op, core.StoreOp)]
        target = self.view_of[stores[0].view]
        walk = Walk(self.code, self.names, target, self.blocks.blocks)
        known: dict[SSAValue, str] = {}
        for store in stores:
            data = self._tile(store.tile, walk.axes, known)
            view = self.view_of[store.view]
            self.tiles.store(view, walk.axes, data)
        walk.done()

    def _tile(self, value: SSAValue, axes: list[Axis], known: dict[SSAValue, str]) -> str:
        """The variable (or literal) that holds a block of a tile."""
        if value not in known:
            op = value.owner
            assert isinstance(op, Operation)
            text = self._compute(op, axes, known)
            if isinstance(op, core.ConstantOp | core.DotOp):
                known[value] = text
            else:
                known[value] = self.names.fresh(self._hint(op))
                self.code(f"{known[value]} = {text}")
        return known[value]

    def _compute(  # noqa: PLR0911 - one a kind
        self, op: Operation, axes: list[Axis], known: dict[SSAValue, str]
    ) -> str:
        match op:
            case core.LoadOp():
                view = self.view_of[op.view]
                own = axes[len(axes) - len(view.capacity) :]
                return self.tiles.load(view, own, broadcast=not self._of_dot)
            case core.ConstantOp():
                number = op.number
                return repr(number) if math.isfinite(number) else f'float("{number}")'
            case core.DotOp():
                return self._dot(op, axes)
            case core.CastOp():
                return self._cast(op, self._tile(op.operand, axes, known))
            case core.SumOp() | core.MaxOp():
                return self._reduce(op, self._tile(op.operand, axes, known), axes)
            case core.ExpandDimsOp():
                return self._expand(op, self._tile(op.operand, axes, known))
            case _:
                return _rule(op)([self._tile(o, axes, known) for o in op.operands])

    def _reduce(self, op: core.SumOp | core.MaxOp, tile: str, axes: list[Axis]) -> str:
        """A row's sum or greatest; `row_blocks` keeps rows whole."""
        type_ = core.tile_type(op.operand)
        if (len(type_.dims), op.dim_index, dtype_name(type_.element_type)) != (2, 1, "f32"):
            raise PlanError(f"{op.name} of anything but float32 rows has no Triton code yet")
        adds = isinstance(op, core.SumOp)
        inside = mask(axes)
        if inside is not None:
            beyond = "0.0" if adds else 'float("-inf")'
            tile = f"tl.where({inside}, {tile}, {beyond})"
        return f"tl.sum({tile}, 1, keep_dims=True)" if adds else f"row_max({tile})"

    def _hint(self, op: Operation) -> str:
        match op:
            case core.LoadOp():
                return f"{self.view_of[op.view].buffer}_tile"
            case core.CastOp():
                return f"as_{dtype_name(core.tile_type(op.result).element_type)}"
            case _:
                return op.name.removeprefix("core.")

    def _cast(self, op: core.CastOp, tile: str) -> str:
        name = dtype_name(core.tile_type(op.result).element_type)
        if name == "bool":
            return f"({tile} != 0).to(tl.uint8)"
        return f"{tile}.to({TYPES[name]})"

    def _expand(self, op: core.ExpandDimsOp, tile: str) -> str:
        have, want = (len(core.tile_type(v).dims) for v in (op.operand, op.result))
        added = min(want, MOST_VECTORS) - min(have, MOST_VECTORS)
        return f"{tile}[{', '.join(['None'] * added + [':'] * have)}]" if added else tile

    def _dot(self, op: core.DotOp, axes: list[Axis]) -> str:
        """Write the loop of a product; returns the accumulator."""
        rows, cols = axes
        lhs = _loaded_view(op.lhs)
        view = self.view_of[lhs]
        depth, block = view.capacity[1], self.blocks.depth
        size, whole = view.sizes[1], view.whole[1]
        sums = self.names.fresh("sums")
        at, inner = self.names.fresh("k"), self.names.fresh("inner")
        self.code(f"{sums} = tl.zeros(({rows.block}, {cols.block}), tl.float32)")
        self.code(f"for {at} in {self.tiles.span(size, block, self.blocks.stages)}:")
        with self.code:
            self.code.define(inner, f"{at} + tl.arange(0, {block})")
            masked = not whole or depth % block != 0
            ks = Axis(inner, size, block, masked=masked, total=depth, start=at)
            self._of_dot = True
            a = self._tile(op.lhs, [rows, ks], {})
            if op.transpose_b is not None:
                b = f"{self._tile(op.rhs, [cols, ks], {})}.T"
            else:
                b = self._tile(op.rhs, [ks, cols], {})
            self._of_dot = False
            exact = dtype_name(core.tile_type(op.lhs).element_type) == "f32"
            precision = ', input_precision="ieee"' if exact else ""
            self.code(f"{sums} = tl.dot({a}, {b}, {sums}{precision})")
        return sums


def summed_views(func: core.FuncOp) -> list[int]:
    """The arguments whose second dimension is summed over by a product."""
    args: list[SSAValue] = list(func.body.block.args)
    dots = [op for op in func.body.block.ops if isinstance(op, core.DotOp)]
    return [args.index(_loaded_view(op.lhs)) for op in dots]


def _loaded_view(tile: SSAValue) -> SSAValue:
    """The view that a product's operand is made of."""
    op = tile.owner
    while isinstance(op, Operation) and not isinstance(op, core.LoadOp):
        if not op.operands:
            break
        op = op.operands[0].owner
    if not isinstance(op, core.LoadOp):
        raise PlanError("an operand of core.dot that is not loaded has no Triton code")
    return op.view


def _rule(op: Operation) -> Rule:
    rule = RULES.get(type(op))
    if rule is None:
        raise PlanError(f"Triton has no code for {op.name}")
    if any(dtype_name(core.tile_type(o).element_type) == "bool" for o in op.operands):
        raise PlanError(f"{op.name} on bool has no Triton code: cast first")
    return rule
