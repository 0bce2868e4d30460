"""Write core kernels: load the views, compute in float32, round once, store."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects.builtin import Float32Type, IntegerType, LocationAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue

from ditron.ir import core, task

F32 = Float32Type()

# Task ops and the core ops that do the same to tiles.
POINTWISE: dict[type[Operation], type[core.BinaryOp | core.UnaryOp]] = {
    task.AddOp: core.AddOp,
    task.SubOp: core.SubOp,
    task.MulOp: core.MulOp,
    task.SiluOp: core.SiluOp,
    task.GeluOp: core.GeluOp,
    task.ReluOp: core.ReluOp,
    task.ExpOp: core.ExpOp,
}


class KernelBuilder:
    """One `core.func` in the making; ops get its location."""

    def __init__(self, func: core.FuncOp, location: LocationAttr) -> None:
        self.func, self.location = func, location
        func.location = location

    @property
    def block(self) -> Block:
        return self.func.body.block

    def add(self, op: Operation) -> SSAValue:
        """Append an op, return its result."""
        op.location = self.location
        self.block.add_op(op)
        return op.results[0]

    def cast(self, tile: SSAValue, element: Attribute) -> SSAValue:
        """The tile in another element type, if it is not in that already."""
        if core.tile_type(tile).element_type == element:
            return tile
        return self.add(core.CastOp(tile, element))

    def widen(self, tile: SSAValue) -> SSAValue:
        """The tile in the type that it is computed in: float32, or its own integers."""
        if isinstance(core.tile_type(tile).element_type, IntegerType):
            return tile
        return self.cast(tile, F32)

    def store(self, tile: SSAValue, view: SSAValue) -> None:
        """Round to the view's element type and write."""
        view_type = view.type
        assert isinstance(view_type, core.ViewType)
        op = core.StoreOp(self.cast(tile, view_type.element_type), view)
        op.location = self.location
        self.block.add_op(op)


TileBody = Callable[[KernelBuilder, Sequence[SSAValue]], SSAValue]


def build_kernel(
    name: str, views: Sequence[SSAValue], body: TileBody, location: LocationAttr
) -> core.FuncOp:
    """A kernel that stores to its last view what `body` makes of tiles of the others."""
    types = [v.type for v in views]
    func = core.FuncOp.empty(name, [t for t in types if isinstance(t, core.ViewType)])
    builder = KernelBuilder(func, location)
    *sources, target = func.body.block.args
    tiles = [builder.add(core.LoadOp(view)) for view in sources]
    builder.store(body(builder, tiles), target)
    return func


def pointwise(op: task.ComputeOp) -> TileBody:
    """The body of a kernel that does to tiles what a pointwise task op does to tensors."""

    def body(builder: KernelBuilder, tiles: Sequence[SSAValue]) -> SSAValue:
        if isinstance(op, task.CastOp | task.ShardOp):
            return tiles[0]
        return builder.add(POINTWISE[type(op)](*map(builder.widen, tiles)))

    return body


def dot(*, transpose_b: bool) -> TileBody:
    """The body of a kernel that multiplies two tiles."""

    def body(builder: KernelBuilder, tiles: Sequence[SSAValue]) -> SSAValue:
        return builder.add(core.DotOp(tiles[0], tiles[1], transpose_b=transpose_b))

    return body


def sum_in_order(builder: KernelBuilder, tiles: Sequence[SSAValue]) -> SSAValue:
    """The body of a kernel that adds tiles from first to last."""
    first, *rest = map(builder.widen, tiles)
    for tile in rest:
        first = builder.add(core.AddOp(first, tile))
    return first
