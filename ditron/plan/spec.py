"""What a tensor of a program is, and what each task operation makes of its operands.

Shapes and dtypes are here, placements in `placement_table.py`. Builder, verifier and the pass
`infer-placements` call the same functions, so they cannot disagree. Rules of collectives, layers
and views are in `spec_collectives.py`, `spec_layers.py` and `spec_views.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from ditron.errors import DTypeError, PlacementError, ShapeError
from ditron.plan.dtypes import DTYPES, Kind
from ditron.plan.limits import MAX_ELEMENTS
from ditron.plan.placement import Partial, Placements, Scope, Shard, show
from ditron.plan.placement_rules import apply_rule
from ditron.plan.placement_table import cast_rule, matmul_rule, pointwise_rule

UNARY = ("silu", "gelu", "relu", "exp")
NOWHERE = Scope()
"""No mesh, no names."""


@dataclass(frozen=True)
class TensorSpec:
    """A distributed tensor: global shape, dtype by name, one placement per mesh axis.

    No placements at all: not inferred yet. The rules below then tell shape and dtype alone.
    """

    shape: tuple[int, ...]
    dtype: str
    placements: Placements

    def __str__(self) -> str:
        return f"{show_shape(self.shape)} {self.dtype} {show(self.placements)}"

    @property
    def kind(self) -> Kind:
        return DTYPES[self.dtype].kind


def check_size(spec: TensorSpec, name: str) -> None:
    """Raise a ShapeError for more elements than index arithmetic can number."""
    if prod(max(size, 1) for size in spec.shape) > MAX_ELEMENTS:
        message = f"{name} of shape {show_shape(spec.shape)} has more than 2^48 elements"
        raise ShapeError(message)


def show_shape(shape: Sequence[int]) -> str:
    """`512x256`."""
    return "x".join(map(str, shape))


def check_spec(spec: TensorSpec, axes: int, name: str = "tensor") -> None:
    """A tensor must be one that can exist on a mesh of that many axes.

    Raises:
        ShapeError: a negative size, no dimension at all, or too many elements.
        PlacementError: too many or few placements, or a dimension that the shape lacks.
        DTypeError: partial sums of a dtype that has no sum.
    """
    if not spec.shape:
        message = f"{name} needs at least one dimension; a number has shape (1,)"
        raise ShapeError(message)
    if any(size < 0 for size in spec.shape):
        message = f"{name} has a negative size in shape {spec.shape}"
        raise ShapeError(message)
    check_size(spec, name)
    if len(spec.placements) != axes:
        message = f"{name} needs one placement per mesh axis: {axes}, got {len(spec.placements)}"
        raise PlacementError(message)
    for placement in spec.placements:
        if isinstance(placement, Shard) and not 0 <= placement.dim < len(spec.shape):
            message = (
                f"{name} is {placement}, but shape {spec.shape} has {len(spec.shape)} dimensions"
            )
            raise PlacementError(message)
    if Partial() in spec.placements and spec.kind is Kind.BOOL:
        message = f"{name} is partial(sum), but bool values have no sum"
        raise DTypeError(message)


def matmul(
    a: TensorSpec, b: TensorSpec, scope: Scope = NOWHERE, *, transpose_b: bool = False
) -> TensorSpec:
    """`a @ b`: a [..., M, K], b [..., K, N] (or [..., N, K] transposed) -> [..., M, N].

    Leading dimensions agree, or b has none. The result has the operands' dtype.
    """
    scope = scope.called("a", "b")
    _check_matrices(a.shape, b.shape, scope, transpose_b=transpose_b)
    check_dtypes("matmul", (a, b), scope, (Kind.FLOAT,))
    rule = matmul_rule(len(a.shape), len(b.shape), transpose_b=transpose_b)
    placements = apply_rule(rule, (a.placements, b.placements), scope)
    n = b.shape[-2 if transpose_b else -1]
    return TensorSpec((*a.shape[:-1], n), a.dtype, placements)


def _check_matrices(
    a: tuple[int, ...], b: tuple[int, ...], scope: Scope, *, transpose_b: bool
) -> None:
    one, other = scope.names
    what = f"matmul of {one} {show_shape(a)} and {other} {show_shape(b)}"
    if len(a) < 2 or len(b) not in (2, len(a)):
        message = f"{what}: expected two matrices, with the same leading dimensions or none of"
        message += f" {other}'s"
        raise ShapeError(message)
    if len(b) > 2 and a[:-2] != b[:-2]:
        message = (
            f"{what}: leading dimensions {show_shape(a[:-2])} and {show_shape(b[:-2])} must agree,"
            f" or {other} have none"
        )
        raise ShapeError(message)
    dim = len(b) - (1 if transpose_b else 2)
    if a[-1] != b[dim]:
        message = (
            f"{what}: {one}'s dim {len(a) - 1} is {a[-1]}, but {other}'s dim {dim} is {b[dim]};"
            f" they are summed over and must agree"
        )
        raise ShapeError(message)


def pointwise(fn: str, operands: Sequence[TensorSpec], scope: Scope = NOWHERE) -> TensorSpec:
    """A unary or binary function of elements; size-1 dimensions broadcast as torch does."""
    scope = scope.called(*("x",) if len(operands) == 1 else ("a", "b"))
    shapes = [o.shape for o in operands]
    shape = broadcast_shape(fn, shapes, scope)
    numbers = (Kind.FLOAT,) if fn in UNARY and fn != "relu" else (Kind.FLOAT, Kind.INT)
    check_dtypes(fn, operands, scope, numbers)
    rule = pointwise_rule(fn, shapes)
    placements = apply_rule(rule, [o.placements for o in operands], scope)
    return TensorSpec(shape, operands[0].dtype, placements)


def cast(x: TensorSpec, dtype: str, scope: Scope = NOWHERE) -> TensorSpec:
    """The same tensor in another dtype; partial sums only where the cast keeps sums."""
    keeps_sums = x.kind is DTYPES[dtype].kind
    rule = cast_rule(f"cast to {dtype}", len(x.shape), keeps_sums=keeps_sums)
    placements = apply_rule(rule, [x.placements], scope.called("x"))
    return replace(x, dtype=dtype, placements=placements)


def broadcast_shape(fn: str, shapes: Sequence[tuple[int, ...]], scope: Scope) -> tuple[int, ...]:
    """The shape of a function of elements.

    Raises:
        ShapeError: numbers of dimensions differ, or sizes that are not 1.
    """
    if len({len(s) for s in shapes}) > 1:
        message = (
            f"{fn} of {_named(scope, shapes)}: numbers of dimensions differ; give the smaller"
            f" one leading dimensions of size 1"
        )
        raise ShapeError(message)
    result: list[int] = []
    for dim, sizes in enumerate(zip(*shapes, strict=True)):
        wide = {s for s in sizes if s != 1}
        if len(wide) > 1:
            message = f"{fn} of {_named(scope, shapes)}: sizes of dim {dim} must agree or be 1"
            raise ShapeError(message)
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def _named(scope: Scope, shapes: Sequence[tuple[int, ...]]) -> str:
    return " and ".join(f"{n} {show_shape(s)}" for n, s in zip(scope.names, shapes, strict=True))


def check_dtypes(
    op: str, operands: Sequence[TensorSpec], scope: Scope, kinds: Sequence[Kind] = tuple(Kind)
) -> None:
    """All operands must have one dtype, of one of these kinds.

    Raises:
        DTypeError: they have not.
    """
    dtypes = [o.dtype for o in operands]
    if len(set(dtypes)) > 1:
        came = " and ".join(f"{n} {d}" for n, d in zip(scope.names, dtypes, strict=True))
        message = f"{op} of {came}: dtypes must agree; cast one of them"
        raise DTypeError(message)
    if operands[0].kind not in kinds:
        message = f"{op} takes {' or '.join(kinds)} dtypes, got {dtypes[0]}"
        raise DTypeError(message)
