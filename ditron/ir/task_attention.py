"""`task.attention`: softmax(q k) v, on a prompt or against a cache; its parts, and their join."""

from __future__ import annotations

from abc import ABC
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
from ditron.plan.placement_table import aligned_rows_rule, attention_rule
from ditron.plan.spec import TensorSpec


class HeadsOp(PureOp, ABC):
    """Query heads q [B, T, H, D] look at places of k and v [B, C, G, D]."""

    q = operand_def(TensorType)
    k = operand_def(TensorType)
    v = operand_def(TensorType)
    position = opt_operand_def(TensorType)
    offset = prop_def(IntegerAttr.constr(i64))
    scale_attr = prop_def(FloatAttr.constr(f64), prop_name="scale")

    @property
    def at(self) -> int:
        """The place of the first token, less the run-time number."""
        return self.offset.value.data

    @property
    def scale(self) -> float:
        return self.scale_attr.value.data

    @property
    def together(self) -> int:
        """Query heads that share a key head."""
        heads, groups = (spec_of(value).shape[2] for value in (self.q, self.k))
        return heads // groups


Operands = tuple[SSAValue, SSAValue, SSAValue]


@irdl_op_definition
class AttentionOp(HeadsOp):
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

    In a decode step B x G programs may be few: `split-sums` then makes `task.attention_parts` and
    `task.attention_join` of it.

    Source: Rabe and Staats, "Self-attention Does Not Need O(n^2) Memory" (2021); Dao et al.,
    "FlashAttention" (2022).
    """

    name = "task.attention"

    causal_attr = opt_prop_def(UnitAttr, prop_name="causal")

    assembly_format = (
        "$q `,` $k `,` $v (`causal` $causal^)? `at` $offset (`plus` $position^)? `scale` $scale"
        f" {TAIL} type($q) `,` type($k) `,` type($v) (`,` type($position)^)? `->` type($result)"
    )

    def __init__(
        self,
        operands: Operands,
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
    def causal(self) -> bool:
        return self.causal_attr is not None

    def infer_from(self, operands: Sequence[TensorSpec], scope: Scope) -> TensorSpec:
        q, k, v, *numbers = operands
        start = start_of(self.at, self.position, numbers)
        return rules.attention(q, k, v, start, self.scale, scope)

    def placement_rule(self) -> Rule:
        return attention_rule(numbers=len(self.operands) - 3)


@irdl_op_definition
class AttentionPartsOp(HeadsOp):
    """The attention of one token a sequence, by ranges of `places`: [B, ranges, H, D + 2] in f32.

    q is [B, 1, H, D]; it sees places 0 to `at`. Of each range the result has, for each head, the
    weighted sum of v, not divided, in columns 0 to D - 1, the largest score m in column D, and the
    sum of the weights exp(s - m) in column D + 1. Of a range of which nothing is seen they are 0,
    -inf and 0. The last range may be shorter.

    As tiles: a program a (batch, range, key head), as in `task.attention`.

    Source: Dao et al., "Flash-Decoding for long-context inference" (2023).
    """

    name = "task.attention_parts"

    places_attr = prop_def(IntegerAttr.constr(i64), prop_name="places")

    assembly_format = (
        "$q `,` $k `,` $v `at` $offset (`plus` $position^)? `scale` $scale `places` $places"
        f" {TAIL} type($q) `,` type($k) `,` type($v) (`,` type($position)^)? `->` type($result)"
    )

    def __init__(self, whole: AttentionOp, places: int, **common: Unpack[CommonArgs]) -> None:
        operands = (whole.q, whole.k, whole.v)
        q, k, v = (spec_of(operand) for operand in operands)
        start, scope = start_of(whole.at, whole.position), scope_of(operands, common)
        spec = rules.attention_parts(q, k, v, start, whole.scale, places, scope)
        number = [] if whole.position is None else [whole.position]
        props = {"offset": whole.offset, "scale": whole.scale_attr}
        build(self, [*operands, number], spec, common, places=IntegerAttr(places, i64), **props)

    @property
    def places(self) -> int:
        """Places of a range."""
        return self.places_attr.value.data

    def infer_from(self, operands: Sequence[TensorSpec], scope: Scope) -> TensorSpec:
        q, k, v, *numbers = operands
        start = start_of(self.at, self.position, numbers)
        return rules.attention_parts(q, k, v, start, self.scale, self.places, scope)

    def placement_rule(self) -> Rule:
        return attention_rule(numbers=len(self.operands) - 3, parts=True)


@irdl_op_definition
class AttentionJoinOp(PureOp):
    """Attention of its parts: `sum e o / sum e l`, e = exp(m - max m), along dimension 1.

    o [B, ranges, H, D], m and l [B, ranges, H, 1] are those of `task.attention_parts`, the result
    [B, 1, H, D]. Some range is seen. The order of the sum is that of the ranges, whoever was fast.
    """

    name = "task.attention_join"

    sums = operand_def(TensorType)
    largest = operand_def(TensorType)
    weights = operand_def(TensorType)

    assembly_format = (
        f"$sums `,` $largest `,` $weights {TAIL}"
        " type($sums) `,` type($largest) `,` type($weights) `->` type($result)"
    )

    def __init__(self, operands: Operands, dtype: str, **common: Unpack[CommonArgs]) -> None:
        sums, largest, weights = (spec_of(operand) for operand in operands)
        scope = scope_of(operands, common)
        build(self, operands, rules.attention_join(sums, largest, weights, dtype, scope), common)

    def infer_from(self, operands: Sequence[TensorSpec], scope: Scope) -> TensorSpec:
        sums, largest, weights = operands
        dtype = spec_of(self.result).dtype
        return rules.attention_join(sums, largest, weights, dtype, scope)

    def placement_rule(self) -> Rule:
        return aligned_rows_rule("attention_join", [spec_of(o).shape for o in self.operands], 1)
