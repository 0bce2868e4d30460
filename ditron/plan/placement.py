"""How tensors lie on a mesh, and the one table of what operations make of placements.

Placements are PyTorch DTensor's, one per mesh axis: `Shard(dim)` cuts a dimension like
`torch.chunk`, `Replicate()` is the whole tensor on every rank, `Partial()` is a term of a sum. The
builder, the IR's verifiers and the pass `infer-placements` all use the rules below. The rules hold
for each mesh axis by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ditron.errors import MeshError, PlacementError
from ditron.plan.callsite import user_line


@dataclass(frozen=True)
class Shard:
    """Rank r of the axis holds elements [r x q, (r + 1) x q) of `dim`, q = ceil(size / n)."""

    dim: int

    def __post_init__(self) -> None:
        if type(self.dim) is not int:
            message = f"Shard takes the index of a dimension, got {self.dim!r}"
            raise PlacementError(message, user_line())

    def __str__(self) -> str:
        return f"shard({self.dim})"


@dataclass(frozen=True)
class Replicate:
    """Every rank of the axis holds the whole tensor."""

    def __str__(self) -> str:
        return "replicate"


@dataclass(frozen=True)
class Partial:
    """Every rank of the axis holds a term; the tensor is their sum."""

    reduce_op: str = "sum"

    def __post_init__(self) -> None:
        if self.reduce_op != "sum":
            message = f'Partial knows "sum" only, got {self.reduce_op!r}'
            raise PlacementError(message, user_line())

    def __str__(self) -> str:
        return "partial(sum)"


Placement = Shard | Replicate | Partial
Placements = tuple[Placement, ...]


def show(placements: Sequence[Placement]) -> str:
    """`[shard(0), replicate]`, as the IR prints them."""
    return f"[{', '.join(map(str, placements))}]"


@dataclass(frozen=True, init=False)
class Mesh:
    """Ranks in a grid with named axes, row-major: `Mesh(dp=2, tp=4)` has rank dp * 4 + tp."""

    axes: tuple[str, ...]
    sizes: tuple[int, ...]

    def __init__(self, **axes: int) -> None:
        if not axes:
            message = "a mesh has at least one axis, as in Mesh(tp=4)"
            raise MeshError(message, user_line())
        for axis, size in axes.items():
            if type(size) is not int or size < 1:
                message = f"mesh axis {axis!r} needs a size of at least 1, got {size!r}"
                raise MeshError(message, user_line())
        object.__setattr__(self, "axes", tuple(axes))
        object.__setattr__(self, "sizes", tuple(axes.values()))

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return int(np.prod(self.sizes, dtype=np.int64))

    def size(self, axis: str) -> int:
        """The number of ranks along one axis."""
        return self.sizes[self.index(axis)]

    def index(self, axis: str) -> int:
        """The position of an axis.

        Raises:
            MeshError: the mesh has no such axis.
        """
        if axis not in self.axes:
            message = f"{self} has no axis {axis!r}; it has {', '.join(self.axes)}"
            raise MeshError(message)
        return self.axes.index(axis)

    def __repr__(self) -> str:
        return f"Mesh({', '.join(f'{a}={s}' for a, s in zip(self.axes, self.sizes, strict=True))})"


def shard_size(size: int, n: int) -> int:
    """Elements of a full shard: ceil(size / n), as `torch.chunk` cuts."""
    return -(-size // n)


def shard_extent(size: int, n: int, r: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Elements that rank r of n holds: the last ranks hold fewer, or none. `r` may be an array."""
    q = shard_size(size, n)
    return np.clip(size - np.asarray(r, np.int64) * q, 0, q)


# What one mesh axis makes of the operands' placements: None where the rule has no entry.
AxisRule = Callable[[tuple[Placement, ...]], Placement | None]

_R, _P = Replicate(), Partial()
_MATMUL: dict[tuple[Placement, ...], Placement] = {
    (_R, _R): _R,
    (Shard(0), _R): Shard(0),
    (_R, Shard(1)): Shard(1),
    (Shard(1), Shard(0)): _P,
    (_P, _R): _P,
    (_R, _P): _P,
}
_LINEAR = frozenset({"add", "sub"})  # of all operands at once: sums of partial sums


def matmul_placement(
    a: Placements, b: Placements, *, transpose_b: bool = False, names: Sequence[str] = ("a", "b")
) -> Placements:
    """The placement of `a @ b`, by `matmul_rule`.

    Raises:
        PlacementError: no rule fits; the message names the collective that mends it.
    """
    return apply_rule("matmul", matmul_rule(transpose_b=transpose_b), (a, b), (2, 2), names)


def matmul_rule(*, transpose_b: bool = False) -> AxisRule:
    """The table above, for a [M, K] and b [K, N]; [N, K] if transposed."""

    def rule(operands: tuple[Placement, ...]) -> Placement | None:
        left, right = operands
        if transpose_b and isinstance(right, Shard):
            right = Shard(1 - right.dim)
        return _MATMUL.get((left, right))

    return rule


def pointwise_placement(
    fn: str,
    operands: Sequence[Placements],
    shapes: Sequence[tuple[int, ...]],
    *,
    names: Sequence[str] = ("a", "b"),
) -> Placements:
    """The placement of a pointwise function of operands whose shapes broadcast.

    Raises:
        PlacementError: no rule fits; the message names the collective that mends it.
    """
    ndims = [len(shape) for shape in shapes]
    return apply_rule(fn, pointwise_rule(fn, shapes), operands, ndims, names)


