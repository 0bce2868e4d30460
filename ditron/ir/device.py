"""device: one SPMD program for every rank: buffers, grids of tasks, transfers, signals.

    device.program @ag_gemm ranks 4 {
      %me = device.rank
      %x = device.buffer "x" input [128, 256] : !device.buffer<128x256xbf16, symmetric>
      %ready = device.signals "ready" : <8>
      device.grid @gather engine copy in (%p = 3, %c = 2) {
        %peer = device.index (%me + %p + 1) mod 4
        device.schedule lane [%p]
        %src = device.view %x[%c * 64, 0][64, 256] : ...
        %dst = device.view %xg[%me * 128 + %c * 64, 0][64, 256] at %peer : ...
        device.put %src -> %dst
        device.notify %ready[%me * 2 + %c] at %peer add 1 after put
      }
      ...

A grid's body is index arithmetic, views, waits, one body op, notifies; no loops, branches or
carried values. Tasks with one (rank, engine, lane) run in the order of the `schedule` keys (by
default the coordinates); a masked task (`where` false) or one whose boxes are empty still waits and
notifies.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from xdsl.dialects.builtin import (
    ArrayAttr,
    IndexType,
    IntAttr,
    IntegerAttr,
    StringAttr,
    SymbolNameConstraint,
    UnitAttr,
    i64,
)
from xdsl.ir import (
    Block,
    Dialect,
    Operation,
    Region,
    SSAValue,
)
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, NoTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from ditron.ir.attrs import ChoiceAttr
from ditron.ir.device_body import (
    BodyOp as BodyOp,
)
from ditron.ir.device_body import (
    CallOp as CallOp,
)
from ditron.ir.device_body import (
    CopyOp as CopyOp,
)
from ditron.ir.device_body import (
    GetOp as GetOp,
)
from ditron.ir.device_body import (
    IndexOp as IndexOp,
)
from ditron.ir.device_body import (
    Notify as Notify,
)
from ditron.ir.device_body import (
    NotifyOp as NotifyOp,
)
from ditron.ir.device_body import (
    PutOp as PutOp,
)
from ditron.ir.device_body import (
    ScheduleOp as ScheduleOp,
)
from ditron.ir.device_body import (
    TableOp as TableOp,
)
from ditron.ir.device_body import (
    Transfer as Transfer,
)
from ditron.ir.device_body import (
    ViewOp as ViewOp,
)
from ditron.ir.device_body import (
    Wait as Wait,
)
from ditron.ir.device_body import (
    WaitOp as WaitOp,
)
from ditron.ir.device_types import BufferType as BufferType
from ditron.ir.device_types import SignalsType as SignalsType
from ditron.ir.effects import ReadsAndWrites
from ditron.ir.index import ExprsAttr, Index, Indices, check_indices, leaves, number
from ditron.ir.keyword import Keyword, check_keyword
from ditron.plan.collectives import ALGORITHMS
from ditron.plan.expr import Expr
from ditron.plan.limits import MAX_RANKS
from ditron.plan.tables import LIBRARY, Role

ENGINES = ("sm", "copy", "host", LIBRARY)


class HandOverOp(BodyOp):
    """Passes a whole buffer between the host and a launch; counts as a write of all of it."""

    buffer = operand_def(BufferType)
    traits = traits_def(ReadsAndWrites())
    assembly_format = "$buffer attr-dict `:` type($buffer)"

    def __init__(self, buffer: SSAValue) -> None:
        super().__init__(operands=[buffer])


@irdl_op_definition
class AcquireOp(HandOverOp):
    """The host is done with this rank's buffer: peers may now touch it."""

    name = "device.acquire"


@irdl_op_definition
class ReleaseOp(HandOverOp):
    """The launch is done with this rank's buffer: the host may now touch it."""

    name = "device.release"


@irdl_op_definition
class ProgramOp(IRDLOperation):
    """A device program: what every rank does, told once.

    It is no symbol, since it bears the name of the task program that it was made from. If it is
    `persistent`, all its grids are one launch a rank.
    """

    name = "device.program"
    program_name = prop_def(SymbolNameConstraint())
    ranks = prop_def(IntegerAttr.constr(i64))
    heap_bytes = opt_prop_def(IntegerAttr.constr(i64))
    persistent = opt_prop_def(UnitAttr)
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), NoTerminator())
    assembly_format = (
        "$program_name `ranks` $ranks (`heap` $heap_bytes^)? (`persistent` $persistent^)?"
        " attr-dict-with-keyword $body"
    )

    def __init__(self, name: str, ranks: int) -> None:
        super().__init__(
            properties={"program_name": StringAttr(name), "ranks": IntegerAttr(ranks, i64)},
            regions=[Region(Block())],
        )

    @property
    def n(self) -> int:
        """How many ranks."""
        return self.ranks.value.data

    def verify_(self) -> None:
        if self.n < 1:
            raise VerifyException(f"a program runs on at least one rank, got {self.n}")
        if self.n > MAX_RANKS:
            raise VerifyException(f"a program runs on at most {MAX_RANKS} ranks, got {self.n}")
        for op in self.body.block.ops:
            if not isinstance(op, PROGRAM_OPS):
                raise VerifyException(f"{op.name} cannot stand in a device.program")
        for what in (BufferOp, SignalsOp, GridOp):
            names = [op.label for op in self.body.block.ops if isinstance(op, what)]
            if len(set(names)) < len(names):
                twice = next(n for n in names if names.count(n) > 1)
                raise VerifyException(f"two {what.name} are called {twice}")


