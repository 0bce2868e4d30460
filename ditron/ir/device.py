"""device: one SPMD program for every rank: buffers, grids of tasks, transfers, signals.

    device.program @ag_gemm ranks 4 {
      %me = device.rank
      %x = device.buffer "x" input [min(max(512 - %me * 128, 0), 128), 256] : <128x256xbf16, symmetric>
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

A grid's body is index arithmetic, views, waits, one body op, notifies; no loops, branches or carried
values. Tasks with one (rank, engine, lane) run in the order of the `schedule` keys (by default the
coordinates); a masked task (`where` false) or one whose boxes are empty still waits and notifies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseIntElementsAttr,
    FlatSymbolRefAttrConstr,
    IndexType,
    IntAttr,
    IntegerAttr,
    StringAttr,
    SymbolNameConstraint,
    SymbolRefAttr,
    TensorType,
    UnitAttr,
    i32,
    i64,
)
from xdsl.ir import (
    Attribute,
    Block,
    Dialect,
    Operation,
    ParametrizedAttribute,
    Region,
    SSAValue,
    TypeAttribute,
)
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, NoTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from ditron.ir.attrs import ChoiceAttr, dtype_name
from ditron.ir.core import ViewType
from ditron.ir.effects import ReadsAndWrites
from ditron.ir.index import ExprsAttr, Index, Indices, leaves, number
from ditron.ir.keyword import Keyword, check_keyword
from ditron.plan.expr import Expr
from ditron.plan import tables
from ditron.plan.tables import Memory, Role

ENGINES = ("sm", "copy", "host")


@irdl_attr_definition
class BufferType(ParametrizedAttribute, TypeAttribute):
    """`!device.buffer<128x256xbf16, symmetric>`: a capacity, the same on every rank."""

    name = "device.buffer"
    shape: ArrayAttr[IntAttr]
    element_type: Attribute
    memory: StringAttr

    @staticmethod
    def get(dims: Sequence[int], element: Attribute, memory: Memory) -> BufferType:
        return BufferType(ArrayAttr([IntAttr(d) for d in dims]), element, StringAttr(memory))

    @property
    def dims(self) -> tuple[int, ...]:
        return tuple(d.data for d in self.shape)

    @property
    def dtype(self) -> str:
        return dtype_name(self.element_type)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            shape, element = parser.parse_ranked_shape()
            parser.parse_punctuation(",")
            memory = parser.parse_identifier()
        return (ArrayAttr([IntAttr(d) for d in shape]), element, StringAttr(memory))

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_dimension_list(self.dims)
            printer.print_string("x")
            printer.print_attribute(self.element_type)
            printer.print_string(f", {self.memory.data}")

    def verify(self) -> None:
        if any(d < 1 for d in self.dims):
            raise VerifyException(f"a buffer's capacity is positive, got {self.dims}")
        if self.memory.data not in tuple(Memory):
            raise VerifyException(f"memory is symmetric or local, got {self.memory.data}")


@irdl_attr_definition
class SignalsType(ParametrizedAttribute, TypeAttribute):
    """`!device.signals<8>`: that many signal words on every rank."""

    name = "device.signals"
    size: IntAttr

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return (IntAttr(parser.parse_integer(allow_negative=False)),)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(str(self.size.data))


@irdl_op_definition
class ProgramOp(IRDLOperation):
    """A device program: what every rank does, told once.

    It is no symbol, since it bears the name of the task program that it was made from.
    """

    name = "device.program"
    program_name = prop_def(SymbolNameConstraint())
    ranks = prop_def(IntegerAttr.constr(i64))
    heap_bytes = opt_prop_def(IntegerAttr.constr(i64))
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), NoTerminator())
    assembly_format = (
        "$program_name `ranks` $ranks (`heap` $heap_bytes^)? attr-dict-with-keyword $body"
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
        for op in self.body.block.ops:
            if not isinstance(op, PROGRAM_OPS):
                raise VerifyException(f"{op.name} cannot stand in a device.program")


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
class IndexOp(IRDLOperation):
    """An index expression with a name: `%peer = device.index (%me + %p + 1) mod 4`."""

    name = "device.index"
    args = var_operand_def(IndexType)
    expr = prop_def(ExprsAttr)
    result = result_def(IndexType)
    traits = traits_def(Pure())
    custom_directives = (Indices,)
    assembly_format = "custom<Indices>($args, $expr) attr-dict"

    def __init__(self, index: Index) -> None:
        args, expr = number([index])
        super().__init__(
            operands=[args], properties={"expr": expr}, result_types=[IndexType()]
        )


@irdl_op_definition
class TableOp(IRDLOperation):
    """A lookup in a constant table, for what no closed form fits."""

    name = "device.table"
    values = prop_def(DenseIntElementsAttr)
    args = var_operand_def(IndexType)
    at = prop_def(ExprsAttr)
    result = result_def(IndexType)
    traits = traits_def(Pure())
    custom_directives = (Indices,)
    assembly_format = "$values `[` custom<Indices>($args, $at) `]` attr-dict"

    def __init__(self, values: DenseIntElementsAttr, at: Sequence[Index]) -> None:
        args, exprs = number(at)
        super().__init__(
            operands=[args],
            properties={"values": values, "at": exprs},
            result_types=[IndexType()],
        )

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.get_shape()

    def verify_(self) -> None:
        if not isinstance(self.values.type, TensorType) or len(self.at.data) != len(self.shape):
            raise VerifyException("device.table takes one index a dimension of its table")


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
        self.result.name_hint = "".join(c if c.isalnum() else "_" for c in name)

    @property
    def extents(self) -> list[Expr]:
        return leaves(self.args, self.extent)

    def verify_(self) -> None:
        check_keyword(self, "role", self.role, tuple(Role))
        type_ = self.result.type
        if len(self.extent.data) != len(type_.dims):
            raise VerifyException(f"device.buffer gives one size a dimension of {type_}")


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


@irdl_op_definition
class CollectiveOp(IRDLOperation):
    """A collective that `decompose-collectives` has not turned into grids yet."""

    name = "device.collective"
    kind = prop_def(StringAttr)
    source = operand_def(BufferType)
    target = operand_def(BufferType)
    dim = prop_def(IntegerAttr.constr(i64))
    size = prop_def(IntegerAttr.constr(i64))
    choice = prop_def(ChoiceAttr)
    traits = traits_def(ReadsAndWrites())
    custom_directives = (Keyword,)
    assembly_format = (
        "custom<Keyword>($kind) $source `->` $target `dim` $dim `size` $size `choice` $choice"
        " attr-dict `:` type($source) `->` type($target)"
    )

    def __init__(  # noqa: PLR0913 - one argument a property
        self,
        kind: str,
        source: SSAValue,
        target: SSAValue,
        *,
        dim: int,
        size: int,
        choice: ChoiceAttr,
    ) -> None:
        super().__init__(
            operands=[source, target],
            properties={
                "kind": StringAttr(kind),
                "dim": IntegerAttr(dim, i64),
                "size": IntegerAttr(size, i64),
                "choice": choice,
            },
        )

    def verify_(self) -> None:
        check_keyword(self, "kind", self.kind, ("all_gather", "reduce_scatter", "all_reduce"))


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
        printer.print_region(self.body, print_entry_block_args=False)

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


@irdl_op_definition
class ScheduleOp(IRDLOperation):
    """Where and when a grid's tasks run: lane number, order keys, and which exist."""

    name = "device.schedule"
    lane_args = var_operand_def(IndexType)
    lane = opt_prop_def(ExprsAttr)
    order_args = var_operand_def(IndexType)
    order = opt_prop_def(ExprsAttr)
    where_args = var_operand_def(IndexType)
    where = opt_prop_def(ExprsAttr)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(ReadsAndWrites())
    custom_directives = (Indices,)
    assembly_format = (
        "(`lane` `[` custom<Indices>($lane_args, $lane)^ `]`)?"
        " (`order` `[` custom<Indices>($order_args, $order)^ `]`)?"
        " (`where` `[` custom<Indices>($where_args, $where)^ `]`)? attr-dict"
    )

    def __init__(
        self,
        lane: Index | None = None,
        order: Sequence[Index] = (),
        where: Index | None = None,
    ) -> None:
        lists = [[] if lane is None else [lane], list(order), [] if where is None else [where]]
        numbered = [number(items) for items in lists]
        names = ("lane", "order", "where")
        super().__init__(
            operands=[args for args, _ in numbered],
            properties={
                k: exprs if exprs.data else None
                for k, (_, exprs) in zip(names, numbered, strict=True)
            },
        )

    def parts(self) -> tuple[Index | None, list[Index], Index | None]:
        """Lane, order keys and predicate, as they went into the constructor."""
        none = ExprsAttr(())
        lane = leaves(self.lane_args, self.lane or none)
        order = leaves(self.order_args, self.order or none)
        where = leaves(self.where_args, self.where or none)
        return (lane or [None])[0], list(order), (where or [None])[0]


