"""When the buffers of a device program hold something that is still needed."""

from __future__ import annotations

from dataclasses import dataclass

from ditron.ir import device
from ditron.plan.tables import Role


@dataclass(frozen=True)
class Lifetime:
    """A buffer, and the first and last grid that touch it, by number (-1, -1: none does).

    `private`: scratch that no peer touches.
    """

    buffer: device.BufferOp
    first: int
    last: int
    private: bool

    def meets(self, other: Lifetime) -> bool:
        """Whether the two must not share bytes.

        Memory that peers touch is not shared: each reuse would take signals between ranks.
        """
        if not (self.private and other.private):
            return True
        return self.first <= other.last and other.first <= self.last


def lifetimes(program: device.ProgramOp) -> list[Lifetime]:
    """The lifetime of each buffer, in program order."""
    block = program.body.block
    grids = [op for op in block.ops if isinstance(op, device.GridOp)]
    number = {grid: i for i, grid in enumerate(grids)}
    return [_lifetime(op, number) for op in block.ops if isinstance(op, device.BufferOp)]


def _lifetime(buffer: device.BufferOp, number: dict[device.GridOp, int]) -> Lifetime:
    users = [use.operation for use in buffer.result.uses]
    grids = {number[g] for u in users if isinstance(g := u.parent_op(), device.GridOp)}
    seen = any(isinstance(u, device.ViewOp) and u.at is not None for u in users)
    private = buffer.role.data == Role.SCRATCH and not seen
    return Lifetime(buffer, min(grids, default=-1), max(grids, default=-1), private)
