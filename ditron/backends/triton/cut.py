"""How a kernel's call is cut: its blocks, which of them go by descriptors, which loops are one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ditron.analysis.kernel_work import sums_apart
from ditron.backends.triton.blocks import (
    Blocks,
    attention_blocks,
    deepest,
    dot_blocks,
    has_dots,
    has_reductions,
    pointwise_blocks,
    row_blocks,
)
from ditron.backends.triton.descriptors import Shape, buffer_type, descriptor_blocks
from ditron.backends.triton.facts import GridFacts
from ditron.backends.triton.origins import walked_dims
from ditron.backends.triton.targets import Target
from ditron.ir import core, device
from ditron.plan.tables import DTYPE_BYTES

# The least that an asynchronous copy moves.
LEAST_COPY_BYTES = 4
MATRIX = 2


@dataclass(frozen=True)
class Cut:
    """What a kernel is cut into.

    Attributes:
        blocks: that a task is walked in.
        tiled: the block of each view that goes by a descriptor, by the view's number.
        flat: whether the loops over tasks and over a product's blocks become one.
    """

    blocks: Blocks
    tiled: Mapping[int, Shape] = field(default_factory=dict[int, Shape])
    flat: bool = False


@dataclass(frozen=True)
class CallFacts:
    """A grid that calls a kernel, and what is known of its tasks.

    Attributes:
        waits, notifies: whether any task does.
        in_turn: lane i runs tasks i, i + lanes, i + 2 * lanes and so on, and not one alone.
    """

    func: core.FuncOp
    grid: device.GridOp
    tasks: GridFacts
    waits: bool
    notifies: bool
    in_turn: bool

    @property
    def made(self) -> device.ViewOp:
        """The first view that is written."""
        return next(v for i, v in enumerate(self.grid.views) if self.func.writes(i))


def cut_call(facts: CallFacts, target: Target) -> Cut:
    """Blocks for a kernel's call on a target."""
    func = facts.func
    capacity = walked_dims(func)
    if has_reductions(func) and not (has_dots(func) and capacity[-2] == 1 and sums_apart(func)):
        made = attention_blocks if has_dots(func) else row_blocks
        return Cut(made(func, capacity, target))
    if not has_dots(func):
        return Cut(pointwise_blocks(capacity))
    blocks = dot_blocks(func, capacity, target)
    if len(capacity) > MATRIX or not all(blocks.blocks):
        return Cut(replace(blocks, pipeline_bytes=0))
    if any(_row_bytes(view) % LEAST_COPY_BYTES for view in facts.grid.views):
        blocks = replace(blocks, pipeline_bytes=0)  # such rows cannot be loaded ahead
    if not target.descriptors:
        return Cut(blocks)
    stores = not facts.notifies
    tiled = descriptor_blocks(func, blocks, facts.grid, facts.tasks, stores=stores)
    flat = _is_flat(facts, blocks, tiled)
    if flat:
        blocks = deepest(blocks, target, DTYPE_BYTES[buffer_type(facts.made).dtype])
    return Cut(blocks, tiled, flat)


def _is_flat(facts: CallFacts, blocks: Blocks, tiled: Mapping[int, Shape]) -> bool:
    """Whether a product's loops may become one.

    Then the loads of the next task start while the last one's result is stored. That would move a
    task's wait before the last one's notifies, so only tasks that do not wait do so.
    """
    capacity = facts.made.result.type.dims
    one_block = all(c <= b for c, b in zip(capacity, blocks.blocks, strict=True))
    always = not (facts.waits or facts.tasks.masked or facts.tasks.empty)
    operands = [number for number in tiled if not facts.func.writes(number)]
    return facts.in_turn and one_block and always and blocks.dots == 1 and len(operands) > 1


def _row_bytes(view: device.ViewOp) -> int:
    type_ = buffer_type(view)
    return type_.dims[-1] * DTYPE_BYTES[type_.dtype]