def pointwise_rule(fn: str, shapes: Sequence[tuple[int, ...]]) -> AxisRule:
    """Equal placements or replicas beside one; partial sums only where the function is linear."""
    ndim = max(map(len, shapes))
    size = np.broadcast_shapes(*shapes)

    def aligned(placement: Placement, shape: tuple[int, ...]) -> Placement | None:
        if not isinstance(placement, Shard):
            return placement
        dim = placement.dim + ndim - len(shape)
        return Shard(dim) if shape[placement.dim] == size[dim] else None

    def rule(operands: tuple[Placement, ...]) -> Placement | None:
        seen = {aligned(p, s) for p, s in zip(operands, shapes, strict=True)}
        if _P in seen:
            scaled = fn == "mul" and seen == {_P, _R}
            return _P if scaled or (fn in _LINEAR and seen == {_P}) else None
        seen.discard(_R)
        return _R if not seen else seen.pop() if len(seen) == 1 else None

    return rule


def cast_rule(*, keeps_sums: bool) -> AxisRule:
    """A cast changes no placement; between kinds of dtypes it is not linear, so not of a sum."""

    def rule(operands: tuple[Placement, ...]) -> Placement | None:
        (have,) = operands
        return have if keeps_sums or have != _P else None

    return rule


def collective_placement(
    kind: str, placements: Placements, *, axis: int = 0, dim: int | None = None, name: str = "x"
) -> Placements:
    """The placement after a collective over the mesh axis at index `axis`.

    Raises:
        PlacementError: the operand does not lie as the collective needs it.
    """
    have = placements[axis]
    need: Placement = Shard(dim or 0) if kind == "all_gather" else _P
    if have != need:
        called = kind if dim is None else f"{kind}(dim={dim})"
        advice = _collective_advice(have, name)
        message = f"{called} needs {name} {need}, but it is {have}: {advice}"
        raise PlacementError(message)
    result: Placement = Shard(dim or 0) if kind == "reduce_scatter" else _R
    return (*placements[:axis], result, *placements[axis + 1 :])


def _collective_advice(have: Placement, name: str) -> str:
    match have:
        case Shard(dim):
            return f"all_gather({name}, dim={dim}) makes it whole"
        case Partial():
            return f"all_reduce({name}) or reduce_scatter({name}, dim=...) sums it"
        case Replicate():
            return f"{name} is whole on every rank already, so leave this collective out"


@dataclass(frozen=True)
class Mend:
    """A collective on one operand, over one mesh axis, after which a rule fits."""

    operand: int
    axis: int
    kind: str
    dim: int | None

    def call(self, name: str) -> str:
        """How a user writes it."""
        return (
            f"{self.kind}({name})" if self.dim is None else f"{self.kind}({name}, dim={self.dim})"
        )


def find_mends(
    rule: AxisRule, operands: Sequence[Placements], ndims: Sequence[int], axis: int
) -> list[tuple[Mend, ...]]:
    """What makes the rule fit on this axis, the preferred way first.

    Nearly always a single collective does; if none, every operand is made whole, which always fits.
    """
    here = tuple(p[axis] for p in operands)
    found: list[tuple[Mend, ...]] = []
    whole: list[Mend] = []
    for i, ndim in enumerate(ndims):
        others_sharded = any(isinstance(p, Shard) for j, p in enumerate(here) if j != i)
        for kind, dim, after in _steps(here[i], ndim, scatter_first=others_sharded):
            mend = Mend(i, axis, kind, dim)
            if rule((*here[:i], after, *here[i + 1 :])) is not None:
                found.append((mend,))
            if after == _R:
                whole.append(mend)
    return found or [tuple(whole)]


def _steps(
    have: Placement, ndim: int, *, scatter_first: bool
) -> Iterator[tuple[str, int | None, Placement]]:
    """Each collective that an operand may go through, with the placement after it."""
    match have:
        case Shard(dim):
            yield "all_gather", dim, _R
        case Partial():
            if not scatter_first:
                yield "all_reduce", None, _R
            for dim in range(ndim):
                yield "reduce_scatter", dim, Shard(dim)
            if scatter_first:
                yield "all_reduce", None, _R
        case Replicate():
            return


def apply_rule(
    op: str,
    rule: AxisRule,
    operands: Sequence[Placements],
    ndims: Sequence[int],
    names: Sequence[str],
) -> Placements:
    """The result's placement on every mesh axis.

    Raises:
        PlacementError: no rule fits; the message names the collective that mends it.
    """
    results: list[Placement] = []
    for axis in range(len(operands[0])):
        result = rule(tuple(p[axis] for p in operands))
        if result is None:
            ways = find_mends(rule, operands, ndims, axis)
            raise PlacementError(_misfit(op, operands, ways, names))
        results.append(result)
    return tuple(results)


def _misfit(
    op: str,
    operands: Sequence[Placements],
    ways: Sequence[tuple[Mend, ...]],
    names: Sequence[str],
) -> str:
    came = " and ".join(f"{n} {show(p)}" for n, p in zip(names, operands, strict=False))
    calls = (" and ".join(m.call(names[m.operand]) for m in mends) for mends in ways[:3])
    return f"{op} has no rule for {came}; to mend it use {' or '.join(calls)}"
