"""The device level: buffers, grids of transfers and kernel calls, and signals between ranks.

```python
with dt.DeviceProgram("my_ring", dt.Mesh(tp=4), implements=program()) as d:
    x, y = d.input("x"), d.output("y", symmetric=True)
    ready = d.signals("ready", 4)
    with d.grid("ring", engine="copy", s=3) as g:
        ...
```

It goes through the proofs that generated code goes through: `implements` says what its outputs
should hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from types import TracebackType
from typing import TYPE_CHECKING, Self

from xdsl.dialects.builtin import ModuleOp

from ditron.builder.arguments import as_name, at_user_line
from ditron.builder.declarations import Declarations, State
from ditron.builder.device_checks import check_hand_overs, check_tensors, check_waits
from ditron.builder.grid import Grid
from ditron.builder.indices import Index, IndexLike, Table, as_int, combined
from ditron.builder.task import Program, distinct_kernel
from ditron.errors import ProgramError
from ditron.ir import core, device
from ditron.ir.dominance import check_dominance
from ditron.plan.callsite import user_line
from ditron.plan.expr import as_expr, binary
from ditron.plan.limits import MAX_TASKS
from ditron.plan.placement import Mesh

if TYPE_CHECKING:
    import torch


class DeviceProgram(Declarations):
    """What every rank of a mesh does, told once; written inside its `with` block."""

    def __init__(self, name: str, mesh: Mesh, *, implements: Program | None = None) -> None:
        super().__init__(name, mesh, implements)
        self.grids: list[tuple[Grid, device.GridOp]] = []
        self._kernels: dict[str, core.FuncOp] = {}
        self._grid: Grid | None = None
        self._module: ModuleOp | None = None

    def __enter__(self) -> Self:
        if self.state is not State.NEW:
            self.refuse("a program is opened once")
        self.state = State.OPEN
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.state = State.FAILED
        if kind is not None:
            return
        check_tensors(self)
        check_hand_overs(self)
        module = self._assemble()
        module.verify()
        check_dominance(module)
        check_waits(self, module)
        self._module, self.state = module, State.CLOSED

    def grid(self, name: str, *, engine: str, queue: bool = False, **bounds: int) -> Grid:
        """A grid of tasks: on every rank one for each point of the bounds.

        Engines: "sm" computes and copies, "copy" copies, "host" hands buffers over. Without bounds
        it is one task a rank.
        """
        with at_user_line():
            self.require_open()
            if engine not in device.ENGINES:
                message = f"grid {name}: no engine {engine!r}; there is {', '.join(device.ENGINES)}"
                raise ProgramError(message)
            sizes = {d: as_int(b, f"bound {d} of grid {name}") for d, b in bounds.items()}
            if any(b < 0 for b in sizes.values()) or len(sizes) > device.MAX_GRID_DIMS:
                message = (
                    f"grid {name} has at most {device.MAX_GRID_DIMS} bounds, none negative, got"
                    f" {sizes}"
                )
                raise ProgramError(message)
            if prod(sizes.values()) * self.mesh.ranks > MAX_TASKS:
                raise ProgramError(f"grid {name} has over {MAX_TASKS} tasks on all ranks: {sizes}")
            self.take(as_name(name, "a grid"), [g.name for g, _ in self.grids], "grid")
            return Grid(self, name, engine, sizes, queue=queue)

    def index(self, name: str, value: IndexLike) -> Index:
        """Give an index a name in the IR."""
        return self.scope.named(name, value)

    def table(self, values: object) -> Table:
        """Integers to look up, as in `d.table([3, 1, 2, 0])[d.rank]`; nested for more indices."""
        return Table(self.scope, values)

    def min(self, a: IndexLike, b: IndexLike) -> Index:
        """The smaller index."""
        x, y = combined("min", Index(self.scope, as_expr(0)), a, b)[1:]
        return Index(x.scope, binary("min", x.expr, y.expr))

    def max(self, a: IndexLike, b: IndexLike) -> Index:
        """The larger index."""
        x, y = combined("max", Index(self.scope, as_expr(0)), a, b)[1:]
        return Index(x.scope, binary("max", x.expr, y.expr))

    @property
    def ir(self) -> ModuleOp:
        """A verified module, a fresh copy each time: kernels, what it implements, the program."""
        if self._module is None:
            self.refuse("its IR is complete when its `with` block has ended")
        return self._module.clone()

    def reference(
        self, inputs: Mapping[str, torch.Tensor], *, compute: torch.dtype | None = None
    ) -> dict[str, torch.Tensor]:
        """What it implements, on global tensors by torch alone.

        Raises:
            ProgramError: it implements nothing.
        """
        if self.implements is None:
            message = f"{self.name} has no reference: say which task program it implements"
            raise ProgramError(message, user_line())
        return self.implements.reference(inputs, compute=compute)

    def add_kernel(self, func: core.FuncOp) -> str:
        """Put a traced kernel beside the program; equal ones become one. Returns its name."""
        other = self.implements
        taken = () if other is None else (other.name, *other.kernels)
        return distinct_kernel(self._kernels, func, taken)

    def open_grid(self, grid: Grid) -> None:
        """A grid's block begins."""
        self.require_open()
        if self._grid is not None:
            self.refuse(f"but so is grid {self._grid.name}: grids stand one after another")
        self._grid = grid

    def close_grid(self, grid: Grid, op: device.GridOp | None) -> None:
        """A grid's block has ended; without an op it has failed."""
        self._grid = None
        if op is not None:
            self.grids.append((grid, op))
            self.scope.ops.append(op)

    def __repr__(self) -> str:
        return f'<DeviceProgram "{self.name}" on {self.mesh}>'

    def __str__(self) -> str:
        return str(self.ir)

    def _assemble(self) -> ModuleOp:
        program = device.ProgramOp(self.name, self.ranks)
        program.location = self.location
        # Outputs stand in the order of the program that is implemented.
        place = {name: i for i, name in enumerate(self.implemented)}
        buffers = sorted(self.buffers, key=lambda b: place.get(b.name, len(place)))
        declared = [*(b.op for b in buffers), *(s.op for s in self.signal_arrays)]
        program.body.block.add_ops([self.rank_op, *declared, *self.scope.ops])
        module = ModuleOp([]) if self.implements is None else self.implements.ir
        module.body.block.add_ops([*self._kernels.values(), program])
        return module
