"""What the grids of a device program work on: buffers, views of them, and signals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from xdsl.ir import SSAValue

from ditron.builder.indices import Index
from ditron.ir import device
from ditron.plan.dtypes import DTYPES, DType
from ditron.plan.expr import Values
from ditron.plan.spec import show_shape
from ditron.plan.tables import Longs, Memory, Role

if TYPE_CHECKING:
    from ditron.builder.declarations import Declarations
    from ditron.builder.grid import Grid


@dataclass(frozen=True, eq=False)
class Buffer:
    """Memory on every rank.

    Attributes:
        extent: what each rank has of it, [ranks, dimensions]; at most `shape`.
        where: the line that it was made at.
    """

    program: Declarations
    op: device.BufferOp
    extent: Longs
    where: str | None

    @property
    def name(self) -> str:
        return self.op.buffer_name.data

    @property
    def ssa(self) -> SSAValue:
        return self.op.result

    @property
    def shape(self) -> tuple[int, ...]:
        """The most that any rank has."""
        return self.op.result.type.dims

    @property
    def dtype(self) -> DType:
        return DTYPES[self.op.result.type.dtype]

    @property
    def role(self) -> Role:
        return Role(self.op.role.data)

    @property
    def symmetric(self) -> bool:
        """Whether peers may touch it."""
        return self.op.result.type.memory.data == Memory.SYMMETRIC

    def __repr__(self) -> str:
        return f"buffer {self.name} {show_shape(self.shape)} {self.dtype}"


@dataclass(frozen=True, eq=False)
class Signals:
    """An array of signal words on every rank."""

    program: Declarations
    op: device.SignalsOp

    @property
    def name(self) -> str:
        return self.op.signals_name.data

    @property
    def ssa(self) -> SSAValue:
        return self.op.result

    @property
    def size(self) -> int:
        """How many slots each rank has."""
        return self.op.result.type.size.data

    def __repr__(self) -> str:
        return f"signals {self.name} of {self.size} slots"


@dataclass(frozen=True, eq=False)
class View:
    """A box of a buffer, on this rank or at a peer, for each task of a grid."""

    grid: Grid
    op: device.ViewOp
    buffer: Buffer
    starts: Sequence[Index]
    sizes: Sequence[Index]
    peer: Index | None
    where: str | None

    @property
    def program(self) -> Declarations:
        return self.grid.program

    @property
    def ssa(self) -> SSAValue:
        return self.op.result

    @property
    def shape(self) -> tuple[int, ...]:
        """The most that it holds."""
        return self.op.result.type.dims

    def owner(self) -> Values:
        """The rank whose memory it is, at each point."""
        shape = self.grid.scope.shape
        mine = np.arange(shape[0]).reshape(-1, *[1] * (len(shape) - 1))
        return mine if self.peer is None else self.peer.values()

    def clipped(self, dim: int) -> Values:
        """How long it is along a dimension, clipped to what its rank has, at each point."""
        start, size = self.starts[dim].values(), self.sizes[dim].values()
        owner = np.broadcast_to(self.owner(), self.grid.scope.shape)
        extent = self.buffer.extent[owner % len(self.buffer.extent), dim]
        return np.clip(extent - start, 0, np.maximum(size, 0))

    def __repr__(self) -> str:
        at = "" if self.peer is None else " at a peer"
        return f"view {show_shape(self.shape)} of {self.buffer.name}{at}"
