"""Every value is defined before it is used: xDSL's own verifier does not look.

Structured IR has regions of one block, so program order decides. In a region of several blocks,
which no ditron dialect makes, values may be used anywhere in the region.
"""

from __future__ import annotations

from xdsl.ir import Operation, Region, SSAValue
from xdsl.utils.exceptions import VerifyException


def check_dominance(top: Operation) -> None:
    """Check everything inside `top`, in one pass: O(ops + uses).

    Raises:
        VerifyException: at the first op that uses a value defined later or elsewhere.
    """
    visible: set[SSAValue] = set(top.results)
    for region in top.regions:
        _check_region(region, visible)


def _check_region(region: Region, visible: set[SSAValue]) -> None:
    mine: list[SSAValue] = [arg for block in region.blocks for arg in block.args]
    structured = len(region.blocks) <= 1
    if not structured:
        mine.extend(r for block in region.blocks for op in block.ops for r in op.results)
    visible.update(mine)
    for block in region.blocks:
        for op in block.ops:
            _check_operands(op, visible)
            for inner in op.regions:
                _check_region(inner, visible)
            if structured:
                visible.update(op.results)
                mine.extend(op.results)
    visible.difference_update(mine)


def _check_operands(op: Operation, visible: set[SSAValue]) -> None:
    for index, value in enumerate(op.operands):
        if value not in visible:
            name = f" (%{value.name_hint})" if value.name_hint else ""
            msg = f"operand #{index}{name} is used before it is defined, or out of its scope"
            op.emit_error(msg, VerifyException(msg))
