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
# Of a product's tile so small that it only reads memory: elements, and how much deeper it loads.
THIN, THIN_DEPTH = 512, 4
# Elements of a row that are summed at once, and in loops; how far loads run ahead where there is
# room for that.
MOST_SUMMED, LOOPED_SUMMED, SUMMED_STAGES, SUMMED_AHEAD_BYTES = 16384, 2048, 3, 128 << 10
# Of a product of one row: columns, bytes of what is summed at once, and how far loads run ahead.
ROW_COLUMNS, ROW_DEPTH_BYTES, ROW_STAGES = 16, 1024, 3
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
        loops: whether what is summed at once is a loop's, also where one block holds all.
    """

    blocks: tuple[int, ...]
    depth: int = 0
    warps: int = 4
    stages: int = 1
    dots: int = 0
    pipeline_bytes: int = 0
    loops: bool = False


def pointwise_blocks(capacity: Sequence[int], elements: int = POINTWISE_ELEMENTS) -> Blocks:
    """Blocks of a kernel that works element by element, or moves data."""
    inner = [d for d, size in enumerate(capacity) if size > 1][-2:]
    blocks = [0] * len(capacity)
    left = elements
    for d in reversed(inner):
        blocks[d] = _least_waste(capacity[d]) if left == elements else power_of_two(capacity[d])
        blocks[d] = min(blocks[d], left)
        left //= blocks[d]
    blocks = [0 if block == 1 else block for block in blocks]
    return Blocks(tuple(blocks), warps=8 if elements >= MOVED_ELEMENTS else 4)


def row_blocks(func: core.FuncOp, capacity: Sequence[int], target: Target) -> Blocks:
    """Blocks of a kernel that sums: of what it sums as much as fits, and as many rows."""
    sums = [op for op in func.body.block.ops if isinstance(op, core.ReduceOp | core.ArgmaxOp)]
    summed = max(core.tile_type(op.operand).dims[op.dim_index] for op in sums)
    depth = power_of_two(summed) if summed <= MOST_SUMMED else LOOPED_SUMMED
    blocks, left = [0] * len(capacity), max(POINTWISE_ELEMENTS // depth, 1)
    along = {op.dim_index for op in sums if capacity[op.dim_index] > 1}
    for d in along:
        blocks[d] = min(power_of_two(capacity[d]), depth)
    for d in reversed(range(len(capacity))):
        if d not in along and capacity[d] > 1:
            blocks[d] = min(power_of_two(capacity[d]), left)
            left //= max(blocks[d], 1)
    blocks = [0 if block == 1 else block for block in blocks]
    kept = [d for d, block in enumerate(blocks) if block and d not in along]
    for d in kept[:-1]:
        blocks[d] = 0
    ahead = summed > depth and target.shared_bytes >= SUMMED_AHEAD_BYTES
    stages = SUMMED_STAGES if ahead else 1
    return Blocks(tuple(blocks), depth, 4 if depth <= POINTWISE_ELEMENTS else 8, stages)


def has_reductions(func: core.FuncOp) -> bool:
    """Whether a kernel makes one element of many."""
    return any(isinstance(op, core.ReduceOp | core.ArgmaxOp) for op in func.body.block.ops)


def _least_waste(size: int) -> int:
    """The width, up to WIDEST, whose blocks reach least beyond the size; the widest of those."""
    widths = [w for w in (1024, 512, 256, 128) if w <= power_of_two(size)]
    if size <= WIDEST and (power_of_two(size) == size or not widths):
        return power_of_two(size)
    return min(widths, key=lambda w: (-(-size // w) * w, -w))


def dot_blocks(func: core.FuncOp, capacity: Sequence[int], target: Target) -> Blocks:
    """Blocks of a kernel with products."""
    if capacity[-2] == 1:
        return vector_blocks(func, capacity)
    dots = [op for op in func.body.block.ops if isinstance(op, core.DotOp)]
    rows = min(max(power_of_two(capacity[-2]), LEAST), MOST_ROWS)
    cols = min(max(power_of_two(capacity[-1]), LEAST), MOST_COLS)
    while rows * cols * len(dots) > MOST_SUMS and cols > LEAST:
        cols //= 2
    while rows * cols * len(dots) > MOST_SUMS:
        rows //= 2
    element, summed = _operands(dots)
    thin = rows * cols <= THIN and element < DTYPE_BYTES["f32"]
    most = target.block_k * 2 // element * (THIN_DEPTH if thin else 1)
    depth = max(min(most, power_of_two(summed)), LEAST)
    stage_bytes = (rows + cols) * depth * element
    ahead = min(target.shared_bytes, MOST_AHEAD_BYTES)
    stages = min(target.stages, max(ahead // stage_bytes, 1))
    # 128 registers a thread at most, and at least 256 threads for tiles of 128 by 128.
    warps = 8 if rows * cols * len(dots) * 64 >= MOST_SUMS * target.warp else 4
    overlap = 2 * stage_bytes if stages > 1 and summed > 2 * depth else 0
    # Float32 is multiplied exactly, which no matrix unit does.
    on_unit = len(dots) if element < DTYPE_BYTES["f32"] else 0
    blocks = (*[0] * (len(capacity) - 2), rows, cols)
    return Blocks(blocks, depth, warps, stages, on_unit, overlap, loops=True)


def _operands(dots: Sequence[core.DotOp]) -> tuple[int, int]:
    """Bytes of an element of products' operands, and how far they sum, at most."""
    tiles = [core.tile_type(dot.lhs) for dot in dots]
    element = max(DTYPE_BYTES[dtype_name(tile.element_type)] for tile in tiles)
    return element, max(tile.dims[-1] for tile in tiles)


