"""The task dialect: a program on distributed tensors, in SSA form.

One op per operation of the user's program, on tensors with global shapes; what each op makes of its
operands is in `ditron.plan.spec`. Every op is pure, so dead code may go.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

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
from ditron.plan.placement import Mesh
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
        for op in self.body.block.ops:
            if not isinstance(op, InputOp | WeightOp | OutputOp | ComputeOp):
                message = f"{op.name} does not belong in a task.program"
                raise VerifyException(message)
            for result in op.results:
                if isinstance(result.type, TensorType) and len(result.type.placements) != axes:
                    message = f"{result.type} needs {axes} placements, as the mesh has"
                    raise VerifyException(message)
        self._verify_names("input", [op.tensor_name.data for op in self.inputs])
        self._verify_names("output", [op.tensor_name.data for op in self.outputs])
        if next(self.outputs, None) is None:
            message = "a program needs at least one output"
            raise VerifyException(message)

    def _verify_names(self, kind: str, names: list[str]) -> None:
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            message = f"two {kind}s are called {', '.join(sorted(twice))}"
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
    def infer(self) -> TensorSpec:
        """What the result must be, by the rules of `ditron.plan.spec`.

        Raises:
            ProgramError: the operands do not fit.
        """

    def verify_(self) -> None:
        try:
            expected = TensorType.of(self.infer())
        except ProgramError as error:
            message = f"{self.name}: {error.message}"
            raise VerifyException(message) from error
        if self.result.type != expected:
            message = f"{self.name}: the result should be {expected}, got {self.result.type}"
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

    def infer(self) -> TensorSpec:
        transpose_b = self.transpose_b is not None
        return rules.matmul(spec_of(self.lhs), spec_of(self.rhs), transpose_b=transpose_b)


class BinaryOp(ComputeOp, ABC):
    """A pointwise function of two tensors; size-1 dimensions broadcast."""

    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)

    assembly_format = _BINARY_FORMAT

    def __init__(
        self,
        lhs: SSAValue,
        rhs: SSAValue,
        *,
        op_name: str | None = None,
        choice: ChoiceAttr | None = None,
    ) -> None:
        spec = rules.pointwise(self.function(), [spec_of(lhs), spec_of(rhs)])
        _build(self, [lhs, rhs], spec, op_name, choice)

    @classmethod
    def function(cls) -> str:
        """The function's name, such as "add"."""
        return cls.name.partition(".")[2]

    def infer(self) -> TensorSpec:
        return rules.pointwise(self.function(), [spec_of(self.lhs), spec_of(self.rhs)])


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


class UnaryOp(ComputeOp, ABC):
    """A pointwise function of one tensor."""

    operand = operand_def(TensorType)

    assembly_format = _UNARY_FORMAT

    def __init__(
        self, operand: SSAValue, *, op_name: str | None = None, choice: ChoiceAttr | None = None
    ) -> None:
        spec = rules.pointwise(self.function(), [spec_of(operand)], names=("x",))
        _build(self, [operand], spec, op_name, choice)

    @classmethod
    def function(cls) -> str:
        """The function's name, such as "silu"."""
        return cls.name.partition(".")[2]

    def infer(self) -> TensorSpec:
        return rules.pointwise(self.function(), [spec_of(self.operand)], names=("x",))


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

    def infer(self) -> TensorSpec:
        return rules.cast(spec_of(self.operand), spec_of(self.result).dtype)


class CollectiveOp(ComputeOp, ABC):
    """The same global tensor, moved to lie otherwise over one mesh axis."""

    operand = operand_def(TensorType)
    axis = prop_def(StringAttr)

    @property
    def dim_index(self) -> int | None:
        """The dimension that is gathered or scattered, if the collective has one."""
        return None

    def infer(self) -> TensorSpec:
        return _collective(self, self.operand, self.axis.data, self.dim_index)


def _collective(op: CollectiveOp, operand: SSAValue, axis: str, dim: int | None) -> TensorSpec:
    program = operand.owner if isinstance(operand.owner, Operation) else None
    while program is not None and not isinstance(program, ProgramOp):
        program = program.parent_op()
    index = program.mesh.index(axis) if program is not None else 0
    kind = op.name.partition(".")[2]
    return rules.collective(kind, spec_of(operand), axis=index, dim=dim)


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
        spec = _collective(self, operand, axis, dim)
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
        spec = _collective(self, operand, axis, None)
        _build(self, [operand], spec, op_name, choice, axis=StringAttr(axis))


Task = Dialect(
    "task",
    [
        ProgramOp,
        InputOp,
        WeightOp,
        OutputOp,
        MatmulOp,
        AddOp,
        SubOp,
        MulOp,
        SiluOp,
        GeluOp,
        ReluOp,
        ExpOp,
        CastOp,
        AllGatherOp,
        ReduceScatterOp,
        AllReduceOp,
    ],
    [MeshAttr, PlacementsAttr, TensorType, ChoiceAttr],
)
