"""Task ops that rearrange elements, and `task.update`; rules are in `ditron.plan.spec_views`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    prop_def,
    traits_def,
    var_operand_def,
)
from xdsl.utils.exceptions import VerifyException

from ditron.errors import ProgramError
from ditron.ir.attrs import TensorType
from ditron.ir.effects import ReadsAndWrites
from ditron.ir.task_program import (
    TAIL,
    UNARY_FORMAT,
    CommonArgs,
    ComputeOp,
    PureOp,
    ScalarOp,
    StateOp,
    build,
    scope_of,
    spec_of,
)
from ditron.plan import reshape as reshapes
from ditron.plan import spec_views as rules
from ditron.plan.placement import Scope
from ditron.plan.placement_rules import Rule
from ditron.plan.placement_table import concat_rule, slice_rule, transpose_rule, update_rule
from ditron.plan.spec import TensorSpec
from ditron.plan.spec_views import Start

_INDEX = IntegerAttr.constr(i64)
_AT = "`at` $offset (`plus` $position^)?"


@irdl_op_definition
class SliceOp(PureOp):
    """`size` elements of `dim`, from `at` on, or from `at` plus a run-time number."""

    name = "task.slice"

    operand = operand_def(TensorType)
    position = opt_operand_def(TensorType)
    dim = prop_def(_INDEX)
    offset = prop_def(_INDEX)
    size = prop_def(_INDEX)

    assembly_format = (
        f"$operand `dim` $dim {_AT} `size` $size {TAIL}"
        " type($operand) (`,` type($position)^)? `->` type($result)"
    )

    def __init__(
        self,
        x: SSAValue,
        dim: int,
        offset: int,
        size: int,
        position: SSAValue | None = None,
        **common: Unpack[CommonArgs],
    ) -> None:
        start = start_of(offset, position)
        spec = rules.slice(spec_of(x), dim, start, size, scope_of([x], common))
        props = {
            "dim": IntegerAttr(dim, i64),
            "offset": IntegerAttr(offset, i64),
            "size": IntegerAttr(size, i64),
        }
        build(self, [x, _optional(position)], spec, common, **props)

    @property
    def dim_index(self) -> int:
        return self.dim.value.data

    @property
    def at(self) -> int:
        """Where it begins, less the run-time number."""
        return self.offset.value.data

    def infer_from(self, operands: Sequence[TensorSpec], scope: Scope) -> TensorSpec:
        start = start_of(self.at, self.position, operands[1:])
        return rules.slice(operands[0], self.dim_index, start, self.size.value.data, scope)

    def placement_rule(self) -> Rule:
        ndim, numbers = len(spec_of(self.operand).shape), len(self.operands) - 1
        return slice_rule(ndim, self.dim_index, numbers=numbers)


@irdl_op_definition
class UpdateOp(ComputeOp):
    """The state with a value written over part of `dim`, from `at` on; it is written in place.

    What the state held before cannot be read any more.
    """

    name = "task.update"

    state = operand_def(TensorType)
    value = operand_def(TensorType)
    position = opt_operand_def(TensorType)
    dim = prop_def(_INDEX)
    offset = prop_def(_INDEX)

    traits = traits_def(ReadsAndWrites())
    assembly_format = (
        f"$state `,` $value `dim` $dim {_AT} {TAIL}"
        " type($state) `,` type($value) (`,` type($position)^)? `->` type($result)"
    )

    def __init__(
        self,
        state: SSAValue,
        value: SSAValue,
        dim: int,
        offset: int,
        position: SSAValue | None = None,
        **common: Unpack[CommonArgs],
    ) -> None:
        scope = scope_of([state], common)
        find_state(state, (scope.names or ("it",))[0])
        start = start_of(offset, position)
        spec = rules.update(spec_of(state), spec_of(value), dim, start, scope)
        props = {"dim": IntegerAttr(dim, i64), "offset": IntegerAttr(offset, i64)}
        build(self, [state, value, _optional(position)], spec, common, **props)

    @property
    def dim_index(self) -> int:
        return self.dim.value.data

    @property
    def at(self) -> int:
        """Where the value goes, less the run-time number."""
        return self.offset.value.data

    @property
    def overwritten(self) -> SSAValue:
        return self.state

    def infer_from(self, operands: Sequence[TensorSpec], scope: Scope) -> TensorSpec:
        state, value, *numbers = operands
        start = start_of(self.at, self.position, numbers)
        return rules.update(state, value, self.dim_index, start, scope)

    def placement_rule(self) -> Rule:
        ndim, numbers = len(spec_of(self.state).shape), len(self.operands) - 2
        return update_rule(ndim, self.dim_index, numbers=numbers)

    def verify_(self) -> None:
        try:
            find_state(self.state, "its first operand")
        except ProgramError as error:
            raise VerifyException(error.message) from error
        super().verify_()


@irdl_op_definition
class ReshapeOp(PureOp):
    """The same elements in row-major order, in the result's shape."""

    name = "task.reshape"

    operand = operand_def(TensorType)

    assembly_format = UNARY_FORMAT

    def __init__(self, x: SSAValue, shape: Sequence[int], **common: Unpack[CommonArgs]) -> None:
        spec = reshapes.reshape(spec_of(x), tuple(shape), scope_of([x], common))
        build(self, [x], spec, common)

    def becomes(self) -> tuple[tuple[int | None, ...], ...]:
        before, after = spec_of(self.operand).shape, spec_of(self.result).shape
        kept: list[int | None] = [None] * len(before)
        for runs in reshapes.matching_dims(before, after):
            ours, theirs = map(_but_ones, runs, (before, after))
            if len(ours) == len(theirs) == 1:
                kept[ours[0]] = theirs[0]
        return (tuple(kept),)

    def infer_from(self, operands: Sequence[TensorSpec], scope: Scope) -> TensorSpec:
        return reshapes.reshape(operands[0], spec_of(self.result).shape, scope)


