"""infer-placements: every tensor of a task program gets the placement that the rules give it.

    %p = task.matmul %x, %w : !task.tensor<8x6xbf16, [shard(1)]>, !task.tensor<6x4xbf16, [shard(0)]>
        -> !task.tensor<8x4xbf16>
    %y = task.silu %p : !task.tensor<8x4xbf16> -> !task.tensor<8x4xbf16>
    ->
    %p = task.matmul %x, %w : ... -> !task.tensor<8x4xbf16, [partial(sum)]>
    %q = task.all_reduce %p axis "tp" : ... -> !task.tensor<8x4xbf16, [replicate]>   // if `insert`
    %y = task.silu %q : ... -> !task.tensor<8x4xbf16, [replicate]>

Without `insert`, an op whose operands fit no rule is a PlacementError that names the collective.

Needs: task IR whose inputs and weights have placements. Ensures: every tensor has placements, by
the rules of `ditron.plan.placement`, the same that the builder raises errors from.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from ditron.errors import ProgramError
from ditron.ir import task
from ditron.ir.attrs import TensorType
from ditron.ir.locations import op_location
from ditron.plan.placement import AxisRule, Mend, Mesh, find_mends


@dataclass(frozen=True)
class InferPlacementsPass(ModulePass):
    """See the module's docstring; `insert` adds the collective that mends an op."""

    name = "infer-placements"

    insert: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for program in op.ops:
            if isinstance(program, task.ProgramOp):
                _infer(program, insert=self.insert)


# What was inserted already: operand, mesh axis, collective, its dim -> the result.
_Mended = dict[tuple[SSAValue, str, str, int | None], SSAValue]


def _infer(program: task.ProgramOp, *, insert: bool) -> None:
    mended: _Mended = {}
    for op in list(program.body.block.ops):
        if not isinstance(op, task.ComputeOp):
            continue
        try:
            if insert and (rule := op.placement_rule()) is not None:
                _mend(op, rule, program.mesh, mended)
            spec = op.infer()
        except ProgramError as error:
            raise type(error)(error.message, op_location(op)) from error
        if spec != task.spec_of(op.result):
            Rewriter.replace_value_with_new_type(op.result, TensorType.of(spec))


def _mend(op: task.ComputeOp, rule: AxisRule, mesh: Mesh, mended: _Mended) -> None:
    """Give the op the collective it lacks on each mesh axis; ops with the same need share one."""
    for index, axis in enumerate(mesh.axes):
        specs = [task.spec_of(operand) for operand in op.operands]
        if rule(tuple(spec.placements[index] for spec in specs)) is not None:
            continue
        ndims = [len(spec.shape) for spec in specs]
        mends, *_ = find_mends(rule, [spec.placements for spec in specs], ndims, index)
        for mend in mends:
            operand = op.operands[mend.operand]
            key = (operand, axis, mend.kind, mend.dim)
            if key not in mended:
                mended[key] = _insert_before(op, operand, mend, axis)
            op.operands[mend.operand] = mended[key]


def _insert_before(op: task.ComputeOp, operand: SSAValue, mend: Mend, axis: str) -> SSAValue:
    collective = _collective(operand, mend, axis)
    collective.location = op.location
    collective.result.name_hint = mend.kind
    Rewriter.insert_op(collective, InsertPoint.before(op))
    return collective.result


def _collective(operand: SSAValue, mend: Mend, axis: str) -> task.CollectiveOp:
    if mend.dim is None:
        return task.AllReduceOp(operand, axis)
    if mend.kind == "all_gather":
        return task.AllGatherOp(operand, mend.dim, axis)
    return task.ReduceScatterOp(operand, mend.dim, axis)
