"""`task.attention`: softmax(q k) v, on a prompt or against a cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, UnitAttr, f64, i64
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, opt_prop_def, prop_def

from ditron.ir.attrs import TensorType
from ditron.ir.task_program import TAIL, CommonArgs, PureOp, build, scope_of, spec_of
from ditron.ir.task_views import start_of
from ditron.plan import spec_layers as rules
from ditron.plan.placement import Scope
from ditron.plan.placement_rules import Rule
from ditron.plan.placement_table import attention_rule
from ditron.plan.spec import TensorSpec


@irdl_op_definition
class AttentionOp(PureOp):
    """`softmax(scale q k^T) v` by heads, q [B, T, H, D], k and v [B, C, G, D], in float32.

    Token t of q stands at place `at + t` of k and v, which `at` alone or with a run-time number
    says. It sees places 0 to `at + t` if `causal`, else 0 to `at + T - 1`: a prompt has C = T and
    `at` 0, a decode step T = 1 and a cache of C places. What lies beyond is not read into the
    result, whatever it is. H is a multiple of G: query head h reads key head h div (H / G). The
    result is [B, T, H, D], rounded once, after the division by the sum.

    As tiles: a program a (batch b, key head g, t tokens) loads q [t x H / G, D], which lies with
    a stride of H D between tokens and is dense within one, since heads of a group are neighbours.
    It walks k and v in blocks of c places, up to the last that its last token sees, with the
    running maximum m, sum l and weighted sum o of a row:

        s = scale q k^T, -inf where place > at + row div (H / G)
        m' = max(m, max s);  p = exp(s - m');  f = exp(m - m')
        l = f l + sum p;  o = f o + p v;  m = m'

    and stores o / l. Nothing else has a size that is known at run time only, so C is the capacity
    and places beyond are masked where the walk is not cut short.

    In a decode step B x G programs may be few. Split-KV gives each a range of places, keeps (m, l,
    o) in float32 [B, T, H, splits, D + 2], and joins them in the order of the ranges: m = max m_i,
    the result sum exp(m_i - m) o_i / sum exp(m_i - m) l_i; a range that nobody sees has l_i = 0
    and is left out.

    Source: Rabe and Staats, "Self-attention Does Not Need O(n^2) Memory" (2021); Dao et al.,
    "FlashAttention" (2022); Flash-Decoding (2023) for the split.
    """

    name = "task.attention"

    q = operand_def(TensorType)
    k = operand_def(TensorType)
    v = operand_def(TensorType)
    position = opt_operand_def(TensorType)
    causal_attr = opt_prop_def(UnitAttr, prop_name="causal")
    offset = prop_def(IntegerAttr.constr(i64))
    scale_attr = prop_def(FloatAttr.constr(f64), prop_name="scale")

    assembly_format = (
        "$q `,` $k `,` $v (`causal` $causal^)? `at` $offset (`plus` $position^)? `scale` $scale"
        f" {TAIL} type($q) `,` type($k) `,` type($v) (`,` type($position)^)? `->` type($result)"
    )

    def __init__(
        self,
        operands: tuple[SSAValue, SSAValue, SSAValue],
        offset: int,
        position: SSAValue | None,
        *,
        causal: bool,
        scale: float,
        **common: Unpack[CommonArgs],
    ) -> None:
        q, k, v = (spec_of(operand) for operand in operands)
        start = start_of(offset, position)
        spec = rules.attention(q, k, v, start, scale, scope_of(operands, common))
        props = {
            "causal": UnitAttr() if causal else None,
            "offset": IntegerAttr(offset, i64),
            "scale": FloatAttr(scale, f64),
        }
        build(self, [*operands, [] if position is None else [position]], spec, common, **props)

    @property
    def at(self) -> int:
        """The place of the first token, less the run-time number."""
        return self.offset.value.data

    @property
    def causal(self) -> bool:
        return self.causal_attr is not None

    @property
    def scale(self) -> float:
        return self.scale_attr.value.data

    def infer_from(self, operands: Sequence[TensorSpec], scope: Scope) -> TensorSpec:
        q, k, v, *numbers = operands
        start = start_of(self.at, self.position, numbers)
        return rules.attention(q, k, v, start, self.scale, scope)

    def placement_rule(self) -> Rule:
        return attention_rule(numbers=len(self.operands) - 3)
