"""The task dialect: a program on distributed tensors, in SSA form.

One op per operation of the user's program, on tensors with global shapes; what each op makes of its
operands is in `ditron.plan.spec`. Every op is pure, so dead code may go.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence

from xdsl.dialects.builtin import IntegerAttr, StringAttr, UnitAttr, i64
from xdsl.ir import Dialect, Operation, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def

from ditron.ir.attrs import ChoiceAttr, MeshAttr, PlacementsAttr, TensorType
from ditron.ir.task_call import (
    CallOp as CallOp,
)
from ditron.ir.task_call import CutsAttr
from ditron.ir.task_program import (
    TAIL,
    build,
)
from ditron.ir.task_program import (
    ComputeOp as ComputeOp,
)
from ditron.ir.task_program import (
    InputOp as InputOp,
)
from ditron.ir.task_program import (
    OutputOp as OutputOp,
)
from ditron.ir.task_program import (
    ProgramOp as ProgramOp,
)
from ditron.ir.task_program import (
    SourceOp as SourceOp,
)
from ditron.ir.task_program import (
    WeightOp as WeightOp,
)
from ditron.ir.task_program import (
    spec_of as spec_of,
)
from ditron.plan import spec as rules
from ditron.plan.placement import AxisRule, cast_rule, matmul_rule, pointwise_rule
from ditron.plan.spec import TensorSpec as TensorSpec

_UNARY_FORMAT = f"$operand {TAIL} type($operand) `->` type($result)"
_BINARY_FORMAT = f"$lhs `,` $rhs {TAIL} type($lhs) `,` type($rhs) `->` type($result)"


@irdl_op_definition
class MatmulOp(ComputeOp):
    """`a @ b` accumulated in float32: a [M, K], b [K, N], or [N, K] under `transpose_b`."""

    name = "task.matmul"

    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    transpose_b = opt_prop_def(UnitAttr)

    assembly_format = (
        "$lhs `,` $rhs (`transpose_b` $transpose_b^)? "
        f"{TAIL} type($lhs) `,` type($rhs) `->` type($result)"
    )

    def __init__(
        self,
        lhs: SSAValue,
        rhs: SSAValue,
        *,
        transpose_b: bool = False,
        op_name: str | None = None,
        choice: ChoiceAttr | None = None,
    ) -> None:
        spec = rules.matmul(spec_of(lhs), spec_of(rhs), transpose_b=transpose_b)
        unit = UnitAttr() if transpose_b else None
        build(self, [lhs, rhs], spec, op_name, choice, transpose_b=unit)

    def infer_from(self, operands: Sequence[TensorSpec]) -> TensorSpec:
        a, b = operands
        return rules.matmul(a, b, transpose_b=self.transpose_b is not None)

    def placement_rule(self) -> AxisRule:
        return matmul_rule(transpose_b=self.transpose_b is not None)


class PointwiseOp(ComputeOp, ABC):
    """A function of elements; size-1 dimensions of operands broadcast."""

    def __init__(
        self, *operands: SSAValue, op_name: str | None = None, choice: ChoiceAttr | None = None
    ) -> None:
        spec = self._rule([spec_of(operand) for operand in operands])
        build(self, operands, spec, op_name, choice)

    @classmethod
    def function(cls) -> str:
        """The function's name, such as "add"."""
        return cls.name.partition(".")[2]

    @classmethod
    def _rule(cls, operands: Sequence[TensorSpec]) -> TensorSpec:
        names = ("x",) if len(operands) == 1 else ("a", "b")
        return rules.pointwise(cls.function(), operands, names=names)

    def infer_from(self, operands: Sequence[TensorSpec]) -> TensorSpec:
        return self._rule(operands)

    def placement_rule(self) -> AxisRule:
        return pointwise_rule(self.function(), [spec_of(o).shape for o in self.operands])


class BinaryOp(PointwiseOp, ABC):
    """A pointwise function of two tensors."""

    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)

    assembly_format = _BINARY_FORMAT


@irdl_op_definition
class AddOp(BinaryOp):
    """`a + b`."""

    name = "task.add"


@irdl_op_definition
class SubOp(BinaryOp):
    """`a - b`."""

    name = "task.sub"


@irdl_op_definition
class MulOp(BinaryOp):
    """`a * b`, element by element."""

    name = "task.mul"


class UnaryOp(PointwiseOp, ABC):
    """A pointwise function of one tensor."""

    operand = operand_def(TensorType)

    assembly_format = _UNARY_FORMAT


@irdl_op_definition
class SiluOp(UnaryOp):
    """`x * sigmoid(x)`."""

    name = "task.silu"


