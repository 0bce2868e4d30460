"""A kernel's parameters and index values: collected while its body is written."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from xdsl.dialects.builtin import DenseIntElementsAttr
from xdsl.ir import Operation, SSAValue

from ditron.backends.triton.expressions import Range, number, range_of
from ditron.backends.triton.names import Names
from ditron.errors import PlanError
from ditron.ir import device
from ditron.ir.index import Ssa, leaves
from ditron.plan.expr import Binary, Expr, as_expr
from ditron.plan.tables import Ints
from ditron.runtime.gpu_program import Argument, What

POINTERS = {
    "f32": "fp32", "bf16": "bf16", "f16": "fp16", "f64": "fp64",
    "i32": "i32", "i64": "i64", "bool": "u8",
}  # fmt: skip
TYPES = {
    "f32": "tl.float32", "bf16": "tl.bfloat16", "f16": "tl.float16", "f64": "tl.float64",
    "i32": "tl.int32", "i64": "tl.int64", "bool": "tl.uint8",
}  # fmt: skip


class Parameters:
    """The parameters that a kernel's code has asked for, in a fixed order."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.found: dict[tuple[What, str], Argument] = {}

    def _ask(self, wish: str, what: What, of: str, type_: str, block: tuple[int, ...] = ()) -> str:
        key = (what, f"{of}{list(block)}" if block else of)
        if key not in self.found:
            self.found[key] = Argument(self.names.fresh(wish), what, of, type_, block)
        return self.found[key].name

    def _take(self, name: str, what: What, type_: str) -> str:
        self.found.setdefault((what, ""), Argument(name, what, "", type_))
        return name

    def buffer(self, name: str, dtype: str) -> str:
        """A pointer to this rank's buffer."""
        return self._ask(name, What.BUFFER, name, f"*{POINTERS[dtype]}")

    def tiles(self, name: str, dtype: str, block: tuple[int, ...]) -> str:
        """This rank's buffer as a tensor descriptor of blocks."""
        type_ = f"tensordesc<{POINTERS[dtype]}{list(block)}>"
        return self._ask(f"{name}_tiles", What.TILES, name, type_, block)

    def buffer_at(self, name: str) -> str:
        """The addresses of a buffer on all ranks."""
        return self._ask(f"{name}_at", What.BUFFER_AT, name, "*i64")

    def signals(self, name: str) -> str:
        """A pointer to this rank's slots."""
        return self._ask(name, What.SIGNALS, name, "*i32")

    def signals_at(self, name: str) -> str:
        """The addresses of the slots on all ranks."""
        return self._ask(f"{name}_at", What.SIGNALS_AT, name, "*i64")

    def table(self, wish: str, key: str) -> str:
        """A pointer to an int32 constant."""
        return self._ask(wish, What.TABLE, key, "*i32")

    def control(self) -> str:
        """This rank's control words."""
        return self._take("control", What.CONTROL, "*i32")

    def stamps(self, grid: str) -> str:
        """When tasks begin and end, from a grid's first of this rank on."""
        self.found.setdefault((What.STAMPS, ""), Argument("stamps", What.STAMPS, grid, "*i64"))
        return "stamps"

    def rank(self, name: str) -> str:
        """This rank's number, under a name that it has already."""
        return self._take(name, What.RANK, "i32")

    def in_order(self) -> tuple[Argument, ...]:
        """Buffers first, then signals, tables, control words and the rank."""
        order = list(What)
        return tuple(sorted(self.found.values(), key=lambda a: order.index(a.what)))