@irdl_op_definition
class RankOp(IRDLOperation):
    """This rank's number, 0..ranks-1."""

    name = "device.rank"
    result = result_def(IndexType)
    traits = traits_def(Pure())
    assembly_format = "attr-dict"

    def __init__(self) -> None:
        super().__init__(result_types=[IndexType()])


@irdl_op_definition
class BufferOp(IRDLOperation):
    """Memory on every rank. `[...]` is each rank's size, at most the capacity in the type."""

    name = "device.buffer"
    buffer_name = prop_def(StringAttr)
    role = prop_def(StringAttr)
    args = var_operand_def(IndexType)
    extent = prop_def(ExprsAttr)
    offset = opt_prop_def(IntegerAttr.constr(i64))
    result = result_def(BufferType)
    traits = traits_def(ReadsAndWrites())
    custom_directives = (Indices, Keyword)
    assembly_format = (
        "$buffer_name custom<Keyword>($role) `[` custom<Indices>($args, $extent) `]`"
        " (`offset` $offset^)? attr-dict `:` type($result)"
    )

    def __init__(self, name: str, role: Role, extent: Sequence[Index], type_: BufferType) -> None:
        args, exprs = number(extent)
        super().__init__(
            operands=[args],
            properties={
                "buffer_name": StringAttr(name),
                "role": StringAttr(role),
                "extent": exprs,
            },
            result_types=[type_],
        )
        self.result.name_hint = (
            re.sub(r"\W", "_", name, flags=re.ASCII).lstrip("0123456789") or None
        )

    @property
    def label(self) -> str:
        return self.buffer_name.data

    @property
    def extents(self) -> list[Expr]:
        return leaves(self.args, self.extent)

    def verify_(self) -> None:
        check_keyword(self, "role", self.role, tuple(Role))
        type_ = self.result.type
        if len(self.extent.data) != len(type_.dims):
            raise VerifyException(f"device.buffer gives one size a dimension of {type_}")
        check_indices(self, extent=None)


@irdl_op_definition
class SignalsOp(IRDLOperation):
    """Signal words on every rank, zero before the first launch and never reset."""

    name = "device.signals"
    signals_name = prop_def(StringAttr)
    result = result_def(SignalsType)
    traits = traits_def(ReadsAndWrites())
    assembly_format = "$signals_name attr-dict `:` type($result)"

    def __init__(self, name: str, size: int) -> None:
        super().__init__(
            properties={"signals_name": StringAttr(name)},
            result_types=[SignalsType(IntAttr(size))],
        )
        self.result.name_hint = name

    @property
    def label(self) -> str:
        return self.signals_name.data


@irdl_op_definition
class CollectiveOp(IRDLOperation):
    """A collective that `decompose-collectives` has not turned into grids yet."""

    name = "device.collective"
    kind = prop_def(StringAttr)
    source = operand_def(BufferType)
    target = operand_def(BufferType)
    dim = prop_def(IntegerAttr.constr(i64))
    size = prop_def(IntegerAttr.constr(i64))
    axis = prop_def(StringAttr)
    ranks = prop_def(IntegerAttr.constr(i64))
    stride = prop_def(IntegerAttr.constr(i64))
    choice = prop_def(ChoiceAttr)
    other_dim = opt_prop_def(IntegerAttr.constr(i64))
    other_size = opt_prop_def(IntegerAttr.constr(i64))
    root = opt_prop_def(IntegerAttr.constr(i64))
    by = opt_prop_def(IntegerAttr.constr(i64))
    traits = traits_def(ReadsAndWrites())
    custom_directives = (Keyword,)
    assembly_format = (
        "custom<Keyword>($kind) $source `->` $target `dim` $dim `size` $size"
        " (`gathers` $other_dim^ `size` $other_size)? (`root` $root^)? (`by` $by^)?"
        " `axis` $axis `ranks` $ranks `stride` $stride `choice` $choice"
        " attr-dict `:` type($source) `->` type($target)"
    )

    def __init__(
        self,
        kind: str,
        source: SSAValue,
        target: SSAValue,
        *,
        axis: str,
        choice: ChoiceAttr,
        **numbers: int,
    ) -> None:
        """`numbers` are the integer properties, by name."""
        super().__init__(
            operands=[source, target],
            properties={
                "kind": StringAttr(kind),
                "axis": StringAttr(axis),
                "choice": choice,
                **{name: IntegerAttr(value, i64) for name, value in numbers.items()},
            },
        )

    @property
    def group(self) -> tuple[int, int]:
        """How many ranks take part, and how far apart their numbers are."""
        return self.ranks.value.data, self.stride.value.data

    def verify_(self) -> None:
        check_keyword(self, "kind", self.kind, tuple(ALGORITHMS))
        dim = self.dim.value.data
        for type_ in (self.source.type, self.target.type):
            assert isinstance(type_, BufferType)
            if not 0 <= dim < len(type_.dims):
                raise VerifyException(f"device.collective: {type_} has no dim {dim}")


