"""The task dialect: a program on distributed tensors, in SSA form.

One op per operation of the user's program, on tensors with global shapes; what each op makes of its
operands is in `ditron.plan.spec`. Every op is pure, so dead code may go.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from xdsl.dialects.builtin import IntegerAttr, StringAttr, SymbolNameConstraint, UnitAttr, i64
from xdsl.ir import Attribute, Block, Dialect, Operation, Region, SSAValue
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

from ditron.errors import ProgramError
from ditron.ir.attrs import ChoiceAttr, MeshAttr, PlacementsAttr, TensorType
from ditron.plan import spec as rules
from ditron.plan.placement import AxisRule, Mesh, cast_rule, matmul_rule, pointwise_rule
from ditron.plan.spec import TensorSpec


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
    def outputs(self) -> Iterator[OutputOp]:
        """Outputs, in program order."""
        return (op for op in self.body.block.ops if isinstance(op, OutputOp))

    def verify_(self) -> None:
        axes = len(self.mesh.axes)
        if axes > 1:
            message = f"programs on {self.mesh} are not supported yet: use one axis"
            raise VerifyException(message)
        names: list[str] = []
        outputs: list[SSAValue] = []
        for op in self.body.block.ops:
            match op:
                case SourceOp():
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


def _verify_axes(op: Operation, axes: int) -> None:
    for result in op.results:
        if isinstance(result.type, TensorType) and len(result.type.placements) not in (0, axes):
            message = f"{op.name}: {result.type} needs {axes} placement, one per mesh axis"
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
class OutputOp(IRDLOperation):
    """`task.output "y", %y : !t`: returned by each run; partial sums come back summed."""

    name = "task.output"

    tensor_name = prop_def(StringAttr, prop_name="name")
    operand = operand_def(TensorType)

    traits = traits_def(HasParent(ProgramOp))
    assembly_format = "$name `,` $operand attr-dict `:` type($operand)"

    def __init__(self, name: str, operand: SSAValue) -> None:
        super().__init__(properties={"name": StringAttr(name)}, operands=[operand])


class ComputeOp(IRDLOperation, ABC):
    """An op whose result type follows from its operands and properties.

    `op_name` is the user's name for it, `choice` how it is to be carried out.
    """

    op_name = opt_prop_def(StringAttr)
    choice = opt_prop_def(ChoiceAttr)
    result = result_def(TensorType)

    traits = traits_def(Pure(), HasParent(ProgramOp))

    @abstractmethod
    def infer_from(self, operands: Sequence[TensorSpec]) -> TensorSpec:
        """What the result must be for such operands, by the rules of `ditron.plan.spec`.

        Raises:
            ProgramError: the operands do not fit.
        """

    def placement_rule(self) -> AxisRule | None:
        """What a mesh axis makes of the operands' placements; None for a collective."""
        return None

    def infer(self, *, placements: bool = True) -> TensorSpec:
        """What the result must be; without placements if so asked or where an operand has none.

        Raises:
            ProgramError: the operands do not fit.
        """
        specs = [spec_of(operand) for operand in self.operands]
        if not placements or not all(spec.placements for spec in specs):
            specs = [replace(spec, placements=()) for spec in specs]
        return self.infer_from(specs)

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


def spec_of(value: SSAValue) -> TensorSpec:
    """The spec of a value of tensor type."""
    return SSAValue.get(value, type=TensorType).type.spec


def _build(
    op: ComputeOp,
    operands: Sequence[SSAValue],
    spec: TensorSpec,
    op_name: str | None,
    choice: ChoiceAttr | None,
    **props: Attribute | None,
) -> None:
    named = StringAttr(op_name) if op_name else None
    IRDLOperation.__init__(
        op,
        operands=operands,
        result_types=[TensorType.of(spec)],
        properties={"op_name": named, "choice": choice, **props},
    )


_TAIL = "(`name` $op_name^)? (`choice` qualified($choice)^)? attr-dict `:` "
_UNARY_FORMAT = f"$operand {_TAIL} type($operand) `->` type($result)"
_BINARY_FORMAT = f"$lhs `,` $rhs {_TAIL} type($lhs) `,` type($rhs) `->` type($result)"


@irdl_op_definition
class MatmulOp(ComputeOp):
    """`a @ b` accumulated in float32: a [M, K], b [K, N], or [N, K] under `transpose_b`."""

    name = "task.matmul"

    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    transpose_b = opt_prop_def(UnitAttr)

    assembly_format = (
        "$lhs `,` $rhs (`transpose_b` $transpose_b^)? "
        f"{_TAIL} type($lhs) `,` type($rhs) `->` type($result)"
    )

    def __init__(
        self,
        lhs: SSAValue,
        rhs: SSAValue,
        *,
        transpose_b: bool = False,
        op_name: str | None = None,
        choice: ChoiceAttr | None = None,
    ) -> None:
        spec = rules.matmul(spec_of(lhs), spec_of(rhs), transpose_b=transpose_b)
        unit = UnitAttr() if transpose_b else None
        _build(self, [lhs, rhs], spec, op_name, choice, transpose_b=unit)

    def infer_from(self, operands: Sequence[TensorSpec]) -> TensorSpec:
        a, b = operands
        return rules.matmul(a, b, transpose_b=self.transpose_b is not None)

    def placement_rule(self) -> AxisRule:
        return matmul_rule(transpose_b=self.transpose_b is not None)


