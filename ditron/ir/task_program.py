"""Task programs: what holds ops, what comes in and out, and what all ops that compute share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypedDict

from xdsl.dialects.builtin import IntegerAttr, StringAttr, SymbolNameConstraint, i64
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
)
from xdsl.traits import (
    HasParent,
    IsolatedFromAbove,
    NoTerminator,
    Pure,
    SymbolOpInterface,
)
from xdsl.utils.exceptions import VerifyException

from ditron.errors import MeshError, ProgramError
from ditron.ir.attrs import ChoiceAttr, MeshAttr, TensorType
from ditron.plan.dtypes import Kind
from ditron.plan.placement import Mesh, Replicate, Scope
from ditron.plan.placement_rules import Rule
from ditron.plan.spec import TensorSpec, check_size
from ditron.plan.tables import Role


@irdl_op_definition
class ProgramOp(IRDLOperation):
    """A program on the ranks of a mesh; its ops run in any order that data allows."""

    name = "task.program"

    sym_name = prop_def(SymbolNameConstraint())
    mesh_attr = prop_def(MeshAttr, prop_name="mesh")
    body = region_def("single_block")

    traits = traits_def(IsolatedFromAbove(), NoTerminator(), SymbolOpInterface())
    assembly_format = "$sym_name `mesh` qualified($mesh) attr-dict-with-keyword $body"

    def __init__(self, name: str, mesh: Mesh, body: Region | None = None) -> None:
        super().__init__(
            properties={"sym_name": StringAttr(name), "mesh": MeshAttr.get(mesh)},
            regions=[Region(Block()) if body is None else body],
        )

    @property
    def program_name(self) -> str:
        return self.sym_name.data

    @property
    def mesh(self) -> Mesh:
        return self.mesh_attr.mesh

    @property
    def inputs(self) -> Iterator[InputOp | WeightOp]:
        """Inputs and weights, in program order."""
        return (op for op in self.body.block.ops if isinstance(op, InputOp | WeightOp))

    @property
    def states(self) -> Iterator[StateOp]:
        """States, in program order."""
        return (op for op in self.body.block.ops if isinstance(op, StateOp))

    @property
    def scalars(self) -> Iterator[ScalarOp]:
        """Run-time numbers, in program order."""
        return (op for op in self.body.block.ops if isinstance(op, ScalarOp))

    @property
    def sources(self) -> list[SourceOp | ScalarOp]:
        """All that comes from outside: inputs and weights, numbers, states."""
        return [*self.inputs, *self.scalars, *self.states]

    @property
    def outputs(self) -> Iterator[OutputOp]:
        """Outputs, in program order."""
        return (op for op in self.body.block.ops if isinstance(op, OutputOp))

    def verify_(self) -> None:
        axes = len(self.mesh.axes)
        names: list[str] = []
        outputs: list[SSAValue] = []
        for op in self.body.block.ops:
            match op:
                case SourceOp() | ScalarOp():
                    names.append(op.tensor_name.data)
                    if not op.result.type.placements:
                        message = f'input "{op.tensor_name.data}" needs placements'
                        raise VerifyException(message)
                case OutputOp():
                    names.append(op.tensor_name.data)
                    outputs.append(op.operand)
                case ComputeOp():
                    pass
                case _:
                    message = f"{op.name} does not belong in a task.program"
                    raise VerifyException(message)
            _verify_axes(op, axes)
        _verify_tensors(names, outputs)
        _verify_overwritten(self.body.block)


def _verify_axes(op: Operation, axes: int) -> None:
    for result in op.results:
        if isinstance(result.type, TensorType) and len(result.type.placements) not in (0, axes):
            message = f"{op.name}: {result.type} needs one placement per mesh axis, so {axes}"
            raise VerifyException(message)


def _verify_tensors(names: Sequence[str], outputs: Sequence[SSAValue]) -> None:
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        message = f"two inputs or outputs are called {', '.join(twice)}"
        raise VerifyException(message)
    if not outputs:
        message = "a program needs at least one output"
        raise VerifyException(message)
    if len(set(outputs)) < len(outputs):
        message = "a value is output twice"
        raise VerifyException(message)


def _verify_overwritten(block: Block) -> None:
    """A state is one buffer, so what it held before an update cannot be read after it."""
    gone: set[SSAValue] = set()
    for op in block.ops:
        if not gone.isdisjoint(op.operands):
            message = f"{op.name} reads a state as it was before it was updated"
            raise VerifyException(message)
        if isinstance(op, ComputeOp) and (overwritten := op.overwritten) is not None:
            gone.add(overwritten)


class SourceOp(IRDLOperation, ABC):
    """A tensor that comes from outside the program."""

    tensor_name = prop_def(StringAttr, prop_name="name")
    result = result_def(TensorType)

    traits = traits_def(HasParent(ProgramOp))
    assembly_format = "$name attr-dict `:` type($result)"

    def __init__(self, name: str, result_type: TensorType) -> None:
        super().__init__(properties={"name": StringAttr(name)}, result_types=[result_type])


@irdl_op_definition
class InputOp(SourceOp):
    """`%x = task.input "x" : !t`: passed by each run."""

    name = "task.input"


@irdl_op_definition
class WeightOp(SourceOp):
    """`%w = task.weight "w" : !t`: bound once, kept between runs."""

    name = "task.weight"


@irdl_op_definition
class StateOp(SourceOp):
    """`%k = task.state "k" : !t`: what it held after the last run; zeros at first."""

    name = "task.state"


@irdl_op_definition
class ScalarOp(IRDLOperation):
    """`%p = task.scalar "pos" max 4095 : !task.tensor<1xi32, [replicate]>`: passed by each run.

    A number of 0 to `max`, where it says where a slice or update begins; else any number.
    """

    name = "task.scalar"

    tensor_name = prop_def(StringAttr, prop_name="name")
    max_attr = opt_prop_def(IntegerAttr.constr(i64), prop_name="max")
    result = result_def(TensorType)

    traits = traits_def(HasParent(ProgramOp))
    assembly_format = "$name (`max` $max^)? attr-dict `:` type($result)"

    def __init__(self, name: str, result_type: TensorType, most: int | None = None) -> None:
        bound = None if most is None else IntegerAttr(most, i64)
        super().__init__(
            properties={"name": StringAttr(name), "max": bound}, result_types=[result_type]
        )

    @property
    def most(self) -> int | None:
        """The largest number that it may be."""
        return self.max_attr.value.data if self.max_attr is not None else None

    def verify_(self) -> None:
        spec = self.result.type.spec
        if spec.shape != (1,) or any(p != Replicate() for p in spec.placements):
            message = f"a scalar has shape (1,) and is replicated, got {self.result.type}"
            raise VerifyException(message)
        if self.most is not None and (spec.kind is not Kind.INT or self.most < 0):
            message = f"a scalar with max is an integer of 0 or more, got {self.result.type}"
            raise VerifyException(message)


@irdl_op_definition
class OutputOp(IRDLOperation):
    """`task.output "y", %y : !t`: returned by each run; partial sums come back summed."""

    name = "task.output"

    tensor_name = prop_def(StringAttr, prop_name="name")
    operand = operand_def(TensorType)

    traits = traits_def(HasParent(ProgramOp))
    assembly_format = "$name `,` $operand attr-dict `:` type($operand)"

    def __init__(self, name: str, operand: SSAValue) -> None:
        super().__init__(properties={"name": StringAttr(name)}, operands=[operand])


def role_of(op: SourceOp | ScalarOp) -> Role:
    """What the buffer is that holds what comes from outside."""
    match op:
        case WeightOp():
            return Role.WEIGHT
        case StateOp():
            return Role.STATE
        case _:
            return Role.INPUT


class CommonArgs(TypedDict, total=False):
    """What every op that computes may be given besides its operands and properties.

    `names` are what messages call the operands.
    """

    op_name: str | None
    choice: ChoiceAttr | None
    names: Sequence[str]


class ComputeOp(IRDLOperation, ABC):
    """An op whose result type follows from its operands and properties.

    `op_name` is the user's name for it, `choice` how it is to be carried out.
    """

    op_name = opt_prop_def(StringAttr)
    choice = opt_prop_def(ChoiceAttr)
    result = result_def(TensorType)

    traits = traits_def(HasParent(ProgramOp))

    @property
    def overwritten(self) -> SSAValue | None:
        """The state that the op writes over, if it does."""
        return None

    @abstractmethod
    def infer_from(self, operands: Sequence[TensorSpec], scope: Scope) -> TensorSpec:
        """What the result must be for such operands, by the rules of `ditron.plan.spec`.

        Raises:
            ProgramError: the operands do not fit.
        """

    def placement_rule(self) -> Rule | None:
        """What a mesh axis makes of the operands' placements; None for a collective."""
        return None

    def becomes(self) -> tuple[tuple[int | None, ...], ...]:
        """For each operand, which dimension of the result each of its own is; None: none."""
        rule = self.placement_rule()
        if rule is not None:
            return rule.becomes
        return tuple(tuple(range(len(spec_of(value).shape))) for value in self.operands)

    def infer(self, *, placements: bool = True) -> TensorSpec:
        """What the result must be; without placements if so asked or where an operand has none.

        Raises:
            ProgramError: the operands do not fit.
        """
        specs = [spec_of(operand) for operand in self.operands]
        if not placements or not all(spec.placements for spec in specs):
            specs = [replace(spec, placements=()) for spec in specs]
        return self.infer_from(specs, scope_of(self.operands))

    def verify_(self) -> None:
        given = spec_of(self.result)
        placed = bool(given.placements)
        try:
            expected = self.infer(placements=placed)
        except ProgramError as error:
            raise VerifyException(error.message) from error
        if placed and not expected.placements:
            message = "the result is placed, but an operand is not"
            raise VerifyException(message)
        if given != expected:
            wanted = TensorType.of(expected)
            message = f"the result should be {wanted}, got {self.result.type}"
            raise VerifyException(message)

    def label(self) -> str:
        """The user's name, else the op's."""
        return self.op_name.data if self.op_name else self.name.partition(".")[2]


