"""What a tensor of a program is, and what each task operation makes of its operands.

Shape and dtype rules are here, placement rules in `placement.py`. Builder, verifier and the pass
`infer-placements` call the same functions, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ditron.errors import DTypeError, MeshError, PlacementError, ShapeError
from ditron.plan.dtypes import DTYPES, Kind
from ditron.plan.placement import (
    Partial,
    Placements,
    Shard,
    apply_rule,
    cast_rule,
    collective_placement,
    matmul_placement,
    pointwise_placement,
    show,
)

UNARY = ("silu", "gelu", "relu", "exp")
BINARY = ("add", "sub", "mul")
COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce")


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


def show_shape(shape: Sequence[int]) -> str:
    """`512x256`."""
    return "x".join(map(str, shape))


def check_spec(spec: TensorSpec, axes: int, name: str = "tensor") -> None:
    """A tensor must be one that can exist on a mesh of that many axes.

    Raises:
        ShapeError: a negative size, or no dimension at all.
        PlacementError: too many or few placements, or a dimension that the shape lacks.
        DTypeError: partial sums of a dtype that has no sum.
    """
    if not spec.shape:
        message = f"{name} needs at least one dimension; a number has shape (1,)"
        raise ShapeError(message)
    if any(size < 0 for size in spec.shape):
        message = f"{name} has a negative size in shape {spec.shape}"
        raise ShapeError(message)
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
    a: TensorSpec, b: TensorSpec, *, transpose_b: bool = False, names: Sequence[str] = ("a", "b")
) -> TensorSpec:
    """`a @ b`: a [M, K], b [K, N] (or [N, K] transposed) -> [M, N], the operands' dtype."""
    what = f"matmul of {names[0]} {show_shape(a.shape)} and {names[1]} {show_shape(b.shape)}"
    if len(a.shape) != 2 or len(b.shape) != 2:
        message = f"{what}: expected two matrices"
        raise ShapeError(message)
    k, n = reversed(b.shape) if transpose_b else b.shape
    if a.shape[1] != k:
        dim = 1 if transpose_b else 0
        message = (
            f"{what}: {names[0]}'s dim 1 is {a.shape[1]}, but {names[1]}'s dim {dim} is {k};"
            f" they are summed over and must agree"
        )
        raise ShapeError(message)
    _check_dtypes("matmul", (a, b), names, (Kind.FLOAT,))
    placements = matmul_placement(a.placements, b.placements, transpose_b=transpose_b, names=names)
    return TensorSpec((a.shape[0], n), a.dtype, placements)


def pointwise(
    fn: str, operands: Sequence[TensorSpec], *, names: Sequence[str] = ("a", "b")
) -> TensorSpec:
    """A unary or binary function of elements; size-1 dimensions broadcast as torch does."""
    shape = _broadcast(fn, [o.shape for o in operands], names)
    numbers = (Kind.FLOAT,) if fn in UNARY and fn != "relu" else (Kind.FLOAT, Kind.INT)
    _check_dtypes(fn, operands, names, numbers)
    placements = pointwise_placement(
        fn, [o.placements for o in operands], [o.shape for o in operands], names=names
    )
    return TensorSpec(shape, operands[0].dtype, placements)


def cast(x: TensorSpec, dtype: str, *, name: str = "x") -> TensorSpec:
    """The same tensor in another dtype; partial sums only where the cast keeps sums."""
    rule = cast_rule(keeps_sums=x.kind is DTYPES[dtype].kind)
    placements = apply_rule(f"cast to {dtype}", rule, [x.placements], [len(x.shape)], [name])
    return replace(x, dtype=dtype, placements=placements)


def collective(
    kind: str, x: TensorSpec, *, axis: int = 0, dim: int | None = None, name: str = "x"
) -> TensorSpec:
    """The same global tensor, placed otherwise over the mesh axis at index `axis`."""
    if x.placements and not 0 <= axis < len(x.placements):
        message = f"{kind} over mesh axis {axis}, but {name} has {len(x.placements)}"
        raise MeshError(message)
    if dim is not None and not 0 <= dim < len(x.shape):
        message = (
            f"{kind}(dim={dim}): {name} has shape {x.shape}, so dim is 0 to {len(x.shape) - 1}"
        )
        raise ShapeError(message)
    if not x.placements:
        return x
    placements = collective_placement(kind, x.placements, axis=axis, dim=dim, name=name)
    return replace(x, placements=placements)


def _broadcast(fn: str, shapes: Sequence[tuple[int, ...]], names: Sequence[str]) -> tuple[int, ...]:
    if len({len(s) for s in shapes}) > 1:
        message = (
            f"{fn} of {_named(names, shapes)}: numbers of dimensions differ; give the smaller"
            f" one leading dimensions of size 1"
        )
        raise ShapeError(message)
    result: list[int] = []
    for dim, sizes in enumerate(zip(*shapes, strict=True)):
        wide = {s for s in sizes if s != 1}
        if len(wide) > 1:
            message = f"{fn} of {_named(names, shapes)}: sizes of dim {dim} must agree or be 1"
            raise ShapeError(message)
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def _named(names: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> str:
    return " and ".join(f"{n} {show_shape(s)}" for n, s in zip(names, shapes, strict=False))


def _check_dtypes(
    op: str, operands: Sequence[TensorSpec], names: Sequence[str], kinds: Sequence[Kind]
) -> None:
    dtypes = [o.dtype for o in operands]
    if len(set(dtypes)) > 1:
        came = " and ".join(f"{n} {d}" for n, d in zip(names, dtypes, strict=False))
        message = f"{op} of {came}: dtypes must agree; cast one of them"
        raise DTypeError(message)
    if operands[0].kind not in kinds:
        message = f"{op} takes {' or '.join(kinds)} dtypes, got {dtypes[0]}"
        raise DTypeError(message)
