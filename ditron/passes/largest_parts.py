"""The greatest of a long row as the greatest of its parts'.

    %y = task.argmax %x labels %l dim 2 : 1x1x151936, ... -> 1x1x1xi64
    ->
    %a = task.reshape %x : -> 1x1x128x1187          // and %l
    %b = task.amax %a dim 3 : -> 1x1x128x1          // then reshaped to 1x1x128
    %t = task.argmax %a labels %l dim 3 : -> 1x1x128x1
    %y = task.argmax %b labels %t dim 2

Parts are of equal sizes, since a reshape makes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from ditron.analysis.tile_groups import local_shape
from ditron.ir import task
from ditron.ir.attrs import ChoiceAttr
from ditron.passes.choices import ns
from ditron.plan.machine import Machine
from ditron.plan.prediction import NO_PREDICTION, Prediction
from ditron.plan.split_cost import LEAST_PART, LongSum, split_answer
from ditron.plan.tables import DTYPE_BYTES

Largest = task.AmaxOp | task.ArgmaxOp
# Of a value, a dimension and a size of parts: the value in parts, and the greatest of each.
Known = dict[tuple[SSAValue, int, int], tuple[SSAValue, SSAValue]]


def split_largest(op: Largest, machine: Machine, splits: int | None, known: Known) -> None:
    """Cut what an op looks at into as many parts as pay, or at most `splits`.

    Args:
        op: it is replaced.
        machine: whose costs count.
        splits: at most so many parts; None leaves it to the costs.
        known: what was made for earlier ops, which is made once.
    """
    if isinstance(op, task.ArgmaxOp) and op.labels is None:
        return
    length, prediction = task.spec_of(op.operand).shape[op.dim_index], NO_PREDICTION
    if splits is not None:
        part = min(size for size in _divisors(length) if length // size <= splits)
    else:
        answers = split_answer(machine, _long(op))
        (part, us), (_, whole_us) = answers[0], next(a for a in answers if a[0] == length)
        prediction = Prediction(ns(us), "all in one", ns(whole_us))
    if 0 < part < length:
        _rewrite(op, part, prediction, known)


def _rewrite(op: Largest, part: int, prediction: Prediction, known: Known) -> None:
    dim, label, point = op.dim_index, op.label(), InsertPoint.before(op)
    choice = ChoiceAttr.get(tile=(1, part), prediction=prediction)
    alone = ChoiceAttr.get(tile=(1, part))

    def add(one: task.ComputeOp) -> SSAValue:
        one.location = op.location
        Rewriter.insert_op(one, point)
        return one.result

    def cut(value: SSAValue) -> SSAValue:
        shape = task.spec_of(value).shape
        sizes = (shape[dim] // part, part)
        return add(task.ReshapeOp(value, (*shape[:dim], *sizes, *shape[dim + 1 :])))

    def joined(value: SSAValue) -> SSAValue:
        shape = task.spec_of(value).shape
        return add(task.ReshapeOp(value, (*shape[: dim + 1], *shape[dim + 2 :])))

    key = (op.operand, dim, part)
    if key not in known:
        x = cut(op.operand)
        best = task.AmaxOp(x, dim + 1, op_name=f"{label}.greatest", choice=choice)
        known[key] = x, joined(add(best))
    x, best = known[key]
    if isinstance(op, task.AmaxOp):
        whole = add(task.AmaxOp(best, dim, op_name=label))
    else:
        assert op.labels is not None
        labels = cut(op.labels)
        parts = task.ArgmaxOp(x, labels, dim + 1, op_name=f"{label}.parts", choice=alone)
        whole = add(task.ArgmaxOp(best, joined(add(parts)), dim, op_name=label))
    whole.name_hint = op.result.name_hint
    op.result.replace_all_uses_with(whole)
    Rewriter.erase_op(op)


def _long(op: Largest) -> LongSum:
    """What of an op's tasks its cost depends on."""
    program = op.parent_op()
    assert isinstance(program, task.ProgramOp)
    spec = task.spec_of(op.operand)
    shape = local_shape(spec, program.mesh)
    rows = prod(shape) // max(shape[op.dim_index], 1)
    each = sum(DTYPE_BYTES[task.spec_of(operand).dtype] for operand in op.operands)
    length = shape[op.dim_index]
    return LongSum(
        tasks=rows,
        length=length,
        read_bytes=each,
        dtype=spec.dtype,
        joins=rows,
        part_bytes=each,
        sizes=_divisors(length),
    )


def _divisors(length: int) -> Sequence[int]:
    """Sizes that a row can be cut into, with the whole."""
    return [s for s in range(LEAST_PART, length) if length % s == 0] + [length]