class PointwiseOp(ComputeOp, ABC):
    """A function of elements; size-1 dimensions of operands broadcast."""

    def __init__(
        self, *operands: SSAValue, op_name: str | None = None, choice: ChoiceAttr | None = None
    ) -> None:
        spec = self._rule([spec_of(operand) for operand in operands])
        _build(self, operands, spec, op_name, choice)

    @classmethod
    def function(cls) -> str:
        """The function's name, such as "add"."""
        return cls.name.partition(".")[2]

    @classmethod
    def _rule(cls, operands: Sequence[TensorSpec]) -> TensorSpec:
        names = ("x",) if len(operands) == 1 else ("a", "b")
        return rules.pointwise(cls.function(), operands, names=names)

    def infer_from(self, operands: Sequence[TensorSpec]) -> TensorSpec:
        return self._rule(operands)

    def placement_rule(self) -> AxisRule:
        return pointwise_rule(self.function(), [spec_of(o).shape for o in self.operands])


class BinaryOp(PointwiseOp, ABC):
    """A pointwise function of two tensors."""

    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)

    assembly_format = _BINARY_FORMAT


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

    assembly_format = _UNARY_FORMAT


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
class CastOp(ComputeOp):
    """The same elements in the result's dtype."""

    name = "task.cast"

    operand = operand_def(TensorType)

    assembly_format = _UNARY_FORMAT

    def __init__(
        self,
        operand: SSAValue,
        dtype: str,
        *,
        op_name: str | None = None,
        choice: ChoiceAttr | None = None,
    ) -> None:
        _build(self, [operand], rules.cast(spec_of(operand), dtype), op_name, choice)

    def infer_from(self, operands: Sequence[TensorSpec]) -> TensorSpec:
        return rules.cast(operands[0], spec_of(self.result).dtype)

    def placement_rule(self) -> AxisRule:
        return cast_rule(keeps_sums=spec_of(self.operand).kind is spec_of(self.result).kind)


class CollectiveOp(ComputeOp, ABC):
    """The same global tensor, moved to lie otherwise over one mesh axis."""

    operand = operand_def(TensorType)
    axis = prop_def(StringAttr)

    @property
    def dim_index(self) -> int | None:
        """The dimension that is gathered or scattered, if the collective has one."""
        return None

    def infer_from(self, operands: Sequence[TensorSpec]) -> TensorSpec:
        return _collective(self.name, operands[0], self.operand, self.axis.data, self.dim_index)


def _collective(
    name: str, spec: TensorSpec, operand: SSAValue, axis: str, dim: int | None
) -> TensorSpec:
    kind = name.partition(".")[2]
    return rules.collective(kind, spec, axis=_axis_index(operand, axis), dim=dim)


def _axis_index(value: SSAValue, axis: str) -> int:
    """The position of a mesh axis in the program that defines a value; 0 in none."""
    owner: Operation | None = value.owner if isinstance(value.owner, Operation) else None
    while owner is not None and not isinstance(owner, ProgramOp):
        owner = owner.parent_op()
    return owner.mesh.index(axis) if owner is not None else 0


class DimCollectiveOp(CollectiveOp, ABC):
    """A collective that cuts or joins shards of one dimension."""

    dim = prop_def(IntegerAttr.constr(i64))

    assembly_format = f"$operand `dim` $dim `axis` $axis {_TAIL} type($operand) `->` type($result)"

    def __init__(
        self,
        operand: SSAValue,
        dim: int,
        axis: str,
        *,
        op_name: str | None = None,
        choice: ChoiceAttr | None = None,
    ) -> None:
        spec = _collective(self.name, spec_of(operand), operand, axis, dim)
        props = {"axis": StringAttr(axis), "dim": IntegerAttr(dim, i64)}
        _build(self, [operand], spec, op_name, choice, **props)

    @property
    def dim_index(self) -> int:
        return self.dim.value.data


@irdl_op_definition
class AllGatherOp(DimCollectiveOp):
    """Shards of `dim` become the whole tensor on every rank of the axis."""

    name = "task.all_gather"


@irdl_op_definition
class ReduceScatterOp(DimCollectiveOp):
    """Partial sums are added, and each rank of the axis keeps its shard of `dim`."""

    name = "task.reduce_scatter"


@irdl_op_definition
class AllReduceOp(CollectiveOp):
    """Partial sums are added on every rank of the axis."""

    name = "task.all_reduce"

    assembly_format = f"$operand `axis` $axis {_TAIL} type($operand) `->` type($result)"

    def __init__(
        self,
        operand: SSAValue,
        axis: str,
        *,
        op_name: str | None = None,
        choice: ChoiceAttr | None = None,
    ) -> None:
        spec = _collective(self.name, spec_of(operand), operand, axis, None)
        _build(self, [operand], spec, op_name, choice, axis=StringAttr(axis))


POINTWISE: list[type[PointwiseOp]] = [AddOp, SubOp, MulOp, SiluOp, GeluOp, ReluOp, ExpOp]
COLLECTIVES: list[type[CollectiveOp]] = [AllGatherOp, ReduceScatterOp, AllReduceOp]

Task = Dialect(
    "task",
    [ProgramOp, InputOp, WeightOp, OutputOp, MatmulOp, *POINTWISE, CastOp, *COLLECTIVES],
    [MeshAttr, PlacementsAttr, TensorType, ChoiceAttr],
)