@irdl_op_definition
class TransposeOp(PureOp):
    """Two dimensions change places."""

    name = "task.transpose"

    operand = operand_def(TensorType)
    first = prop_def(_INDEX)
    second = prop_def(_INDEX)

    assembly_format = f"$operand `dims` $first `,` $second {TAIL} type($operand) `->` type($result)"

    def __init__(self, x: SSAValue, first: int, second: int, **common: Unpack[CommonArgs]) -> None:
        spec = rules.transpose(spec_of(x), first, second, scope_of([x], common))
        props = {"first": IntegerAttr(first, i64), "second": IntegerAttr(second, i64)}
        build(self, [x], spec, common, **props)

    @property
    def dims(self) -> tuple[int, int]:
        """The dimensions that change places."""
        return self.first.value.data, self.second.value.data

    def infer_from(self, operands: Sequence[TensorSpec], scope: Scope) -> TensorSpec:
        return rules.transpose(operands[0], *self.dims, scope)

    def placement_rule(self) -> Rule:
        return transpose_rule(len(spec_of(self.operand).shape), *self.dims)


@irdl_op_definition
class ConcatOp(PureOp):
    """The operands one after the other along `dim`."""

    name = "task.concat"

    values = var_operand_def(TensorType)
    dim = prop_def(_INDEX)

    assembly_format = f"$values `dim` $dim {TAIL} type($values) `->` type($result)"

    def __init__(self, values: Sequence[SSAValue], dim: int, **common: Unpack[CommonArgs]) -> None:
        spec = rules.concat([spec_of(v) for v in values], dim, scope_of(values, common))
        build(self, [values], spec, common, dim=IntegerAttr(dim, i64))

    @property
    def dim_index(self) -> int:
        return self.dim.value.data

    def infer_from(self, operands: Sequence[TensorSpec], scope: Scope) -> TensorSpec:
        return rules.concat(operands, self.dim_index, scope)

    def placement_rule(self) -> Rule:
        ndim = len(spec_of(self.result).shape)
        return concat_rule(len(self.operands), ndim, self.dim_index)


def find_state(value: SSAValue, called: str = "it") -> StateOp:
    """The state whose content a value is.

    Raises:
        ProgramError: it is no state's.
    """
    owner = value.owner
    while isinstance(owner, UpdateOp):
        owner = owner.state.owner
    if not isinstance(owner, StateOp):
        message = f"update writes to what p.state or update returned; {called} is neither"
        raise ProgramError(message)
    return owner


def start_of(
    offset: int, position: SSAValue | None, specs: Sequence[TensorSpec] | None = None
) -> Start:
    """Where a slice or update begins; `specs` has the number's, where not its own is meant.

    Raises:
        ProgramError: it is no number of the program's, or has no bound.
    """
    if position is None:
        return Start(offset)
    scalar = position.owner
    if not isinstance(scalar, ScalarOp) or scalar.most is None:
        message = "a place at run time is a p.scalar(name, dtype, max=...), whose max is known"
        raise ProgramError(message)
    number = spec_of(position) if specs is None else specs[0]
    return Start(offset, number, scalar.most)


def _but_ones(dims: list[int], shape: tuple[int, ...]) -> list[int]:
    """Those that are not of size 1, if there are any."""
    return [d for d in dims if shape[d] != 1] or dims


def _optional(value: SSAValue | None) -> list[SSAValue]:
    return [] if value is None else [value]