@irdl_op_definition
class ViewOp(IRDLOperation):
    """A box `[offsets][sizes]` of a buffer on this rank, or `at` a peer; clipped to the extent."""

    name = "device.view"
    buffer = operand_def(BufferType)
    offset_args = var_operand_def(IndexType)
    offsets = prop_def(ExprsAttr)
    size_args = var_operand_def(IndexType)
    sizes = prop_def(ExprsAttr)
    peer_args = var_operand_def(IndexType)
    peer = opt_prop_def(ExprsAttr)
    result = result_def(ViewType)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(Pure())
    custom_directives = (Indices,)
    assembly_format = (
        "$buffer `[` custom<Indices>($offset_args, $offsets) `]`"
        " `[` custom<Indices>($size_args, $sizes) `]`"
        " (`at` custom<Indices>($peer_args, $peer)^)? attr-dict"
        " `:` type($buffer) `->` type($result)"
    )

    def __init__(
        self,
        buffer: SSAValue,
        offsets: Sequence[Index],
        sizes: Sequence[Index],
        capacity: Sequence[int],
        peer: Index | None = None,
    ) -> None:
        assert isinstance(buffer.type, BufferType)
        offset_args, offset_exprs = number(offsets)
        size_args, size_exprs = number(sizes)
        peer_args, peer_exprs = number([] if peer is None else [peer])
        super().__init__(
            operands=[buffer, offset_args, size_args, peer_args],
            properties={
                "offsets": offset_exprs,
                "sizes": size_exprs,
                "peer": peer_exprs if peer is not None else None,
            },
            result_types=[ViewType.get(capacity, buffer.type.element_type)],
        )

    @property
    def offset_exprs(self) -> list[Expr]:
        return leaves(self.offset_args, self.offsets)

    @property
    def size_exprs(self) -> list[Expr]:
        return leaves(self.size_args, self.sizes)

    @property
    def at(self) -> Expr | None:
        """The peer whose memory this is; None for this rank's own."""
        return None if self.peer is None else leaves(self.peer_args, self.peer)[0]

    def verify_(self) -> None:
        buffer, view = self.buffer.type, self.result.type
        assert isinstance(buffer, BufferType)
        rank = len(buffer.dims)
        if not rank == len(self.offsets.data) == len(self.sizes.data) == len(view.dims):
            raise VerifyException(f"device.view gives {rank} offsets and sizes for {buffer}")
        if view.element_type != buffer.element_type:
            raise VerifyException(f"device.view of {buffer} cannot be {view}")
        if self.peer is not None and buffer.memory.data != Memory.SYMMETRIC:
            raise VerifyException("only symmetric buffers can be viewed at a peer")