@irdl_op_definition
class GridOp(IRDLOperation):
    """One task a point of `in (...)`, on every rank: see the module's docstring."""

    name = "device.grid"
    sym_name = prop_def(SymbolNameConstraint())
    engine = prop_def(StringAttr)
    bounds = prop_def(ArrayAttr[IntAttr])
    queue = opt_prop_def(UnitAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())

    def __init__(self, name: str, engine: str, bounds: Sequence[int], body: Region) -> None:
        super().__init__(
            properties={
                "sym_name": StringAttr(name),
                "engine": StringAttr(engine),
                "bounds": ArrayAttr([IntAttr(b) for b in bounds]),
            },
            regions=[body],
        )

    @property
    def label(self) -> str:
        return self.sym_name.data

    @property
    def dims(self) -> tuple[int, ...]:
        return tuple(b.data for b in self.bounds)

    @property
    def body_op(self) -> Operation:
        """The one op of the body that does the work."""
        return next(op for op in self.body.block.ops if isinstance(op, BodyOp))

    @property
    def views(self) -> list[ViewOp]:
        """The views that the body op touches, in operand order."""
        owners = [operand.owner for operand in self.body_op.operands]
        return [owner for owner in owners if isinstance(owner, ViewOp)]

    @property
    def schedule(self) -> ScheduleOp | None:
        ops = self.body.block.ops
        return next((op for op in ops if isinstance(op, ScheduleOp)), None)

    def verify_(self) -> None:
        check_keyword(self, "engine", self.engine, ENGINES)
        if any(b < 0 for b in self.dims) or len(self.dims) > MAX_GRID_DIMS:
            raise VerifyException(
                f"a grid has at most {MAX_GRID_DIMS} dimensions, none negative: {self.dims}"
            )
        block = self.body.block
        if tuple(block.arg_types) != (IndexType(),) * len(self.dims):
            raise VerifyException("a grid binds one index a dimension")
        stage = 0
        for op in block.ops:
            kind = next((i for i, kinds in enumerate(GRID_STAGES) if isinstance(op, kinds)), None)
            if kind is None:
                raise VerifyException(f"{op.name} cannot stand in a device.grid")
            if kind > 0:
                if kind < stage:
                    raise VerifyException(
                        f"{op.name} stands too late: a grid is index arithmetic, waits, one body"
                        " op, notifies"
                    )
                stage = kind
        if sum(isinstance(op, BodyOp) for op in block.ops) != 1:
            raise VerifyException("a grid has exactly one body op")
        if not self.body_op.operands:
            raise VerifyException(f"{self.body_op.name} takes at least one view")
        if sum(isinstance(op, ScheduleOp) for op in block.ops) > 1:
            raise VerifyException("a grid has at most one device.schedule")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        printer.print_string(f" engine {self.engine.data}")
        if self.queue is not None:
            printer.print_string(" queue")
        printer.print_string(" in ")

        def one(pair: tuple[SSAValue, int]) -> None:
            printer.print_ssa_value(pair[0])
            printer.print_string(f" = {pair[1]}")

        with printer.in_parens():
            printer.print_list(list(zip(self.body.block.args, self.dims, strict=True)), one)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False, print_empty_block=False)

    @classmethod
    def parse(cls, parser: Parser) -> GridOp:
        name = parser.parse_symbol_name().data
        parser.parse_keyword("engine")
        engine = parser.parse_identifier()
        queue = parser.parse_optional_keyword("queue") is not None
        parser.parse_keyword("in")

        def one() -> tuple[Parser.Argument, int]:
            arg = parser.parse_argument(expect_type=False).resolve(IndexType())
            parser.parse_punctuation("=")
            return arg, parser.parse_integer(allow_boolean=False)

        pairs = parser.parse_comma_separated_list(parser.Delimiter.PAREN, one)
        body = parser.parse_region([arg for arg, _ in pairs])
        op = cls(name, engine, [bound for _, bound in pairs], body)
        if queue:
            op.properties["queue"] = UnitAttr()
        return op


PROGRAM_OPS = (RankOp, IndexOp, TableOp, BufferOp, SignalsOp, CollectiveOp, GridOp)
GRID_STAGES = ((IndexOp, TableOp, ViewOp), ScheduleOp, Wait, BodyOp, Notify)
MAX_GRID_DIMS = 6

Device = Dialect(
    "device",
    [
        ProgramOp,
        RankOp,
        IndexOp,
        TableOp,
        BufferOp,
        SignalsOp,
        CollectiveOp,
        GridOp,
        ScheduleOp,
        ViewOp,
        WaitOp,
        NotifyOp,
        PutOp,
        GetOp,
        CopyOp,
        CallOp,
        AcquireOp,
        ReleaseOp,
    ],
    [BufferType, SignalsType, ExprsAttr],
)
