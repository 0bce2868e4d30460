"""Ops that rearrange elements without sending any, and updates of states.

S is Shard, R Replicate, P Partial. Where elements would have to move the error names the collective
to use first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ditron.builder.arguments import as_dim, as_index, as_name, as_shape, at_user_line
from ditron.builder.value import Value, admit, as_place, emit, program_of
from ditron.errors import ShapeError
from ditron.ir import task
from ditron.ir.task_program import CommonArgs


@at_user_line()
def slice(  # noqa: A001 - the public name
    x: Value, dim: int, start: int | Value, size: int, *, name: str | None = None
) -> Value:
    """`size` elements of `dim` from `start` on, as torch.narrow.

    `start` may be a scalar of the program's, declared with a max. Placements: `dim` whole.
    """
    given = {"start": start} if isinstance(start, Value) else {}
    args = admit("slice", name, x=x, **given)
    at = as_dim(dim, len(x.shape), "slice")
    offset, position = as_place(start, "slice's start")
    length = as_index(size, "slice's size")
    return emit(x, task.SliceOp(x.ssa, at, offset, length, position, **args))


@at_user_line()
def split(
    x: Value, sizes: int | Sequence[int], dim: int = 0, *, name: str | None = None
) -> tuple[Value, ...]:
    """Parts of `dim`, as torch.split: of the sizes given, or of one size but for the last.

    Each is a `slice`; with a `name` they are called `name.0`, `name.1`, ...
    """
    admit("split", name, x=x)
    at = as_dim(dim, len(x.shape), "split")
    total = x.shape[at]
    if isinstance(sizes, int):
        if sizes < 1:
            message = f"split takes parts of 1 or more elements, got {sizes}"
            raise ShapeError(message)
        lengths = [min(sizes, total - begin) for begin in range(0, total, sizes)] or [0]
    else:
        lengths = list(as_shape(sizes, "split"))
    if sum(lengths) != total or min(lengths, default=0) < 0:
        message = f"split into {lengths} elements, but dim {at} of {x.name or 'x'} has {total}"
        raise ShapeError(message)
    parts: list[Value] = []
    begin = 0
    for i, length in enumerate(lengths):
        parts.append(slice(x, at, begin, length, name=f"{name}.{i}" if name else None))
        begin += length
    return tuple(parts)


@at_user_line()
def concat(values: Sequence[Value], dim: int = 0, *, name: str | None = None) -> Value:
    """The values one after the other along `dim`, as torch.cat.

    Placements: equal, with `dim` whole, or R beside S; P only of P.
    """
    given = list(values)
    if not given:
        message = "concat takes at least one value"
        raise ShapeError(message)
    program_of("concat", *given)
    if name is not None:
        as_name(name, "concat")
    at = as_dim(dim, len(given[0].shape), "concat")
    names = [v.name or f"value {i}" for i, v in enumerate(given)]
    args: CommonArgs = {"op_name": name, "names": names}
    return emit(given[0], task.ConcatOp([v.ssa for v in given], at, **args))


@at_user_line()
def reshape(x: Value, shape: Sequence[int], *, name: str | None = None) -> Value:
    """The same elements in row-major order; one size may be -1.

    Placements: a dimension that is cut must be the outermost of those it is merged with, and stays
    cut alike: [T, heads x D] that is S(1) becomes [T, heads, D] that is S(1) if the ranks divide
    heads.
    """
    args = admit("reshape", name, x=x)
    sizes = list(as_shape(shape, "reshape"))
    if sizes.count(-1) == 1:
        known = math.prod(size for size in sizes if size != -1)
        total = math.prod(x.shape)
        if known == 0 or total % known:
            message = f"reshape of {total} elements to {tuple(sizes)}: no size fits for -1"
            raise ShapeError(message)
        sizes[sizes.index(-1)] = total // known
    return emit(x, task.ReshapeOp(x.ssa, sizes, **args))


@at_user_line()
def transpose(x: Value, dim0: int, dim1: int, *, name: str | None = None) -> Value:
    """Two dimensions change places, as torch.transpose. Placements: any."""
    args = admit("transpose", name, x=x)
    dims = [as_dim(dim, len(x.shape), "transpose") for dim in (dim0, dim1)]
    return emit(x, task.TransposeOp(x.ssa, *dims, **args))


@at_user_line()
def update(
    state: Value, value: Value, *, at: int | Value, dim: int = 0, name: str | None = None
) -> Value:
    """The state with `value` written over its `dim` from `at` on; the next run finds it so.

    `at` may be a scalar of the program's, declared with a max. What the state held before cannot be
    read any more: go on with what this returns. Placements: the value lies as the state or is R; it
    is R where `dim` is cut, so that each rank writes the elements that it has.
    """
    given = {"at": at} if isinstance(at, Value) else {}
    args = admit("update", name, state=state, value=value, **given)
    along = as_dim(dim, len(state.shape), "update")
    offset, position = as_place(at, "update's at")
    return emit(state, task.UpdateOp(state.ssa, value.ssa, along, offset, position, **args))