@irdl_op_definition
class GeluOp(UnaryOp):
    """`x * Phi(x)`, Phi the normal distribution function (not the tanh form)."""

    name = "task.gelu"


@irdl_op_definition
class ReluOp(UnaryOp):
    """`max(x, 0)`."""

    name = "task.relu"


@irdl_op_definition
class ExpOp(UnaryOp):
    """`e ** x`."""

    name = "task.exp"


@irdl_op_definition
class CastOp(ComputeOp):
    """The same elements in the result's dtype."""

    name = "task.cast"

    operand = operand_def(TensorType)

    assembly_format = _UNARY_FORMAT

    def __init__(
        self,
        operand: SSAValue,
        dtype: str,
        *,
        op_name: str | None = None,
        choice: ChoiceAttr | None = None,
    ) -> None:
        build(self, [operand], rules.cast(spec_of(operand), dtype), op_name, choice)

    def infer_from(self, operands: Sequence[TensorSpec]) -> TensorSpec:
        return rules.cast(operands[0], spec_of(self.result).dtype)

    def placement_rule(self) -> AxisRule:
        return cast_rule(keeps_sums=spec_of(self.operand).kind is spec_of(self.result).kind)


class CollectiveOp(ComputeOp, ABC):
    """The same global tensor, moved to lie otherwise over one mesh axis."""

    operand = operand_def(TensorType)
    axis = prop_def(StringAttr)

    @property
    def dim_index(self) -> int | None:
        """The dimension that is gathered or scattered, if the collective has one."""
        return None

    def infer_from(self, operands: Sequence[TensorSpec]) -> TensorSpec:
        return _collective(self.name, operands[0], self.operand, self.axis.data, self.dim_index)


def _collective(
    name: str, spec: TensorSpec, operand: SSAValue, axis: str, dim: int | None
) -> TensorSpec:
    kind = name.partition(".")[2]
    return rules.collective(kind, spec, axis=_axis_index(operand, axis), dim=dim)


def _axis_index(value: SSAValue, axis: str) -> int:
    """The position of a mesh axis in the program that defines a value; 0 in none."""
    owner: Operation | None = value.owner if isinstance(value.owner, Operation) else None
    while owner is not None and not isinstance(owner, ProgramOp):
        owner = owner.parent_op()
    return owner.mesh.index(axis) if owner is not None else 0


class DimCollectiveOp(CollectiveOp, ABC):
    """A collective that cuts or joins shards of one dimension."""

    dim = prop_def(IntegerAttr.constr(i64))

    assembly_format = f"$operand `dim` $dim `axis` $axis {TAIL} type($operand) `->` type($result)"

    def __init__(
        self,
        operand: SSAValue,
        dim: int,
        axis: str,
        *,
        op_name: str | None = None,
        choice: ChoiceAttr | None = None,
    ) -> None:
        spec = _collective(self.name, spec_of(operand), operand, axis, dim)
        props = {"axis": StringAttr(axis), "dim": IntegerAttr(dim, i64)}
        build(self, [operand], spec, op_name, choice, **props)

    @property
    def dim_index(self) -> int:
        return self.dim.value.data


@irdl_op_definition
class AllGatherOp(DimCollectiveOp):
    """Shards of `dim` become the whole tensor on every rank of the axis."""

    name = "task.all_gather"


@irdl_op_definition
class ReduceScatterOp(DimCollectiveOp):
    """Partial sums are added, and each rank of the axis keeps its shard of `dim`."""

    name = "task.reduce_scatter"


@irdl_op_definition
class AllReduceOp(CollectiveOp):
    """Partial sums are added on every rank of the axis."""

    name = "task.all_reduce"

    assembly_format = f"$operand `axis` $axis {TAIL} type($operand) `->` type($result)"

    def __init__(
        self,
        operand: SSAValue,
        axis: str,
        *,
        op_name: str | None = None,
        choice: ChoiceAttr | None = None,
    ) -> None:
        spec = _collective(self.name, spec_of(operand), operand, axis, None)
        build(self, [operand], spec, op_name, choice, axis=StringAttr(axis))


POINTWISE: list[type[PointwiseOp]] = [AddOp, SubOp, MulOp, SiluOp, GeluOp, ReluOp, ExpOp]
COLLECTIVES: list[type[CollectiveOp]] = [AllGatherOp, ReduceScatterOp, AllReduceOp]

Task = Dialect(
    "task",
    [ProgramOp, InputOp, WeightOp, OutputOp, MatmulOp, *POINTWISE, CastOp, CallOp, *COLLECTIVES],
    [MeshAttr, PlacementsAttr, TensorType, ChoiceAttr, CutsAttr],
)
