"""What a device program declares: its buffers and signals."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from ditron.builder.arguments import as_mesh, as_name, as_placements, as_shape, at_user_line
from ditron.builder.indices import Index, IndexLike, Scope, as_int
from ditron.builder.memory import Buffer, Signals
from ditron.builder.task import Program
from ditron.errors import MeshError, PlacementError, ProgramError, ShapeError
from ditron.ir import device, task
from ditron.ir.attrs import dtype_attr
from ditron.ir.index import Ssa
from ditron.ir.locations import caller_loc
from ditron.plan.callsite import user_line
from ditron.plan.dtypes import DType, as_dtype
from ditron.plan.expr import Expr
from ditron.plan.layout import Layout, axis_coordinate
from ditron.plan.placement import Mesh, Partial, Placement, show
from ditron.plan.spec import TensorSpec, check_spec, show_shape
from ditron.plan.tables import Memory, Role

if TYPE_CHECKING:
    import torch


class State(Enum):
    NEW = "has not been opened: use `with`"
    OPEN = "is open"
    CLOSED = "is closed: its `with` block has ended"
    FAILED = "is unusable: its `with` block raised an error"


class Declarations:
    """The rank, buffers and signals of a device program.

    Attributes:
        implements: the task program whose outputs it makes, if it is to be held against one.
        tensors: what comes in and out, by buffer name.
    """

    def __init__(self, name: str, mesh: Mesh, implements: Program | None) -> None:
        with at_user_line():
            self.name, self.mesh = as_name(name, "a device program"), as_mesh(mesh, several=True)
            if implements is not None and implements.mesh != mesh:
                message = f"{name} is on {mesh}, but implements a program on {implements.mesh}"
                raise MeshError(message)
        self.implements = implements
        self.state = State.NEW
        self.where, self.location = user_line(), caller_loc()
        self.scope = Scope(f"program {name}", (), (mesh.ranks,))
        self.tensors: dict[str, tuple[Role, TensorSpec]] = {}
        self.buffers: list[Buffer] = []
        self.signal_arrays: list[Signals] = []
        self.rank_op = device.RankOp()
        self.rank_op.result.name_hint = "me"
        self.rank_op.location = self.location
        self.scope.values[self.rank_op.result] = np.arange(mesh.ranks)

    @property
    def rank(self) -> Index:
        """This rank's number, 0 to ranks - 1."""
        return Index(self.scope, Ssa(self.rank_op.result))

    def coordinate(self, axis: str) -> Index:
        """This rank's number along one axis of the mesh."""
        with at_user_line():
            me = Ssa(self.rank_op.result)
            return Index(self.scope, axis_coordinate(self.mesh, self.mesh.index(axis), me))

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return self.mesh.ranks

    def input(
        self,
        name: str,
        shape: Sequence[int] | None = None,
        dtype: DType | torch.dtype | None = None,
        placements: Placement | Sequence[Placement] | None = None,
        *,
        symmetric: bool = False,
    ) -> Buffer:
        """A buffer that every run fills with a rank's part of a tensor.

        Global shape, dtype and placements are those of the input of this name in `implements`, or
        given here. Peers may touch it if `symmetric`.
        """
        return self._tensor(Role.INPUT, name, (shape, dtype, placements), symmetric=symmetric)

    def weight(
        self,
        name: str,
        shape: Sequence[int] | None = None,
        dtype: DType | torch.dtype | None = None,
        placements: Placement | Sequence[Placement] | None = None,
        *,
        symmetric: bool = False,
    ) -> Buffer:
        """A buffer as `input`, but filled once and kept between runs."""
        return self._tensor(Role.WEIGHT, name, (shape, dtype, placements), symmetric=symmetric)

    def output(
        self,
        name: str,
        shape: Sequence[int] | None = None,
        dtype: DType | torch.dtype | None = None,
        placements: Placement | Sequence[Placement] | None = None,
        *,
        symmetric: bool = False,
    ) -> Buffer:
        """A buffer as `input`, but what every run returns."""
        return self._tensor(Role.OUTPUT, name, (shape, dtype, placements), symmetric=symmetric)

    def scratch(
        self,
        name: str,
        shape: Sequence[int],
        dtype: DType | torch.dtype,
        *,
        extent: Sequence[IndexLike] | None = None,
        symmetric: bool = False,
    ) -> Buffer:
        """Memory of `shape` on every rank; `extent` is what a rank has of it, by default all."""
        with at_user_line():
            dims = as_shape(shape, f"scratch {name}")
            if not dims or min(dims) < 1:
                message = f"scratch {name} needs positive sizes, got {dims}"
                raise ShapeError(message)
            sizes = dims if extent is None else extent
            exprs = [self.scope.index(s, "an extent").expr for s in sizes]
            kind = dims, as_dtype(dtype).name
            return self._buffer(Role.SCRATCH, name, kind, exprs, symmetric=symmetric)

    def signals(self, name: str, size: int) -> Signals:
        """Signal words on every rank, 0 before the first launch and never reset."""
        with at_user_line():
            self.require_open()
            count = as_int(size, f"the size of signals {name}")
            if count < 1:
                message = f"signals {name} needs at least one slot, got {count}"
                raise ProgramError(message)
            op = device.SignalsOp(as_name(name, "signals"), count)
            op.location = caller_loc()
            self.take(name, [s.name for s in self.signal_arrays], "signals")
            self.signal_arrays.append(Signals(self, op))
            return self.signal_arrays[-1]

    def _tensor(
        self,
        role: Role,
        name: str,
        given: tuple[object, object, object],
        *,
        symmetric: bool,
    ) -> Buffer:
        """A buffer for a rank's part of a tensor."""
        with at_user_line():
            what = f'{role} "{as_name(name, role)}"'
            spec = self._spec(what, name, role, given)
            layout, me = Layout(spec, self.mesh), Ssa(self.rank_op.result)
            dims = [max(size, 1) for size in layout.capacities()]
            extent = [layout.extent(d, me) for d in range(len(dims))]
            buffer = self._buffer(role, name, (dims, spec.dtype), extent, symmetric=symmetric)
            self.tensors[name] = role, spec
            return buffer

    def _spec(
        self, what: str, name: str, role: Role, given: tuple[object, object, object]
    ) -> TensorSpec:
        """What a tensor is: as in the program that is implemented, or as given."""
        known = self.implemented
        if self.implements is not None and known.get(name, (None,))[0] is not role:
            names = ", ".join(n for n, (r, _) in known.items() if r is role) or "none"
            message = f"{what}: {self.implements!r} has no such {role}; it has {names}"
            raise ProgramError(message)
        if self.implements is not None and given == (None, None, None):
            return known[name][1]
        shape, dtype, placements = given
        if shape is None or dtype is None or placements is None:
            message = f"{what} needs shape, dtype and placements, or implements=... that says them"
            raise ProgramError(message)
        dims = as_shape(shape, what)
        layout = as_placements(placements, self.mesh, len(dims), what)
        spec = TensorSpec(dims, as_dtype(dtype).name, layout)
        check_spec(spec, len(self.mesh.axes), what)
        if self.implements is not None and spec != known[name][1]:
            message = f"{what} is {spec}, but {known[name][1]} in {self.implements!r}"
            raise ProgramError(message)
        if Partial() in layout and role is not Role.OUTPUT:
            message = f"{what} cannot be {show(layout)}: pass the sum, as Shard or Replicate"
            raise PlacementError(message)
        return spec

    @cached_property
    def implemented(self) -> dict[str, tuple[Role, TensorSpec]]:
        """What comes into and out of the program that is implemented."""
        if self.implements is None:
            return {}
        program = next(op for op in self.implements.ir.ops if isinstance(op, task.ProgramOp))
        found: dict[str, tuple[Role, TensorSpec]] = {}
        for op in program.inputs:
            role = Role.WEIGHT if isinstance(op, task.WeightOp) else Role.INPUT
            found[op.tensor_name.data] = role, task.spec_of(op.result)
        for op in program.outputs:
            found[op.tensor_name.data] = Role.OUTPUT, task.spec_of(op.operand)
        return found

    def _buffer(
        self,
        role: Role,
        name: str,
        kind: tuple[Sequence[int], str],
        extent: Sequence[Expr],
        *,
        symmetric: bool,
    ) -> Buffer:
        self.require_open()
        self.take(as_name(name, role), [b.name for b in self.buffers], "buffer")
        dims, dtype = kind
        if len(extent) != len(dims):
            message = f"buffer {name} has {len(dims)} dimensions, but an extent of {len(extent)}"
            raise ShapeError(message)
        parts = [np.broadcast_to(self.scope.evaluate(e), (self.ranks,)) for e in extent]
        sizes = np.stack(parts, axis=1)
        if (sizes < 0).any() or (sizes > np.array(dims)).any():
            rank = int(np.argmax(((sizes < 0) | (sizes > np.array(dims))).any(axis=1)))
            message = (
                f"buffer {name} is {show_shape(dims)} at most, but has an extent of"
                f" {show_shape(sizes[rank].tolist())} on rank {rank}"
            )
            raise ShapeError(message)
        memory = Memory.SYMMETRIC if symmetric else Memory.LOCAL
        type_ = device.BufferType.get(dims, dtype_attr(dtype), memory)
        op = device.BufferOp(name, role, extent, type_)
        op.location = caller_loc()
        self.buffers.append(Buffer(self, op, sizes, user_line()))
        return self.buffers[-1]

    def take(self, name: str, names: Sequence[str], what: str) -> None:
        """A name is used once."""
        if name in names:
            message = f"device program {self.name} has a {what} called {name} already"
            raise ProgramError(message)

    def require_open(self) -> None:
        """Declarations and grids belong inside the block."""
        if self.state is not State.OPEN:
            self.refuse("buffers, signals and grids belong inside the block")

    def refuse(self, why: str) -> NoReturn:
        """Raise an error that tells the state of the program."""
        message = f"device program {self.name} {self.state.value}; {why}"
        raise ProgramError(message, user_line())