def vector_blocks(func: core.FuncOp, capacity: Sequence[int]) -> Blocks:
    """Blocks of products of one row, which only read memory: wide ones, on their way early."""
    dots = [op for op in func.body.block.ops if isinstance(op, core.DotOp)]
    element, summed = _operands(dots)
    depth = min(power_of_two(summed), ROW_DEPTH_BYTES // element)
    cols = min(power_of_two(capacity[-1]), ROW_COLUMNS)
    blocks = (*[0] * (len(capacity) - 1), cols)
    return Blocks(blocks, depth, warps=4, stages=ROW_STAGES if summed > depth else 1)


def attention_blocks(func: core.FuncOp, capacity: Sequence[int], target: Target) -> Blocks:
    """Blocks of a kernel whose products sum what is made of sums: rows and columns whole."""
    dots = [op for op in func.body.block.ops if isinstance(op, core.DotOp)]
    rows, cols = (min(max(power_of_two(c), LEAST), MOST_COLS) for c in capacity[-2:])
    rows = min(rows, MOST_ROWS // 2)
    narrow = min(DTYPE_BYTES[dtype_name(core.tile_type(d.lhs).element_type)] for d in dots)
    exact = narrow == DTYPE_BYTES["f32"]
    depth = 32 if exact else target.attended
    blocks = (*[0] * (len(capacity) - 2), rows, cols)
    stages = 1 if exact or target.shared_bytes < SUMMED_AHEAD_BYTES else 2
    return Blocks(blocks, depth, warps=4, stages=stages, dots=0 if exact else len(dots))


def deepest(blocks: Blocks, target: Target, stored_bytes: int) -> Blocks:
    """As many stages of 2-byte operands as fit beside what is stored meanwhile."""
    rows, cols = blocks.blocks
    left = target.shared_bytes - rows * min(cols, STORED_COLUMNS) * stored_bytes - BARRIER_BYTES
    stages = min(target.stages, left // ((rows + cols) * blocks.depth * 2))
    return replace(blocks, stages=max(stages, blocks.stages))


def has_dots(func: core.FuncOp) -> bool:
    """Whether a kernel multiplies matrices."""
    return any(isinstance(op, core.DotOp) for op in func.body.block.ops)
