"""What a block says, whatever its values are called: equal for blocks that do the same."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import Block, SSAValue


def said(block: Block, outside: Callable[[SSAValue], object]) -> tuple[object, ...]:
    """The types of a block's arguments, and its ops in order.

    Args:
        block: of ops without regions.
        outside: what stands for a value that the block does not make; asked once for each.
    """
    known: dict[SSAValue, object] = {arg: i for i, arg in enumerate(block.args)}
    ops: list[object] = []
    for op in block.ops:
        for operand in op.operands:
            if operand not in known:
                known[operand] = outside(operand)
        operands = tuple(known[operand] for operand in op.operands)
        types = tuple(result.type for result in op.results)
        known.update((result, (len(ops), i)) for i, result in enumerate(op.results))
        ops.append((op.name, operands, types, tuple(op.properties.items())))
    return tuple(arg.type for arg in block.args), tuple(ops)
