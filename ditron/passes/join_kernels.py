"""Kernels one after another as one: what one stores and the next loads stays a tile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import AnyFloat
from xdsl.ir import Block, Operation, SSAValue
from xdsl.traits import is_side_effect_free

from ditron.ir import core
from ditron.passes.tile_tasks import Box, TileTask

Keys = Sequence[object]
"""One a view of a task: the same for views of the same box."""


def join(name: str, parts: Sequence[tuple[TileTask, Keys]], handed: frozenset[object]) -> TileTask:
    """The parts' kernels in order, as one called `name`.

    Args:
        name: of the kernel.
        parts: tasks, and what tells their boxes apart.
        handed: keys of boxes that one part stores and later ones load: they are no views any more.
    """
    written = {
        key
        for task, keys in parts
        for i, key in enumerate(keys)
        if task.func.writes(i) and key not in handed
    }
    boxes: dict[object, tuple[Box, core.ViewType]] = {}
    for task, keys in parts:
        for key, box, type_ in zip(keys, task.boxes, task.func.view_types, strict=True):
            if key not in handed:
                boxes.setdefault(key, (box, type_))
    order = sorted(boxes, key=lambda key: key in written)
    indices = [index for task, _ in parts for index in task.indices]
    func = core.FuncOp.empty(name, [boxes[key][1] for key in order], len(indices))
    func.location = parts[-1][0].func.location
    body = _Body(func, dict(zip(order, func.views, strict=True)))
    numbers = iter(func.indices)
    for task, keys in parts:
        own = {arg: next(numbers) for arg in task.func.indices}
        body.add(task.func, keys, own)
    round_once(func.body.block)
    return TileTask(func, tuple(boxes[key][0] for key in order), tuple(indices))


@dataclass
class _Body:
    """The kernel in the making. What is said twice is computed once."""

    func: core.FuncOp
    views: Mapping[object, SSAValue]
    tiles: dict[object, SSAValue] = field(default_factory=dict[object, SSAValue])
    known: dict[object, SSAValue] = field(default_factory=dict[object, SSAValue])

    def add(self, func: core.FuncOp, keys: Keys, values: dict[SSAValue, SSAValue]) -> None:
        key_of = dict(zip(func.views, keys, strict=True))
        values |= {arg: self.views[key] for arg, key in key_of.items() if key in self.views}
        for op in func.body.block.ops:
            if isinstance(op, core.StoreOp) and key_of[op.view] not in self.views:
                self.tiles[key_of[op.view]] = values[op.tile]
            elif isinstance(op, core.LoadOp) and key_of[op.view] not in self.views:
                values[op.result] = self.tiles[key_of[op.view]]
            else:
                self._add(op, values)

    def _add(self, op: Operation, values: dict[SSAValue, SSAValue]) -> None:
        said = (
            op.name,
            *(values[operand] for operand in op.operands),
            frozenset(op.properties.items()),
            tuple(op.result_types),
        )
        once = isinstance(op, core.LoadOp) or is_side_effect_free(op)
        if not once or said not in self.known:
            new = op.clone(value_mapper=values)
            new.location = op.location
            self.func.body.block.add_op(new)
            if once:
                self.known[said] = new.results[0]
        elif op.results:
            values[op.results[0]] = self.known[said]


def round_once(block: Block) -> None:
    """Drop a rounding that is undone at once, then what nobody uses any more."""
    for op in list(block.ops):
        inner = op.operand.owner if isinstance(op, core.CastOp) else None
        if isinstance(inner, core.CastOp) and isinstance(op, core.CastOp):
            wide, narrow = inner.operand.type, core.tile_type(inner.result).element_type
            if wide == op.result.type and isinstance(narrow, AnyFloat):
                op.result.replace_all_uses_with(inner.operand)
    for op in reversed(list(block.ops)):
        if op.results and not any(r.uses for r in op.results):
            op.detach()
            op.erase()
