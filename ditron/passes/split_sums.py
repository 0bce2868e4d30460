"""split-sums: what few tasks would sum is cut into parts that many do, and the parts are joined.

    %y = task.attention %q, %k, %v causal at 0 plus %pos scale 1.0 : 1x1x32x128, 1x512x8x128 ...
    ->
    %p = task.attention_parts %q, %k, %v at 0 plus %pos scale 1.0 places 32 : -> 1x16x32x130xf32
    %o = task.slice %p dim 3 at 0 size 128          // views: nothing is copied
    %m = task.slice %p dim 3 at 128 size 1
    %l = task.slice %p dim 3 at 129 size 1
    %y = task.attention_join %o, %m, %l : -> 1x1x32x128

A decode step's attention has a task a batch and key head, too few to keep a memory busy; here 8
become 128, and a second grid joins them in the order of the ranges. Likewise the greatest of a long
row, `amax`, and `argmax` with labels (`largest_parts.py`). Done where the machine's costs say that
it pays (`plan/split_cost.py`), or as `splits` says: into so many parts, 1 for none.

Needs: task IR with placements. Ensures: the same results but for rounding; what a join makes has
the name of the op that it stands for.

Source: Dao et al., "Flash-Decoding for long-context inference" (2023).
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from ditron.analysis.symbols import task_program
from ditron.analysis.tile_groups import local_shape
from ditron.ir import task
from ditron.ir.attrs import ChoiceAttr
from ditron.passes.choices import ns
from ditron.passes.choose_algorithms import parse_per_op, told_per_op
from ditron.passes.largest_parts import Known, split_largest
from ditron.plan.machine import Machine, load_machine
from ditron.plan.options import Options
from ditron.plan.prediction import NO_PREDICTION, Prediction
from ditron.plan.split_cost import LongSum, split_answer
from ditron.plan.tables import DTYPE_BYTES


@dataclass(frozen=True)
class SplitSumsPass(ModulePass):
    """See the module's docstring; `per_op` items are `pattern:splits=value`."""

    name = "split-sums"

    machine: str = "cpu"
    splits: int | None = None
    per_op: tuple[str, ...] = ()

    @staticmethod
    def of(options: Options, machine: str) -> SplitSumsPass:
        """The pass that carries out a user's options."""
        return SplitSumsPass(machine, options.splits, told_per_op(options))

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        options = Options(splits=self.splits, per_op=parse_per_op(self.per_op))
        machine = load_machine(self.machine)
        known: Known = {}
        for one in list(task_program(op).body.block.ops):
            if isinstance(one, task.AttentionOp) and task.spec_of(one.q).shape[1] == 1:
                _split_attention(one, machine, options.for_op(one.label()).splits)
            elif isinstance(one, task.AmaxOp | task.ArgmaxOp):
                split_largest(one, machine, options.for_op(one.label()).splits, known)


def _split_attention(op: task.AttentionOp, machine: Machine, splits: int | None) -> None:
    capacity, prediction = task.spec_of(op.k).shape[1], NO_PREDICTION
    if splits is not None:
        places = -(-capacity // splits)
    else:
        answers = split_answer(machine, _attention_sum(op))
        (places, us), (_, other_us) = answers[0], next(a for a in answers if a[0] == capacity)
        prediction = Prediction(ns(us), "all in one", ns(other_us))
    if places >= capacity:
        return
    width = task.spec_of(op.q).shape[3]
    choice = ChoiceAttr.get(tile=(op.together, width), prediction=prediction)
    point = InsertPoint.before(op)

    def add(one: task.ComputeOp) -> task.ComputeOp:
        one.location = op.location
        Rewriter.insert_op(one, point)
        return one

    parts = add(
        task.AttentionPartsOp(op, places, op_name=f"{op.label()}.parts", choice=choice)
    ).result
    sums, largest, weights = (
        add(task.SliceOp(parts, 3, at, size)).result
        for at, size in ((0, width), (width, 1), (width + 1, 1))
    )
    dtype = task.spec_of(op.result).dtype
    join = add(task.AttentionJoinOp((sums, largest, weights), dtype, op_name=op.label()))
    join.result.name_hint = op.result.name_hint
    op.result.replace_all_uses_with(join.result)
    Rewriter.erase_op(op)


def _attention_sum(op: task.AttentionOp) -> LongSum:
    """What of an attention's tasks its cost depends on."""
    program = op.parent_op()
    assert isinstance(program, task.ProgramOp)
    spec = task.spec_of(op.k)
    batch, places, groups, width = local_shape(spec, program.mesh)
    heads = groups * op.together
    return LongSum(
        tasks=batch * groups,
        length=places,
        read_bytes=2 * width * DTYPE_BYTES[spec.dtype],
        dtype=spec.dtype,
        joins=batch * heads,
        part_bytes=(width + 2) * DTYPE_BYTES["f32"],
    )
