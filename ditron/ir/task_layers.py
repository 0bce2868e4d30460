"""Task ops of a transformer's layers; rules are in `ditron.plan.spec_layers`."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import Unpack

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, f64, i64
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, prop_def

from ditron.ir.attrs import TensorType
from ditron.ir.task_program import TAIL, CommonArgs, PureOp, build, scope_of, spec_of
from ditron.plan import spec_layers as rules
from ditron.plan.placement import Scope
from ditron.plan.placement_rules import Rule
from ditron.plan.placement_table import aligned_rows_rule, embedding_rule, rows_rule
from ditron.plan.spec import TensorSpec


@irdl_op_definition
class RmsNormOp(PureOp):
    """`x / sqrt(mean(x * x) + eps) * gain` along the last dimension, in float32, rounded once."""

    name = "task.rms_norm"

    operand = operand_def(TensorType)
    gain = opt_operand_def(TensorType)
    eps_attr = prop_def(FloatAttr.constr(f64), prop_name="eps")

    assembly_format = (
        f"$operand (`gain` $gain^)? `eps` $eps {TAIL}"
        " type($operand) (`,` type($gain)^)? `->` type($result)"
    )

    def __init__(
        self, x: SSAValue, gain: SSAValue | None, eps: float, **common: Unpack[CommonArgs]
    ) -> None:
        scope = scope_of([x], common)
        spec = rules.rms_norm(spec_of(x), None if gain is None else spec_of(gain), eps, scope)
        build(self, [x, [] if gain is None else [gain]], spec, common, eps=FloatAttr(eps, f64))

    @property
    def eps(self) -> float:
        return self.eps_attr.value.data

    def infer_from(self, operands: Sequence[TensorSpec], scope: Scope) -> TensorSpec:
        x, gain = (*operands, None)[:2]
        assert x is not None
        return rules.rms_norm(x, gain, self.eps, scope)

    def placement_rule(self) -> Rule:
        ndim = len(spec_of(self.operand).shape)
        return rows_rule("rms_norm", ndim, ndim - 1, beside=len(self.operands) - 1)


@irdl_op_definition
class SoftmaxOp(PureOp):
    """`exp(x - max(x)) / sum(exp(x - max(x)))` along `dim`, in float32, rounded once."""

    name = "task.softmax"

    operand = operand_def(TensorType)
    dim = prop_def(IntegerAttr.constr(i64))

    assembly_format = f"$operand `dim` $dim {TAIL} type($operand) `->` type($result)"

    def __init__(self, x: SSAValue, dim: int, **common: Unpack[CommonArgs]) -> None:
        spec = rules.softmax(spec_of(x), dim, scope_of([x], common))
        build(self, [x], spec, common, dim=IntegerAttr(dim, i64))

    @property
    def dim_index(self) -> int:
        return self.dim.value.data

    def infer_from(self, operands: Sequence[TensorSpec], scope: Scope) -> TensorSpec:
        return rules.softmax(operands[0], self.dim_index, scope)

    def placement_rule(self) -> Rule:
        return rows_rule("softmax", len(spec_of(self.operand).shape), self.dim_index)


@irdl_op_definition
class RopeOp(PureOp):
    """`x * cos + turned(x) * sin`; `turned` swaps the last dimension's halves, minus the second."""

    name = "task.rope"

    operand = operand_def(TensorType)
    cos = operand_def(TensorType)
    sin = operand_def(TensorType)

    assembly_format = (
        f"$operand `,` $cos `,` $sin {TAIL}"
        " type($operand) `,` type($cos) `,` type($sin) `->` type($result)"
    )

    def __init__(
        self, x: SSAValue, cos: SSAValue, sin: SSAValue, **common: Unpack[CommonArgs]
    ) -> None:
        specs = (spec_of(x), spec_of(cos), spec_of(sin))
        build(self, [x, cos, sin], rules.rope(*specs, scope_of([x], common)), common)

    def infer_from(self, operands: Sequence[TensorSpec], scope: Scope) -> TensorSpec:
        x, cos, sin = operands
        return rules.rope(x, cos, sin, scope)

    def placement_rule(self) -> Rule:
        shapes = [spec_of(operand).shape for operand in self.operands]
        return aligned_rows_rule("rope", shapes, len(shapes[0]) - 1)


