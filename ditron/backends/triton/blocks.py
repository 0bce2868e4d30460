"""How a kernel's tile is cut into blocks: sizes, warps, pipeline depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ditron.backends.triton.targets import Target
from ditron.backends.triton.views import power_of_two
from ditron.ir import core
from ditron.ir.attrs import dtype_name
from ditron.plan.tables import DTYPE_BYTES

# Float32 accumulators that the warps of a program hold: 128 registers of each of 256 threads.
MOST_SUMS = 128 * 256
# Columns of a result that are stored through a descriptor at once: what waits in shared memory.
STORED_COLUMNS = 128
MOST_ROWS, MOST_COLS, LEAST = 128, 256, 16
# Elements that a program computes on, or moves, at once.
POINTWISE_ELEMENTS, MOVED_ELEMENTS = 4096, 8192
WIDEST = 1024
BARRIER_BYTES = 256
# Of operands on their way: more takes longer to start than it saves, where each tile starts anew.
MOST_AHEAD_BYTES = 160 << 10


@dataclass(frozen=True)
class Blocks:
    """Block sizes by dimension (0: a loop of single elements), and what the launch needs.

    Attributes:
        depth: elements of a product's summed dimension at once.
        dots: products in the kernel that a matrix unit can do.
        pipeline_bytes: of shared memory, that the loads of a product take at least if they overlap.
    """

    blocks: tuple[int, ...]
    depth: int = 0
    warps: int = 4
    stages: int = 1
    dots: int = 0
    pipeline_bytes: int = 0


def pointwise_blocks(capacity: Sequence[int], elements: int = POINTWISE_ELEMENTS) -> Blocks:
    """Blocks of a kernel that works element by element, or moves data."""
    *outer, last = capacity
    cols = _least_waste(last)
    blocks = [cols]
    if outer:
        blocks.insert(0, min(power_of_two(outer[-1]), max(elements // cols, 1)))
    warps = 8 if elements >= MOVED_ELEMENTS else 4
    return Blocks((*[0] * (len(outer) - 1), *blocks), warps=warps)


def row_blocks(capacity: Sequence[int]) -> Blocks:
    """Blocks of a kernel that sums over rows: whole rows, and as many as make enough elements."""
    rows, cols = capacity
    width = power_of_two(cols)
    height = min(power_of_two(rows), max(POINTWISE_ELEMENTS // width, 1))
    return Blocks((height, width), warps=4 if width <= POINTWISE_ELEMENTS else 8)


def has_reductions(func: core.FuncOp) -> bool:
    """Whether a kernel makes one element of a row."""
    return any(isinstance(op, core.ReduceOp) for op in func.body.block.ops)


def _least_waste(size: int) -> int:
    """The width, up to WIDEST, whose blocks reach least beyond the size; the widest of those."""
    widths = [w for w in (1024, 512, 256, 128) if w <= power_of_two(size)]
    if size <= WIDEST and (power_of_two(size) == size or not widths):
        return power_of_two(size)
    return min(widths, key=lambda w: (-(-size // w) * w, -w))


def dot_blocks(func: core.FuncOp, capacity: Sequence[int], target: Target) -> Blocks:
    """Blocks of a kernel with products."""
    dots = [op for op in func.body.block.ops if isinstance(op, core.DotOp)]
    rows = min(max(power_of_two(capacity[0]), LEAST), MOST_ROWS)
    cols = min(max(power_of_two(capacity[1]), LEAST), MOST_COLS)
    while rows * cols * len(dots) > MOST_SUMS and cols > LEAST:
        cols //= 2
    while rows * cols * len(dots) > MOST_SUMS:
        rows //= 2
    element = max(DTYPE_BYTES[dtype_name(core.tile_type(d.lhs).element_type)] for d in dots)
    summed = max(core.tile_type(d.lhs).dims[1] for d in dots)
    depth = max(min(target.block_k * 2 // element, power_of_two(summed)), LEAST)
    stage_bytes = (rows + cols) * depth * element
    ahead = min(target.shared_bytes, MOST_AHEAD_BYTES)
    stages = min(target.stages, max(ahead // stage_bytes, 1))
    # 128 registers a thread at most, and at least 256 threads for tiles of 128 by 128.
    warps = 8 if rows * cols * len(dots) * 64 >= MOST_SUMS * target.warp else 4
    overlap = 2 * stage_bytes if stages > 1 and summed > 2 * depth else 0
    # Float32 is multiplied exactly, which no matrix unit does.
    on_unit = len(dots) if element < DTYPE_BYTES["f32"] else 0
    return Blocks((rows, cols), depth, warps, stages, on_unit, overlap)


def deepest(blocks: Blocks, target: Target, stored_bytes: int) -> Blocks:
    """As many stages of 2-byte operands as fit beside what is stored meanwhile."""
    rows, cols = blocks.blocks
    left = target.shared_bytes - rows * min(cols, STORED_COLUMNS) * stored_bytes - BARRIER_BYTES
    stages = min(target.stages, left // ((rows + cols) * blocks.depth * 2))
    return replace(blocks, stages=max(stages, blocks.stages))


def has_dots(func: core.FuncOp) -> bool:
    """Whether a kernel multiplies matrices."""
    return any(isinstance(op, core.DotOp) for op in func.body.block.ops)