class PureOp(ComputeOp, ABC):
    """An op that does nothing but make its result."""

    traits = traits_def(Pure())


def spec_of(value: SSAValue) -> TensorSpec:
    """The spec of a value of tensor type."""
    return SSAValue.get(value, type=TensorType).type.spec


def scope_of(values: Iterable[SSAValue], common: CommonArgs | None = None) -> Scope:
    """The mesh that values lie on, and what messages call them.

    Raises:
        MeshError: they are of no program.
    """
    values = list(values)
    for value in values:
        owner: Operation | None = value.owner if isinstance(value.owner, Operation) else None
        while owner is not None and not isinstance(owner, ProgramOp):
            owner = owner.parent_op()
        if owner is not None:
            return Scope(owner.mesh, tuple(common.get("names", ())) if common else ())
    if values:
        message = "operands of a task op are values of a task.program"
        raise MeshError(message)
    return Scope()


def build(
    op: ComputeOp,
    operands: Sequence[SSAValue | Sequence[SSAValue]],
    spec: TensorSpec,
    common: CommonArgs,
    **props: Attribute | None,
) -> None:
    """Make an op whose result is of a spec; what `__init__` of a compute op comes down to."""
    check_size(spec, f"the result of {op.name.partition('.')[2]}")
    op_name = common.get("op_name")
    named = StringAttr(op_name) if op_name else None
    IRDLOperation.__init__(
        op,
        operands=operands,
        result_types=[TensorType.of(spec)],
        properties={"op_name": named, "choice": common.get("choice"), **props},
    )


TAIL = "(`name` $op_name^)? (`choice` qualified($choice)^)? attr-dict `:` "
"""What the formats of ops that compute have before their types."""
UNARY_FORMAT = f"$operand {TAIL} type($operand) `->` type($result)"
BINARY_FORMAT = f"$lhs `,` $rhs {TAIL} type($lhs) `,` type($rhs) `->` type($result)"
