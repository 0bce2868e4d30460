"""Which views of a product are moved block by block by the GPU's own copy engine for tiles (TMA).

A block of a tensor descriptor reads as 0 beyond the buffer's end and is not written there. So it
may stand for a view where blocks reach beyond the view only at the buffer's end: along what a
product sums over, and in what is stored. Rows and columns of operands that belong to a neighbouring
tile are loaded with the block and multiplied; what comes of them is not stored.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import SSAValue

from ditron.backends.triton.blocks import STORED_COLUMNS, Blocks
from ditron.backends.triton.facts import GridFacts
from ditron.backends.triton.views import strides_of
from ditron.ir import core, device
from ditron.plan.tables import DTYPE_BYTES

# Bytes that a row's length and a block's place in it are multiples of.
ALIGNMENT = 16
# Float32 operands are multiplied exactly, which no unit does that reads descriptors' blocks.
DTYPES = ("bf16", "f16")

Shape = tuple[int, int]


def descriptor_blocks(
    func: core.FuncOp, blocks: Blocks, grid: device.GridOp, facts: GridFacts, *, stores: bool
) -> dict[int, Shape]:
    """The block of each view that goes by a descriptor, by the view's number.

    Args:
        func: the kernel, with products.
        blocks: how it is cut.
        grid: that calls it.
        facts: what is known of the grid.
        stores: whether results may be stored so: their writes are out at the kernel's end only.
    """
    found: dict[int, Shape] = {}
    for number, (block, exact) in _blocks(func, blocks).items():
        view = grid.views[number]
        if func.writes(number) and not stores:
            continue
        if _fits(view, block) and all(
            _ends_with_buffer(facts, view, number, d, block[d]) for d in exact
        ):
            columns = facts.grid.of(view.offset_args, view.offsets)[1][facts.runs]
            if (columns * _element(view) % ALIGNMENT == 0).all():
                found[number] = block
    return found


def _blocks(func: core.FuncOp, blocks: Blocks) -> dict[int, tuple[Shape, tuple[int, ...]]]:
    """Blocks of arguments that are only a product's operand or only stored.

    With each come the dimensions along which nothing beyond the view may be touched.
    """
    rows, cols = blocks.blocks
    args: list[SSAValue] = list(func.body.block.args)
    found: dict[int, tuple[Shape, tuple[int, ...]]] = {}
    several: set[int] = set()

    def add(view: SSAValue, block: Shape, exact: tuple[int, ...]) -> None:
        number = args.index(view)
        if len(set(view.uses)) > 1:
            several.add(number)
        found[number] = (block, exact)

    for op in func.body.block.ops:
        if isinstance(op, core.StoreOp):
            add(op.view, (rows, min(cols, STORED_COLUMNS)), (0, 1))
        elif isinstance(op, core.DotOp):
            for view in _loaded(op.lhs):
                add(view, (rows, blocks.depth), (1,))
            for view in _loaded(op.rhs):
                if op.transpose_b is not None:
                    add(view, (cols, blocks.depth), (1,))
                else:
                    add(view, (blocks.depth, cols), (0,))
    return {n: f for n, f in found.items() if n not in several}


def _loaded(tile: SSAValue) -> Iterator[SSAValue]:
    """The view that an operand is loaded from, where nothing is done to it on the way."""
    if isinstance(tile.owner, core.LoadOp) and len(set(tile.uses)) == 1:
        yield tile.owner.view


def _element(view: device.ViewOp) -> int:
    return DTYPE_BYTES[buffer_type(view).dtype]


def buffer_type(view: device.ViewOp) -> device.BufferType:
    """The type of the buffer that a view is of."""
    owner = view.buffer.owner
    assert isinstance(owner, device.BufferOp)
    return owner.result.type


def _fits(view: device.ViewOp, block: Shape) -> bool:
    type_ = buffer_type(view)
    if (
        view.at is not None
        or view.axes is not None
        or len(type_.dims) != len(block)
        or type_.dtype not in DTYPES
    ):
        return False
    return strides_of(type_.dims)[0] * _element(view) % ALIGNMENT == 0


def _ends_with_buffer(
    facts: GridFacts, view: device.ViewOp, number: int, dim: int, block: int
) -> bool:
    """Whether no block reaches beyond a view but where the buffer ends."""
    size, rest = facts.sizes(number, dim), facts.rest(view, number, dim)
    return bool(((size % block == 0) | (size == rest)).all())
