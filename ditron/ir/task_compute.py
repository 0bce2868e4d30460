"""Task ops that compute: matmul, functions of elements, casts."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import Unpack

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def

from ditron.ir.attrs import TensorType
from ditron.ir.task_program import (
    BINARY_FORMAT,
    TAIL,
    UNARY_FORMAT,
    CommonArgs,
    PureOp,
    build,
    scope_of,
    spec_of,
)
from ditron.plan import spec as rules
from ditron.plan.placement import Scope
from ditron.plan.placement_rules import Rule
from ditron.plan.placement_table import cast_rule, matmul_rule, pointwise_rule
from ditron.plan.spec import TensorSpec


@irdl_op_definition
class MatmulOp(PureOp):
    """`a @ b` in float32: a [..., M, K], b [..., K, N], or [..., N, K] under `transpose_b`."""

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
        **common: Unpack[CommonArgs],
    ) -> None:
        scope = scope_of([lhs, rhs], common)
        spec = rules.matmul(spec_of(lhs), spec_of(rhs), scope, transpose_b=transpose_b)
        build(self, [lhs, rhs], spec, common, transpose_b=UnitAttr() if transpose_b else None)

    def infer_from(self, operands: Sequence[TensorSpec], scope: Scope) -> TensorSpec:
        a, b = operands
        return rules.matmul(a, b, scope, transpose_b=self.transpose_b is not None)

    @property
    def inner_dims(self) -> tuple[int, int]:
        """The dimensions of the operands that are summed over."""
        lhs, rhs = (len(spec_of(operand).shape) for operand in self.operands)
        return lhs - 1, rhs - (2 if self.transpose_b is None else 1)

    def placement_rule(self) -> Rule:
        ndims = [len(spec_of(operand).shape) for operand in self.operands]
        return matmul_rule(*ndims, transpose_b=self.transpose_b is not None)


class PointwiseOp(PureOp, ABC):
    """A function of elements; size-1 dimensions of operands broadcast."""

    def __init__(self, *operands: SSAValue, **common: Unpack[CommonArgs]) -> None:
        specs = [spec_of(operand) for operand in operands]
        spec = self.infer_from(specs, scope_of(operands, common))
        build(self, operands, spec, common)

    @classmethod
    def function(cls) -> str:
        """The function's name, such as "add"."""
        return cls.name.partition(".")[2]

    def infer_from(self, operands: Sequence[TensorSpec], scope: Scope) -> TensorSpec:
        return rules.pointwise(self.function(), operands, scope)

    def placement_rule(self) -> Rule:
        return pointwise_rule(self.function(), [spec_of(o).shape for o in self.operands])


class BinaryOp(PointwiseOp, ABC):
    """A pointwise function of two tensors."""

    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)

    assembly_format = BINARY_FORMAT


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

    assembly_format = UNARY_FORMAT


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
class CastOp(PureOp):
    """The same elements in the result's dtype."""

    name = "task.cast"

    operand = operand_def(TensorType)

    assembly_format = UNARY_FORMAT

    def __init__(self, operand: SSAValue, dtype: str, **common: Unpack[CommonArgs]) -> None:
        spec = rules.cast(spec_of(operand), dtype, scope_of([operand], common))
        build(self, [operand], spec, common)

    def infer_from(self, operands: Sequence[TensorSpec], scope: Scope) -> TensorSpec:
        return rules.cast(operands[0], spec_of(self.result).dtype, scope)

    def placement_rule(self) -> Rule:
        have, want = spec_of(self.operand), spec_of(self.result)
        keeps_sums = have.kind is want.kind
        return cast_rule(f"cast to {want.dtype}", len(have.shape), keeps_sums=keeps_sums)