@irdl_op_definition
class WaitOp(IRDLOperation):
    """Hold the task until `count` slots from `first` on reach `value` (of launch e - lag)."""

    name = "device.wait"
    signals = operand_def(SignalsType)
    args = var_operand_def(IndexType)
    at = prop_def(ExprsAttr)
    value_args = var_operand_def(IndexType)
    value = prop_def(ExprsAttr)
    lag = opt_prop_def(IntegerAttr.constr(i64))
    when_args = var_operand_def(IndexType)
    when = opt_prop_def(ExprsAttr)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(ReadsAndWrites())
    custom_directives = (Indices,)
    assembly_format = (
        "$signals `[` custom<Indices>($args, $at) `]` `ge` custom<Indices>($value_args, $value)"
        " (`lag` $lag^)? (`when` custom<Indices>($when_args, $when)^)? attr-dict"
        " `:` type($signals)"
    )

    def __init__(  # noqa: PLR0913 - one argument a clause
        self,
        signals: SSAValue,
        first: Index,
        count: Index,
        value: Index,
        *,
        lag: int = 0,
        when: Index | None = None,
    ) -> None:
        args, at = number([first, count])
        value_args, value_exprs = number([value])
        when_args, when_exprs = number([] if when is None else [when])
        super().__init__(
            operands=[signals, args, value_args, when_args],
            properties={
                "at": at,
                "value": value_exprs,
                "lag": IntegerAttr(lag, i64) if lag else None,
                "when": when_exprs if when is not None else None,
            },
        )

    @property
    def launches_back(self) -> int:
        return 0 if self.lag is None else self.lag.value.data

    def verify_(self) -> None:
        if len(self.at.data) != 2 or len(self.value.data) != 1:  # noqa: PLR2004
            raise VerifyException("device.wait takes [first slot, slots] and one value")


