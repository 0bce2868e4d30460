"""What a `device.grid` holds: index arithmetic, views, waits, the body op, notifies.

The classes that `lower-to-shmem` turns one to one into `shmem` ops (`Transfer`, `Wait`, `Notify`)
are bases of both dialects, so that everything that reads a program reads either.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseIntElementsAttr,
    FlatSymbolRefAttrConstr,
    IndexType,
    IntAttr,
    IntegerAttr,
    StringAttr,
    SymbolRefAttr,
    TensorType,
    i64,
)
from xdsl.ir import (
    SSAValue,
)
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from ditron.ir.core import ViewType
from ditron.ir.device_types import BufferType, SignalsType
from ditron.ir.effects import ReadsAndWrites
from ditron.ir.index import Dims, ExprsAttr, Index, Indices, check_indices, leaves, number
from ditron.ir.keyword import Keyword, check_keyword
from ditron.plan import tables
from ditron.plan.expr import Expr
from ditron.plan.fold import Fold
from ditron.plan.tables import Memory


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
        super().__init__(operands=[args], properties={"expr": expr}, result_types=[IndexType()])

    def verify_(self) -> None:
        check_indices(self, expr=1)


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
        if not isinstance(self.values.type, TensorType):
            raise VerifyException(f"device.table holds a tensor, got {self.values.type}")
        check_indices(self, at=len(self.shape))


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

    def verify_(self) -> None:
        check_indices(self, lane=1, order=None, where=1)


@irdl_op_definition
class ViewOp(IRDLOperation):
    """A box `[offsets][sizes]` of a buffer on this rank, or `at` a peer; clipped to the extent.

    The view has the box's dimensions, or splits some, or has them in another order: with
    `dims [0, 1, 1]` its dimensions are parts of those dimensions of the box, row-major (`Fold`).
    """

    name = "device.view"
    buffer = operand_def(BufferType)
    offset_args = var_operand_def(IndexType)
    offsets = prop_def(ExprsAttr)
    size_args = var_operand_def(IndexType)
    sizes = prop_def(ExprsAttr)
    peer_args = var_operand_def(IndexType)
    peer = opt_prop_def(ExprsAttr)
    axes = opt_prop_def(ArrayAttr[IntAttr])
    result = result_def(ViewType)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(Pure())
    custom_directives = (Indices, Dims)
    assembly_format = (
        "$buffer `[` custom<Indices>($offset_args, $offsets) `]`"
        " `[` custom<Indices>($size_args, $sizes) `]`"
        " (`at` custom<Indices>($peer_args, $peer)^)? (`dims` `[` custom<Dims>($axes)^ `]`)?"
        " attr-dict `:` type($buffer) `->` type($result)"
    )

    def __init__(
        self,
        buffer: SSAValue,
        offsets: Sequence[Index],
        sizes: Sequence[Index],
        capacity: Sequence[int],
        peer: Index | None = None,
        axes: Sequence[int] | None = None,
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
                "axes": None if axes is None else ArrayAttr(map(IntAttr, axes)),
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

    @property
    def fold(self) -> Fold | None:
        """How the view's dimensions lie in the box's; None where they are the same."""
        if self.axes is None:
            return None
        return Fold(tuple(axis.data for axis in self.axes), self.result.type.dims)

    def verify_(self) -> None:
        buffer, view = self.buffer.type, self.result.type
        assert isinstance(buffer, BufferType)
        rank, fold = len(buffer.dims), self.fold
        if fold is not None and not (
            len(fold.axes) == len(fold.dims) and all(0 <= axis < rank for axis in fold.axes)
        ):
            raise VerifyException(f"device.view has {view} in dims {fold.axes} of {buffer}")
        seen = rank if fold is not None else len(view.dims)
        if not rank == len(self.offsets.data) == len(self.sizes.data) == seen:
            raise VerifyException(f"device.view gives {rank} offsets and sizes for {buffer}")
        if view.element_type != buffer.element_type:
            raise VerifyException(f"device.view of {buffer} cannot be {view}")
        if self.peer is not None and buffer.memory.data != Memory.SYMMETRIC:
            raise VerifyException("only symmetric buffers can be viewed at a peer")
        check_indices(self, offsets=rank, sizes=rank, peer=1)


class Wait(IRDLOperation):
    """Hold the task until `count` slots from `first` on reach `value` (of launch e - lag)."""

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

    def __init__(
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
        if self.launches_back < 0:
            raise VerifyException(
                f"{self.name}: lag counts launches back, got {self.launches_back}"
            )
        check_indices(self, at=2, value=1, when=1)


class Notify(IRDLOperation):
    """Raise a slot at a rank, once `after` has happened."""

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

    def __init__(
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
        if self.amount.value.data < 1:
            raise VerifyException(f"{self.name} raises a slot, got {self.amount.value.data}")
        check_indices(self, at=1, rank=1, when=1)


@irdl_op_definition
class WaitOp(Wait):
    """`device.wait %ready[%m, 1] ge 1 lag 1 when %m eq 0`."""

    name = "device.wait"


@irdl_op_definition
class NotifyOp(Notify):
    """`device.notify %ready[%m] at %peer add 1 after put when %m eq 0`."""

    name = "device.notify"


class BodyOp(IRDLOperation):
    """The one op of a grid that does the work of a task; its operands are views."""

    traits = traits_def(ReadsAndWrites())


class Transfer(BodyOp):
    """Copy a box to one of the same shape; both are clipped to the smaller."""

    source = operand_def(ViewType)
    target = operand_def(ViewType)
    traits = traits_def(ReadsAndWrites())
    assembly_format = "$source `->` $target attr-dict `:` type($source) `->` type($target)"

    # Which side may lie at a peer.
    REMOTE: ClassVar[tuple[bool, bool]] = (False, False)

    def __init__(self, source: SSAValue, target: SSAValue) -> None:
        super().__init__(operands=[source, target])

    def check_types(self, source: ViewType, target: ViewType) -> None:
        """Raise unless a box of the one type can be copied to one of the other."""
        if source != target:
            raise VerifyException(f"{self.name} copies between views of one type")

    def verify_(self) -> None:
        source, target = self.source.type, self.target.type
        assert isinstance(source, ViewType)
        assert isinstance(target, ViewType)
        self.check_types(source, target)
        ends = zip((self.source, self.target), self.REMOTE, ("source", "target"), strict=True)
        for view, may, side in ends:
            owner = view.owner
            if isinstance(owner, ViewOp) and owner.axes is not None and any(self.REMOTE):
                raise VerifyException(f"{self.name} moves boxes as they are, without dims")
            if isinstance(owner, ViewOp) and owner.peer is not None and not may:
                raise VerifyException(f"the {side} of {self.name} is this rank's own memory")


@irdl_op_definition
class PutOp(Transfer):
    """Copy to a peer's memory."""

    name = "device.put"
    REMOTE: ClassVar[tuple[bool, bool]] = (False, True)


