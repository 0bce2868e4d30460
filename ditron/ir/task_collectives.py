"""Task ops that place a tensor otherwise over one mesh axis, in each group of ranks along it.

Rules are in `ditron.plan.spec_collectives`. `task.shard` needs no communication, so it is no
`CollectiveOp`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Unpack

from xdsl.dialects.builtin import IntegerAttr, StringAttr, i64
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def

from ditron.ir.attrs import TensorType
from ditron.ir.task_program import TAIL, CommonArgs, PureOp, build, scope_of, spec_of
from ditron.plan import spec_collectives as rules
from ditron.plan.moves import Move
from ditron.plan.placement import Mesh, Scope, Shard
from ditron.plan.spec import TensorSpec

_INDEX = IntegerAttr.constr(i64)
_TYPES = "type($operand) `->` type($result)"


class AxisOp(PureOp, ABC):
    """An op over one mesh axis."""

    operand = operand_def(TensorType)
    axis = prop_def(StringAttr)


class CollectiveOp(AxisOp, ABC):
    """An op whose ranks send parts of a tensor to others of their group."""

    @property
    def dim_index(self) -> int | None:
        """The dimension whose shards are joined, else cut; none if there is neither."""
        return None


class DimAxisOp(AxisOp, ABC):
    """An op that joins or cuts shards of one dimension.

    `rule` is what it makes of operand, dimension, mesh axis.
    """

    dim = prop_def(_INDEX)

    assembly_format = f"$operand `dim` $dim `axis` $axis {TAIL} {_TYPES}"

    @staticmethod
    @abstractmethod
    def rule(x: TensorSpec, dim: int, axis: str, scope: Scope) -> TensorSpec: ...

    def __init__(
        self, operand: SSAValue, dim: int, axis: str, **common: Unpack[CommonArgs]
    ) -> None:
        spec = self.rule(spec_of(operand), dim, axis, scope_of([operand], common))
        build(self, [operand], spec, common, axis=StringAttr(axis), dim=IntegerAttr(dim, i64))

    @property
    def dim_index(self) -> int:
        return self.dim.value.data

    def infer_from(self, operands: Sequence[TensorSpec], scope: Scope) -> TensorSpec:
        return self.rule(operands[0], self.dim_index, self.axis.data, scope)


@irdl_op_definition
class AllGatherOp(DimAxisOp, CollectiveOp):
    """Shards of `dim` become the whole tensor on every rank of the axis."""

    name = "task.all_gather"
    rule = staticmethod(rules.all_gather)


@irdl_op_definition
class ReduceScatterOp(DimAxisOp, CollectiveOp):
    """Partial sums are added, and each rank of the axis keeps its shard of `dim`."""

    name = "task.reduce_scatter"
    rule = staticmethod(rules.reduce_scatter)


@irdl_op_definition
class ShardOp(DimAxisOp):
    """Each rank of the axis keeps its shard of `dim` of the whole tensor that it holds."""

    name = "task.shard"
    rule = staticmethod(rules.shard)


@irdl_op_definition
class AllReduceOp(CollectiveOp):
    """Partial sums are added on every rank of the axis."""

    name = "task.all_reduce"

    assembly_format = f"$operand `axis` $axis {TAIL} {_TYPES}"

    def __init__(self, operand: SSAValue, axis: str, **common: Unpack[CommonArgs]) -> None:
        spec = rules.all_reduce(spec_of(operand), axis, scope_of([operand], common))
        build(self, [operand], spec, common, axis=StringAttr(axis))

    def infer_from(self, operands: Sequence[TensorSpec], scope: Scope) -> TensorSpec:
        return rules.all_reduce(operands[0], self.axis.data, scope)


@irdl_op_definition
class AllToAllOp(CollectiveOp):
    """Shards of `concat` are joined while `split` is cut: each rank sends a block to each other."""

    name = "task.all_to_all"

    split = prop_def(_INDEX)
    concat = prop_def(_INDEX)

    assembly_format = f"$operand `split` $split `concat` $concat `axis` $axis {TAIL} {_TYPES}"

    def __init__(
        self,
        operand: SSAValue,
        split_dim: int,
        concat_dim: int,
        axis: str,
        **common: Unpack[CommonArgs],
    ) -> None:
        scope = scope_of([operand], common)
        spec = rules.all_to_all(spec_of(operand), split_dim, concat_dim, axis, scope)
        split, concat = IntegerAttr(split_dim, i64), IntegerAttr(concat_dim, i64)
        props = {"axis": StringAttr(axis), "split": split, "concat": concat}
        build(self, [operand], spec, common, **props)

    @property
    def dim_index(self) -> int:
        """The dimension that is joined."""
        return self.concat.value.data

    @property
    def split_index(self) -> int:
        """The dimension that is cut."""
        return self.split.value.data

    def infer_from(self, operands: Sequence[TensorSpec], scope: Scope) -> TensorSpec:
        dims = (self.split_index, self.dim_index)
        return rules.all_to_all(operands[0], *dims, self.axis.data, scope)


def except_dim(ndim: int, dim: int) -> tuple[int | None, ...]:
    """Dimensions that become themselves, but for one that moves."""
    return tuple(None if d == dim else d for d in range(ndim))


@irdl_op_definition
class BroadcastOp(CollectiveOp):
    """The root's shard of `dim` on every rank of the axis; the result is as large as that."""

    name = "task.broadcast"

    dim = prop_def(_INDEX)
    root = prop_def(_INDEX)

    assembly_format = f"$operand `dim` $dim `root` $root `axis` $axis {TAIL} {_TYPES}"

    def __init__(
        self, operand: SSAValue, dim: int, root: int, axis: str, **common: Unpack[CommonArgs]
    ) -> None:
        spec = rules.broadcast(spec_of(operand), dim, root, axis, scope_of([operand], common))
        props = {"dim": IntegerAttr(dim, i64), "root": IntegerAttr(root, i64)}
        build(self, [operand], spec, common, axis=StringAttr(axis), **props)

    def becomes(self) -> tuple[tuple[int | None, ...], ...]:
        return (except_dim(len(spec_of(self.operand).shape), self.dim_index),)

    @property
    def dim_index(self) -> int:
        return self.dim.value.data

    @property
    def root_index(self) -> int:
        """The rank, counted along the axis, whose shard it is."""
        return self.root.value.data

    def infer_from(self, operands: Sequence[TensorSpec], scope: Scope) -> TensorSpec:
        x, axis = operands[0], self.axis.data
        return rules.broadcast(x, self.dim_index, self.root_index, axis, scope)


