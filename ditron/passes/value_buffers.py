"""The buffers that a task program's values lie in, made one by one while it is lowered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count

from xdsl.ir import Operation, SSAValue

from ditron.analysis.shards import ShardedDims
from ditron.ir import device, task
from ditron.ir.attrs import dtype_attr
from ditron.passes.buffer_places import Blocks, BufferPlaces, Group
from ditron.passes.grids import GridBuilder
from ditron.plan.expr import Expr, as_expr
from ditron.plan.layout import Layout
from ditron.plan.placement import shard_size
from ditron.plan.places import Tile
from ditron.plan.tables import Memory, Role


class ValueBuffers:
    """The buffer of each value of a program.

    Args:
        program: a task program with choices.
        dims: which dimensions of its values are cut into shards.
        tiles: the sizes of all tiles of each value that kernels read and write.
        me: this rank's number.
        add: takes each buffer's declaration.
    """

    def __init__(
        self,
        program: task.ProgramOp,
        dims: ShardedDims,
        tiles: Mapping[SSAValue, Sequence[Blocks]],
        me: Expr,
        add: Callable[[device.BufferOp], None],
    ) -> None:
        self.mesh, self._dims, self._me, self._add = program.mesh, dims, me, add
        self._made: dict[int, SSAValue] = {}
        # What the host knows by name keeps its name; other buffers are numbered around it.
        self._names = {op.tensor_name.data for op in (*program.sources, *program.outputs)}
        rooms: dict[SSAValue, list[int]] = {}
        for op in program.body.block.ops:
            rooms.update((result, self._rooms(result)) for result in op.results)
        self.places = BufferPlaces(program, rooms, tiles)

    def layout(self, value: SSAValue) -> Layout:
        """Where a value's local part lies in it."""
        return Layout(task.spec_of(value), self.mesh)

    def of(self, value: SSAValue) -> SSAValue:
        """The buffer that a value lies in on every rank."""
        group = self.places.groups[value]
        if id(group) not in self._made:
            self._made[id(group)] = self._make(group)
        return self._made[id(group)]

    def fits(self, value: SSAValue, blocks: Sequence[int]) -> bool:
        """Whether tiles of such sizes are boxes of the buffer."""
        group = self.places.groups[value]
        return group.shape.fits(group.places[value], blocks)

    def view(self, grid: GridBuilder, value: SSAValue, tile: Tile) -> SSAValue:
        """A tile of a value, as a view of the buffer that it lies in."""
        group = self.places.groups[value]
        box = group.shape.box(group.places[value], tile)
        buffer = self.of(value)
        return grid.view(buffer, box.offsets, box.sizes, tile.blocks, axes=box.axes)

    def whole(self, grid: GridBuilder, value: SSAValue) -> SSAValue:
        """All of a value's local part."""
        sizes = [max(c, 1) for c in self.layout(value).capacities()]
        zeros = [as_expr(0)] * len(sizes)
        return self.view(grid, value, Tile(zeros, [as_expr(n) for n in sizes], sizes))

    def _make(self, group: Group) -> SSAValue:
        root, layout = group.root, self.layout(group.root)
        name, role = _name_and_role(root)
        if role is Role.SCRATCH and name in self._names:
            numbered = (f"{name}.{i}" for i in count(1))
            name = next(n for n in numbered if n not in self._names)
        self._names.add(name)
        extents = list[Expr]()
        for run in group.shape.runs:
            extent = as_expr(1)
            for d in run:
                extent = extent * layout.extent(d, self._me)
            extents.append(extent)
        memory = Memory.SYMMETRIC if any(map(_meets_collective, group.places)) else Memory.LOCAL
        type_ = device.BufferType.get(group.shape.sizes, dtype_attr(layout.spec.dtype), memory)
        op = device.BufferOp(name, role, extents, type_)
        assert isinstance(root.owner, Operation)
        op.location = root.owner.location
        self._add(op)
        return op.result

    def _rooms(self, value: SSAValue) -> list[int]:
        """Capacity of each dimension: whole shards where it is cut into them, and at least 1."""
        layout, rooms = self.layout(value), list[int]()
        for d, size in enumerate(layout.capacities()):
            axis, room = self._dims.sharded.get((value, d)), size
            needed = (value, d) in self._dims.cut or _meets_collective(value)
            if needed and axis is not None and axis not in layout.axes(d):
                ranks = self.mesh.sizes[axis]
                room = shard_size(size, ranks) * ranks
            rooms.append(max(room, 1))
        return rooms


def _name_and_role(value: SSAValue) -> tuple[str, Role]:
    """What to call a buffer: what the host knows it by, if that knows it."""
    op = value.owner
    if isinstance(op, task.SourceOp | task.ScalarOp):
        return op.tensor_name.data, task.role_of(op)
    assert isinstance(op, task.ComputeOp)
    for use in value.uses:
        if isinstance(use.operation, task.OutputOp):
            return use.operation.tensor_name.data, Role.OUTPUT
    return op.label(), Role.SCRATCH


def _meets_collective(value: SSAValue) -> bool:
    """Whether a collective makes or takes it."""
    users = (use.operation for use in value.uses)
    return isinstance(value.owner, task.CollectiveOp) or any(
        isinstance(user, task.CollectiveOp) for user in users
    )
