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
the rules of `ditron.plan.placement_table`, the same that the builder raises errors from.
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
from ditron.plan.moves import Move
from ditron.plan.placement import Mesh
from ditron.plan.placement_rules import Rule, find_mends


@dataclass(frozen=True)
class InferPlacementsPass(ModulePass):
    """See the module's docstring; `insert` adds the collective that mends an op."""

    name = "infer-placements"

    insert: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for program in op.ops:
            if isinstance(program, task.ProgramOp):
                _infer(program, insert=self.insert)


# What was inserted already: operand and move -> the result.
_Mended = dict[tuple[SSAValue, Move], SSAValue]


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


def _mend(op: task.ComputeOp, rule: Rule, mesh: Mesh, mended: _Mended) -> None:
    """Give the op the collectives it lacks; ops with the same need share one."""
    while ways := find_mends(rule, [task.spec_of(operand).placements for operand in op.operands]):
        for mend in ways[0]:
            operand = op.operands[mend.operand]
            key = (operand, mend.move)
            if key not in mended:
                mended[key] = _insert_before(op, operand, mend.move, mesh)
            op.operands[mend.operand] = mended[key]


def _insert_before(op: task.ComputeOp, operand: SSAValue, move: Move, mesh: Mesh) -> SSAValue:
    made = task.move_op(operand, move, mesh)
    made.location = op.location
    made.result.name_hint = move.kind
    Rewriter.insert_op(made, InsertPoint.before(op))
    return made.result
