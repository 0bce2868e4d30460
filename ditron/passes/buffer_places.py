"""Which values share a buffer: a reshape, slice, transpose or part of a concat is a place in one.

    %q = task.slice %qkv dim 1 at 0 size 128 : [4, 384] -> [4, 128]
    ->  %q lies in the buffer of %qkv [4, 384], from column 0 on

Decided before anything is lowered, in program order: a view goes into its operand's buffer if every
tile that is read of it, and every tile of what is there already, stays a box. A buffer has the
dimensions of the value that it is made for, or of the one in it that the host or a collective
knows; some are merged where a view needs it. What fits nowhere has a buffer of its own, and is
copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from xdsl.ir import SSAValue

from ditron.ir import task
from ditron.plan.layout import Layout
from ditron.plan.places import BufferShape, Place

Blocks = tuple[int, ...]


@dataclass
class Group:
    """The values of one buffer.

    Attributes:
        root: whose dimensions the buffer has.
        shape: those dimensions.
        places: where each value lies.
        fixed: whether the host or a collective knows the root, so that its dimensions stay.
        closed: whether no view may lie in it.
    """

    root: SSAValue
    shape: BufferShape
    places: dict[SSAValue, Place] = field(default_factory=dict[SSAValue, Place])
    fixed: bool = False
    closed: bool = False


class BufferPlaces:
    """The groups of a program's values.

    Args:
        program: a task program with choices.
        rooms: each value's capacities on a rank, with what collectives need besides.
        tiles: the sizes of all tiles that are read of a value.
    """

    def __init__(
        self,
        program: task.ProgramOp,
        rooms: Mapping[SSAValue, Sequence[int]],
        tiles: Mapping[SSAValue, Sequence[Blocks]],
    ) -> None:
        self.mesh, self._rooms, self._tiles = program.mesh, rooms, tiles
        self.groups: dict[SSAValue, Group] = {}
        for op in program.body.block.ops:
            for result in op.results:
                if result not in self.groups:
                    self._place(result)

    def is_view(self, op: task.ComputeOp) -> bool:
        """Whether an op's result lies in the buffer of its operand."""
        source = _viewed(op)
        return source is not None and self.groups[op.result] is self.groups[source]

    def lies_in(self, value: SSAValue, op: task.ConcatOp) -> bool:
        """Whether a value is made where a concat has its part."""
        return self.groups[value] is self.groups[op.result]

    def _place(self, value: SSAValue) -> None:
        op = value.owner
        if isinstance(op, task.UpdateOp):
            self.groups[value] = self.groups[op.state]
            self.groups[value].places[value] = self.groups[op.state].places[op.state]
        elif not self._try_view(value) and not self._try_part(value):
            self._found(value)

    def _found(self, value: SSAValue) -> Group:
        """A buffer of its own."""
        shape = BufferShape.of(self._rooms[value])
        group = Group(value, shape, {}, _is_fixed(value), _is_closed(value))
        group.places[value] = group.shape.whole
        self.groups[value] = group
        return group

    def _try_view(self, value: SSAValue) -> bool:
        op = value.owner
        source = _viewed(op)
        if source is None or not isinstance(op, task.ComputeOp):
            return False
        group = self.groups[source]
        place = self._view(op, group.places[source])
        return place is not None and self._join(group, value, place)

    def _view(self, op: task.ComputeOp, source: Place) -> Place | None:
        """Where a view of what lies at a place lies."""
        match op:
            case task.ReshapeOp():
                before, after = (self._capacities(v) for v in (op.operand, op.result))
                return source.reshaped(before, after)
            case task.SliceOp():
                return source.part(op.dim_index, op.at, op.size.value.data)
            case task.TransposeOp():
                return source.swapped(*op.dims)
            case _:
                return None

    def _try_part(self, value: SSAValue) -> bool:
        """Make a value where the one concat that takes it has its part."""
        uses = list(value.uses)
        op = uses[0].operation if len(uses) == 1 else None
        if not isinstance(op, task.ConcatOp) or _is_fixed(value):
            return False
        if op.result not in self.groups:
            self._found(op.result)
        before = list(op.operands)[: uses[0].index]
        dim = op.dim_index
        at = sum(task.spec_of(v).shape[dim] for v in before)
        spec, group = task.spec_of(value), self.groups[op.result]
        place = group.places[op.result].part(dim, at, spec.shape[dim])
        alike = spec.placements == task.spec_of(op.result).placements
        alike &= place.sizes == tuple(self._rooms[value])
        return alike and self._join(group, value, place)

    def _join(self, group: Group, value: SSAValue, place: Place) -> bool:
        """Put a value into a buffer, if it and all that is there can be."""
        if group.closed or 0 in self._capacities(value):
            return False
        shape, root = group.shape, group.root
        if _is_fixed(value):
            own = BufferShape.of(self._rooms[value])
            if group.fixed or not place.same(own.whole) or prod(own.sizes) != prod(shape.sizes):
                return False
            shape, root = own, value
        elif not group.fixed:
            merged = shape.merged(place, self._ragged(root))
            if merged is None:
                return False
            shape = merged
        places = {**group.places, value: place}
        if not all(self._fits(shape, v, p) for v, p in places.items()):
            return False
        group.shape, group.root, group.places = shape, root, places
        group.fixed |= _is_fixed(value)
        self.groups[value] = group
        return True

    def _fits(self, shape: BufferShape, value: SSAValue, place: Place) -> bool:
        element = (1,) * len(place.sizes)
        return all(shape.fits(place, blocks) for blocks in (element, *self._tiles.get(value, ())))

    def _capacities(self, value: SSAValue) -> list[int]:
        return Layout(task.spec_of(value), self.mesh).capacities()

    def _ragged(self, value: SSAValue) -> set[int]:
        """Dimensions that are not full on every rank."""
        spec, rooms = task.spec_of(value), self._rooms[value]
        layout = Layout(spec, self.mesh)
        ragged: set[int] = set()
        for d, size in enumerate(spec.shape):
            for axis in layout.axes(d):
                if size % self.mesh.sizes[axis]:
                    ragged.add(d)
                size //= self.mesh.sizes[axis]
            if rooms[d] != size:
                ragged.add(d)
        return ragged


def _viewed(op: object) -> SSAValue | None:
    """What an op has a view of, if that is all it does."""
    match op:
        case task.ReshapeOp() | task.TransposeOp():
            return op.operand
        case task.SliceOp() if op.position is None:
            return op.operand
        case _:
            return None


def _is_closed(value: SSAValue) -> bool:
    """Whether a value's buffer may be written again, or is nowhere: then no view lies in it."""
    match value.owner:
        case task.StateOp() | task.ScalarOp():
            return True
        case task.AllGatherOp(choice=choice):
            return choice is not None and choice.transfer == "in-place"
        case _:
            return False


def _is_fixed(value: SSAValue) -> bool:
    """Whether the host or a collective knows a value's dimensions."""
    made = isinstance(value.owner, task.SourceOp | task.ScalarOp | task.CollectiveOp)
    users = (use.operation for use in value.uses)
    return made or any(
        isinstance(user, task.OutputOp | task.CollectiveOp) or _keeps(user, value) for user in users
    )


def _keeps(user: object, value: SSAValue) -> bool:
    return isinstance(user, task.UpdateOp) and user.state is value