@irdl_op_definition
class GetOp(Transfer):
    """Copy from a peer's memory."""

    name = "device.get"
    REMOTE: ClassVar[tuple[bool, bool]] = (True, False)


@irdl_op_definition
class CopyOp(Transfer):
    """Copy within this rank's memory, in row-major order: the two boxes may differ in shape."""

    name = "device.copy"

    def check_types(self, source: ViewType, target: ViewType) -> None:
        same = source.element_type == target.element_type
        if not same or prod(source.dims) != prod(target.dims):
            raise VerifyException(f"{self.name} keeps the elements: {source} is not {target}")


@irdl_op_definition
class CallOp(BodyOp):
    """Run a `core.func` on views, and indices: `device.call @f(%x, %y) with %me * 64 : ...`."""

    name = "device.call"
    kernel = prop_def(FlatSymbolRefAttrConstr)
    views = var_operand_def(ViewType)
    args = var_operand_def(IndexType)
    indices = opt_prop_def(ExprsAttr)
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(ReadsAndWrites())
    custom_directives = (Indices,)
    assembly_format = (
        "$kernel `(` $views `)` (`with` custom<Indices>($args, $indices)^)? attr-dict"
        " `:` type($views)"
    )

    def __init__(
        self, kernel: str, views: Sequence[SSAValue], indices: Sequence[Index] = ()
    ) -> None:
        args, exprs = number(indices)
        super().__init__(
            operands=[views, args],
            properties={
                "kernel": SymbolRefAttr(kernel),
                "indices": exprs if exprs.data else None,
            },
        )

    @property
    def kernel_name(self) -> str:
        return self.kernel.string_value()

    @property
    def index_exprs(self) -> list[Expr]:
        return [] if self.indices is None else leaves(self.args, self.indices)

    def verify_(self) -> None:
        check_indices(self, indices=None)
