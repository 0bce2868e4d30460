"""What a user may pass, turned into ditron's own plain data."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Protocol, cast

from ditron.errors import MeshError, PlacementError, ProgramError, ShapeError
from ditron.plan.callsite import user_line
from ditron.plan.limits import MAX_ELEMENTS
from ditron.plan.placement import Mesh, Partial, Placement, Placements, Replicate, Shard, show

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")


def as_name(name: object, what: str) -> str:
    """A name of letters, digits, `_`, `.` and `-`, so that it can stand in IR, tables and files.

    Raises:
        ProgramError: anything else.
    """
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    message = f"{what} needs a name of letters, digits, '_', '.' and '-', got {name!r}"
    raise ProgramError(message)


def as_shape(shape: object, what: str) -> tuple[int, ...]:
    """A shape as a tuple, from any sequence of integers.

    Raises:
        ShapeError: something in it is no size.
    """
    try:
        return tuple(operator.index(size) for size in cast("Sequence[int]", shape))
    except TypeError:
        message = f"{what} needs a shape of integers, got {shape!r}"
        raise ShapeError(message) from None


def as_dim(dim: object, ndim: int, what: str) -> int:
    """A dimension's index; negative ones count from the end, as torch's do.

    Raises:
        ShapeError: there is no such dimension.
    """
    try:
        index = operator.index(cast("int", dim))
    except TypeError:
        message = f"{what} needs an integer dim, got {dim!r}"
        raise ShapeError(message) from None
    if not -ndim <= index < ndim:
        message = f"{what}: dim {index} is out of range, expected {-ndim} to {ndim - 1}"
        raise ShapeError(message)
    return index % ndim


def as_index(number: object, what: str) -> int:
    """An integer.

    Raises:
        ProgramError: anything else.
    """
    try:
        index = operator.index(cast("int", number))
    except TypeError:
        message = f"{what} is an integer, got {number!r}"
        raise ProgramError(message) from None
    if abs(index) > MAX_ELEMENTS:
        message = f"{what} is at most 2^48, got {index}"
        raise ProgramError(message)
    return index


def as_number(number: object, what: str) -> float:
    """A float or integer.

    Raises:
        ProgramError: anything else.
    """
    if isinstance(number, bool) or not isinstance(number, int | float):
        message = f"{what} is a number, got {number!r}"
        raise ProgramError(message)
    return float(number)


def as_axis(
    axis: str | None,
    mesh: Mesh,
    placements: Placements,
    fits: Callable[[Placement], bool],
    what: str,
) -> str:
    """The mesh axis an operation works over: the one named, else the only one whose placement fits.

    Where none fits it is one that the operation's own rule will refuse, with a message that helps.

    Raises:
        MeshError: the mesh has no such axis, or several fit and none is named.
    """
    if axis is not None:
        mesh.index(axis)
        return axis
    if len(mesh.axes) == 1:
        return mesh.axes[0]
    fitting = [a for a, p in zip(mesh.axes, placements, strict=True) if fits(p)]
    if len(fitting) > 1:
        message = (
            f"{what} could work over {' or '.join(fitting)} of {mesh}, as the tensor is"
            f" {show(placements)}; name one with axis="
        )
        raise MeshError(message)
    placed = [a for a, p in zip(mesh.axes, placements, strict=True) if p != Replicate()]
    return (*fitting, *placed, *mesh.axes)[0]


def as_placements(placements: object, mesh: Mesh, ndim: int, what: str) -> Placements:
    """One placement per mesh axis, from ditron's or DTensor's own; a bare one if there is one axis.

    Raises:
        PlacementError: something that is no placement, or the wrong number of them.
    """
    several = isinstance(placements, tuple | list)
    given = cast("Sequence[object]", placements) if several else (placements,)
    result = tuple(_placement(p, ndim, what) for p in given)
    if len(result) != len(mesh.axes):
        message = (
            f"{what} needs one placement per axis of {mesh}: {len(mesh.axes)}, got {len(result)}"
        )
        raise PlacementError(message)
    return result


def _placement(given: object, ndim: int, what: str) -> Placement:
    match _own(given):
        case Shard(dim):
            if not -ndim <= dim < ndim:
                message = f"{what} is {Shard(dim)}, but its shape has {ndim} dimensions"
                raise PlacementError(message)
            return Shard(dim % ndim)
        case Replicate() | Partial() as placement:
            return placement
        case _:
            message = f"{what} needs placements Shard(dim), Replicate() or Partial(), got {given!r}"
            raise PlacementError(message)


class _DTensorPlacement(Protocol):
    dim: int
    reduce_op: str


def _own(given: object) -> object:
    """DTensor's placement as ditron's; anything else as it is (torch is not imported)."""
    if not type(given).__module__.startswith("torch.distributed"):
        return given
    theirs = cast("_DTensorPlacement", given)
    match type(given).__name__:
        case "Shard":
            return Shard(theirs.dim)
        case "Replicate":
            return Replicate()
        case "Partial":
            return Partial(theirs.reduce_op)
        case _:
            return given


def as_mesh(mesh: object, *, several: bool = False) -> Mesh:
    """A mesh that programs can be on; of several axes only if so said.

    Raises:
        MeshError: anything else.
    """
    if not isinstance(mesh, Mesh):
        message = f"a program needs a Mesh, as in Mesh(tp=4), got {mesh!r}"
        raise MeshError(message)
    if len(mesh.axes) > 1 and not several:
        message = f"programs on {mesh} are not supported yet: use one axis"
        raise MeshError(message)
    return mesh


@contextmanager
def at_user_line() -> Generator[None]:
    """Errors of the rules, raised again as errors at the user's line; also a decorator."""
    try:
        yield
    except ProgramError as error:
        if error.where is None:
            error.where = user_line()
        raise