@irdl_op_definition
class ShiftOp(CollectiveOp):
    """Rank r's shard of `dim` goes to rank r + `by` of the axis, from the end to its start."""

    name = "task.shift"

    dim = prop_def(_INDEX)
    by = prop_def(_INDEX)

    assembly_format = f"$operand `dim` $dim `by` $by `axis` $axis {TAIL} {_TYPES}"

    def __init__(
        self, operand: SSAValue, dim: int, by: int, axis: str, **common: Unpack[CommonArgs]
    ) -> None:
        spec = rules.shift(spec_of(operand), dim, by, axis, scope_of([operand], common))
        props = {"dim": IntegerAttr(dim, i64), "by": IntegerAttr(by, i64)}
        build(self, [operand], spec, common, axis=StringAttr(axis), **props)

    def becomes(self) -> tuple[tuple[int | None, ...], ...]:
        return (except_dim(len(spec_of(self.operand).shape), self.dim_index),)

    @property
    def dim_index(self) -> int:
        return self.dim.value.data

    @property
    def steps(self) -> int:
        """How many ranks along the axis a shard moves; below 0 towards the first."""
        return self.by.value.data

    def infer_from(self, operands: Sequence[TensorSpec], scope: Scope) -> TensorSpec:
        return rules.shift(operands[0], self.dim_index, self.steps, self.axis.data, scope)


def move_op(operand: SSAValue, move: Move, mesh: Mesh, **common: Unpack[CommonArgs]) -> AxisOp:
    """The op that makes a move."""
    axis, dim = mesh.axes[move.axis], move.dim
    if dim is None:
        return AllReduceOp(operand, axis, **common)
    if isinstance(move.before, Shard) and isinstance(move.after, Shard):
        return AllToAllOp(operand, move.after.dim, dim, axis, **common)
    return _ON_DIM[move.kind](operand, dim, axis, **common)


_ON_DIM: dict[str, type[DimAxisOp]] = {
    "all_gather": AllGatherOp,
    "reduce_scatter": ReduceScatterOp,
    "shard": ShardOp,
}
