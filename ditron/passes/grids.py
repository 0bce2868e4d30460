"""Build grids: what several passes share when they write device IR."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from xdsl.dialects.builtin import DenseIntElementsAttr, LocationAttr, TensorType, i32
from xdsl.ir import Block, Operation, Region, SSAValue

from ditron.ir import device
from ditron.ir.index import INDEX, Index, Ssa
from ditron.plan.expr import Expr


class GridBuilder:
    """One grid in the making; ops get its location."""

    def __init__(
        self, name: str, engine: str, bounds: Mapping[str, int], location: LocationAttr
    ) -> None:
        self.name, self.engine, self.location = name, engine, location
        self.bounds = tuple(bounds.values())
        self.block = Block(arg_types=[INDEX] * len(bounds))
        for arg, hint in zip(self.block.args, bounds, strict=True):
            arg.name_hint = hint
        self.coords = dict(zip(bounds, map(Ssa, self.block.args), strict=True))

    def __getitem__(self, dim: str) -> Expr:
        """The coordinate of a named dimension."""
        return self.coords[dim]

    def add(self, op: Operation) -> None:
        """Append an op."""
        op.location = self.location
        self.block.add_op(op)

    def index(self, name: str, value: Index) -> Expr:
        """Give an index expression a name."""
        op = device.IndexOp(value)
        op.result.name_hint = name
        self.add(op)
        return Ssa(op.result)

    def table(self, name: str, values: Sequence[object], at: Sequence[Index]) -> Expr:
        """Look up a constant table (nested lists of integers)."""
        table = np.array(values, np.int64)
        type_ = TensorType(i32, table.shape)
        dense = DenseIntElementsAttr.from_list(type_, table.reshape(-1).tolist())
        op = device.TableOp(dense, at)
        op.result.name_hint = name
        self.add(op)
        return Ssa(op.result)

    def only_where(self, condition: Index) -> None:
        """Mask the tasks for which the condition does not hold; views come before."""
        self.add(device.ScheduleOp(where=condition))

    def view(
        self,
        buffer: SSAValue,
        offsets: Sequence[Index],
        sizes: Sequence[Index],
        capacity: Sequence[int],
        at: Index | None = None,
        axes: Sequence[int] | None = None,
    ) -> SSAValue:
        """A box of a buffer, whose dimensions `axes` the view's are part of."""
        op = device.ViewOp(buffer, offsets, sizes, capacity, at, axes)
        self.add(op)
        return op.result

    def finish(self) -> device.GridOp:
        """The grid op."""
        grid = device.GridOp(self.name, self.engine, self.bounds, Region(self.block))
        grid.location = self.location
        return grid


class Names:
    """Distinct symbol names: `matmul`, `matmul_1`, ..."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = set(taken)

    def fresh(self, wanted: str) -> str:
        """`wanted` as an identifier, numbered where it is taken."""
        base = "".join(c if c.isalnum() else "_" for c in wanted)
        base = base if base[:1].isalpha() else f"op_{base}"
        name, number = base, 0
        while name in self.taken:
            number += 1
            name = f"{base}_{number}"
        self.taken.add(name)
        return name


def names_in(program: device.ProgramOp) -> Names:
    """Names for new grids and kernels of a program."""
    grids = (op for op in program.body.block.ops if isinstance(op, device.GridOp))
    return Names({program.program_name.data, *(g.sym_name.data for g in grids)})