@irdl_op_definition
class EmbeddingOp(PureOp):
    """Rows of `table` [V, D] by `ids`; an id that is not in 0..V-1 makes a row of zeros."""

    name = "task.embedding"

    ids = operand_def(TensorType)
    table = operand_def(TensorType)

    assembly_format = f"$ids `,` $table {TAIL} type($ids) `,` type($table) `->` type($result)"

    def __init__(self, ids: SSAValue, table: SSAValue, **common: Unpack[CommonArgs]) -> None:
        spec = rules.embedding(spec_of(ids), spec_of(table), scope_of([ids], common))
        build(self, [ids, table], spec, common)

    def infer_from(self, operands: Sequence[TensorSpec], scope: Scope) -> TensorSpec:
        ids, table = operands
        return rules.embedding(ids, table, scope)

    def placement_rule(self) -> Rule:
        return embedding_rule(len(spec_of(self.ids).shape))


class ReductionOp(PureOp, ABC):
    """One element for each row along `dim`, whose size becomes 1."""

    dim = prop_def(IntegerAttr.constr(i64))

    @property
    def dim_index(self) -> int:
        return self.dim.value.data


@irdl_op_definition
class AmaxOp(ReductionOp):
    """The largest element along `dim`; NaN is larger than any number."""

    name = "task.amax"

    operand = operand_def(TensorType)

    assembly_format = f"$operand `dim` $dim {TAIL} type($operand) `->` type($result)"

    def __init__(self, x: SSAValue, dim: int, **common: Unpack[CommonArgs]) -> None:
        spec = rules.amax(spec_of(x), dim, scope_of([x], common))
        build(self, [x], spec, common, dim=IntegerAttr(dim, i64))

    def infer_from(self, operands: Sequence[TensorSpec], scope: Scope) -> TensorSpec:
        return rules.amax(operands[0], self.dim_index, scope)

    def placement_rule(self) -> Rule:
        return rows_rule("amax", len(spec_of(self.operand).shape), self.dim_index)


@irdl_op_definition
class ArgmaxOp(ReductionOp):
    """Where the first of the largest elements along `dim` stands; with labels, its label.

    Labels make it the join of its own parts: `argmax` of the parts' maxima, labelled by the parts'
    `argmax`, is that of the whole. NaN is larger than any number.
    """

    name = "task.argmax"

    operand = operand_def(TensorType)
    labels = opt_operand_def(TensorType)

    assembly_format = (
        f"$operand (`labels` $labels^)? `dim` $dim {TAIL}"
        " type($operand) (`,` type($labels)^)? `->` type($result)"
    )

    def __init__(
        self, x: SSAValue, labels: SSAValue | None, dim: int, **common: Unpack[CommonArgs]
    ) -> None:
        given = [] if labels is None else [labels]
        spec = self._rule([spec_of(value) for value in (x, *given)], dim, scope_of([x], common))
        build(self, [x, given], spec, common, dim=IntegerAttr(dim, i64))

    @staticmethod
    def _rule(operands: Sequence[TensorSpec], dim: int, scope: Scope) -> TensorSpec:
        x, labels = (*operands, None)[:2]
        assert x is not None
        return rules.argmax(x, labels, dim, scope)

    def infer_from(self, operands: Sequence[TensorSpec], scope: Scope) -> TensorSpec:
        return self._rule(operands, self.dim_index, scope)

    def placement_rule(self) -> Rule:
        shapes = [spec_of(operand).shape for operand in self.operands]
        return aligned_rows_rule("argmax", shapes, self.dim_index)