@irdl_op_definition
class NotifyOp(IRDLOperation):
    """Raise a slot at a rank, once `after` has happened."""

    name = "device.notify"
    signals = operand_def(SignalsType)
    args = var_operand_def(IndexType)
    at = prop_def(ExprsAttr)
    rank_args = var_operand_def(IndexType)
    rank = prop_def(ExprsAttr)
    op = prop_def(StringAttr)
    amount = prop_def(IntegerAttr.constr(i64))
    after = prop_def(StringAttr)
    when_args = var_operand_def(IndexType)
    when = opt_prop_def(ExprsAttr)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(ReadsAndWrites())
    custom_directives = (Indices, Keyword)
    assembly_format = (
        "$signals `[` custom<Indices>($args, $at) `]` `at` custom<Indices>($rank_args, $rank)"
        " custom<Keyword>($op) $amount `after` custom<Keyword>($after)"
        " (`when` custom<Indices>($when_args, $when)^)? attr-dict `:` type($signals)"
    )

    def __init__(  # noqa: PLR0913 - one argument a clause
        self,
        signals: SSAValue,
        slot: Index,
        rank: Index,
        *,
        amount: int = 1,
        op: str = "add",
        after: str = "end",
        when: Index | None = None,
    ) -> None:
        args, at = number([slot])
        rank_args, rank_exprs = number([rank])
        when_args, when_exprs = number([] if when is None else [when])
        super().__init__(
            operands=[signals, args, rank_args, when_args],
            properties={
                "at": at,
                "rank": rank_exprs,
                "op": StringAttr(op),
                "amount": IntegerAttr(amount, i64),
                "after": StringAttr(after),
                "when": when_exprs if when is not None else None,
            },
        )

    def verify_(self) -> None:
        check_keyword(self, "op", self.op, [o.name.lower() for o in tables.NotifyOp])
        check_keyword(self, "after", self.after, [a.name.lower() for a in tables.After])
        if len(self.at.data) != 1 or len(self.rank.data) != 1:
            raise VerifyException("device.notify takes one slot and one rank")


class BodyOp(IRDLOperation):
    """The one op of a grid that does the work of a task; its operands are views."""

    traits = traits_def(ReadsAndWrites())


class TransferOp(BodyOp):
    """Copy a box to one of the same shape; both are clipped to the smaller."""

    source = operand_def(ViewType)
    target = operand_def(ViewType)
    traits = traits_def(ReadsAndWrites())
    assembly_format = "$source `->` $target attr-dict `:` type($source) `->` type($target)"

    # Which side may lie at a peer.
    REMOTE: ClassVar[tuple[bool, bool]] = (False, False)

    def __init__(self, source: SSAValue, target: SSAValue) -> None:
        super().__init__(operands=[source, target])

    def verify_(self) -> None:
        if self.source.type != self.target.type:
            raise VerifyException(f"{self.name} copies between views of one type")
        ends = zip((self.source, self.target), self.REMOTE, ("source", "target"), strict=True)
        for view, may, side in ends:
            owner = view.owner
            if isinstance(owner, ViewOp) and owner.peer is not None and not may:
                raise VerifyException(f"the {side} of {self.name} is this rank's own memory")


@irdl_op_definition
class PutOp(TransferOp):
    """Copy to a peer's memory."""

    name = "device.put"
    REMOTE: ClassVar[tuple[bool, bool]] = (False, True)


@irdl_op_definition
class GetOp(TransferOp):
    """Copy from a peer's memory."""

    name = "device.get"
    REMOTE: ClassVar[tuple[bool, bool]] = (True, False)


@irdl_op_definition
class CopyOp(TransferOp):
    """Copy within this rank's memory."""

    name = "device.copy"


@irdl_op_definition
class CallOp(BodyOp):
    """Run a `core.func` on views."""

    name = "device.call"
    kernel = prop_def(FlatSymbolRefAttrConstr)
    views = var_operand_def(ViewType)
    traits = traits_def(ReadsAndWrites())
    assembly_format = "$kernel `(` $views `)` attr-dict `:` type($views)"

    def __init__(self, kernel: str, views: Sequence[SSAValue]) -> None:
        super().__init__(operands=[views], properties={"kernel": SymbolRefAttr(kernel)})

    @property
    def kernel_name(self) -> str:
        return self.kernel.string_value()


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


PROGRAM_OPS = (RankOp, IndexOp, TableOp, BufferOp, SignalsOp, CollectiveOp, GridOp)
GRID_STAGES = ((IndexOp, TableOp, ViewOp), ScheduleOp, WaitOp, BodyOp, NotifyOp)
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