class IndexValues:
    """The rank, grid coordinates and index ops as variables; only those in use are written."""

    def __init__(
        self,
        program: device.ProgramOp,
        outer: Iterable[SSAValue],
        grid: device.GridOp,
        parameters: Parameters,
        tables: dict[str, Ints],
    ) -> None:
        # The program's own: a scan of its ops for every grid would grow with their product.
        self.outer = [value.owner for value in outer if isinstance(value.owner, Operation)]
        self.grid = grid
        self.parameters, self.tables = parameters, tables
        self.names = parameters.names
        self._names: dict[SSAValue, str] = {}
        self._ranges: dict[SSAValue, Range] = {}
        self._used: set[SSAValue] = set()
        # Of lookups that are alike, the first.
        self._lookups: dict[tuple[object, ...], SSAValue] = {}
        self._same: dict[SSAValue, SSAValue] = {}
        for op in self.outer:
            if isinstance(op, device.RankOp):
                self._know(op.result, Range(0, program.n - 1), "me")
        for op in self._index_ops(self.outer):
            self._know_op(op)
        for arg, bound in zip(grid.body.block.args, grid.dims, strict=True):
            self._know(arg, Range(0, max(bound - 1, 0)), arg.name_hint or "i")
        for op in self._index_ops(grid.body.block.ops):
            self._know_op(op)

    @staticmethod
    def _index_ops(ops: Iterable[Operation]) -> list[device.IndexOp | device.TableOp]:
        return [o for o in ops if isinstance(o, device.IndexOp | device.TableOp)]

    def _know(self, value: SSAValue, range_: Range, hint: str) -> None:
        self._ranges[value] = range_
        self._names[value] = self.names.fresh(hint)

    def _know_op(self, op: device.IndexOp | device.TableOp) -> None:
        if isinstance(op, device.IndexOp):
            range_ = range_of(leaves(op.args, op.expr)[0], self)
        else:
            key = (op.values, op.at, *op.args)
            self._same[op.result] = self._lookups.setdefault(key, op.result)
            if self._same[op.result] is not op.result:
                return
            values = list(op.values.get_values())
            range_ = Range(int(min(values)), int(max(values)))
        self._know(op.result, range_, op.result.name_hint or "entry")

    def range(self, value: SSAValue) -> Range:
        """What a value may be."""
        return self._ranges[self._same.get(value, value)]

    def use(self, value: SSAValue) -> str:
        """The variable of a value."""
        value = self._same.get(value, value)
        name = self._names[value]
        if value not in self._used:
            self._used.add(value)
            if isinstance(value.owner, device.RankOp):
                self.parameters.rank(name)
        return name

    def define(self, inner: bool) -> list[str]:
        """Lines that define what is used: of the grid (`inner`) or of the program."""
        lines: list[str] = []
        for op in reversed(self._index_ops(self.grid.body.block.ops if inner else self.outer)):
            if op.results[0] in self._used:
                lines.append(f"{self._names[op.results[0]]} = {self._definition(op)}")
        if inner:
            lines += reversed(self._coordinates())
        return lines[::-1]

    def _definition(self, op: Operation) -> str:
        if isinstance(op, device.IndexOp):
            return number(leaves(op.args, op.expr)[0], self)
        assert isinstance(op, device.TableOp)
        pointer = self._table(_table(op.values, op.shape), self._names[op.result])
        at = as_expr(0)
        for index, size in zip(leaves(op.args, op.at), op.shape, strict=True):
            at = at * size + index
        return f"tl.load({pointer} + {number(at, self)})"

    def _table(self, table: Ints, name: str) -> str:
        """The parameter that a table is passed by, one for all tables that are equal."""
        for (what, key), argument in self.parameters.found.items():
            if what is What.TABLE and np.array_equal(self.tables[key], table):
                return argument.name
        key = f"{self.grid.label}.{name}"
        self.tables[key] = table
        return self.parameters.table(f"{name}_of", key)

    def _coordinates(self) -> list[str]:
        """Grid coordinates from the task's number, row-major."""
        lines: list[str] = []
        inner = 1
        pairs = list(zip(self.grid.body.block.args, self.grid.dims, strict=True))
        for at, (arg, bound) in reversed(list(enumerate(pairs))):
            if arg in self._used:
                text = "task" if inner == 1 else f"task // {inner}"
                outermost = all(b == 1 for _, b in pairs[:at])
                text = text if outermost else f"{text} % {bound}"
                lines.append(f"{self._names[arg]} = {text}")
            inner *= bound
        return lines[::-1]

    def at_rank(self, expr: Expr, rank: Expr) -> Expr:
        """A program-level expression as it is on another rank."""
        match expr:
            case Ssa(value=value) if isinstance(value.owner, device.RankOp):
                return rank
            case Ssa(value=value) if isinstance(value.owner, device.IndexOp):
                op = value.owner
                return self.at_rank(leaves(op.args, op.expr)[0], rank)
            case Ssa():
                raise PlanError("a size that is looked up in a table cannot be told of a peer")
            case Binary(op, lhs, rhs):
                return Binary(op, self.at_rank(lhs, rank), self.at_rank(rhs, rank))
            case _:
                return expr


def _table(values: DenseIntElementsAttr, shape: tuple[int, ...]) -> Ints:
    return np.array(list(values.get_values()), np.int32).reshape(shape)
