"""Index arithmetic of a device program: on the rank, on a grid's coordinates, and on tables.

An index stands for one integer a task. Every rank and coordinate is known in advance, so an index
is also evaluated at once: mistakes show at the user's line, with the rank and coordinates at which
they happen.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import SupportsIndex, cast

import numpy as np
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, TensorType, i64
from xdsl.ir import Operation, SSAValue

from ditron.errors import ProgramError
from ditron.ir import device
from ditron.ir.index import Ssa, number
from ditron.ir.locations import caller_loc
from ditron.plan.callsite import user_line
from ditron.plan.expr import Expr, Values, as_expr, binary, evaluate
from ditron.plan.tables import Bools


class Scope:
    """Where indices live: a whole program, or one grid of it.

    `shape` is (ranks, bounds of the grid...); `values` holds what each SSA value is at each point,
    with as many dimensions as the shape, of size 1 where it does not change.
    """

    def __init__(self, name: str, dims: Sequence[str], shape: Sequence[int]) -> None:
        self.name, self.dims, self.shape = name, tuple(dims), tuple(shape)
        self.values: dict[SSAValue, Values] = {}
        self.ops: list[Operation] = []
        self.parent: Scope | None = None

    @property
    def root(self) -> Scope:
        """The program's scope."""
        return self.parent or self

    def nested(self, name: str, bounds: dict[str, int]) -> Scope:
        """A grid's scope in a program's."""
        inner = Scope(name, tuple(bounds), (*self.shape, *bounds.values()))
        inner.parent = self
        return inner

    def emit(self, op: Operation) -> None:
        """Append an op, with the user's line as its location."""
        op.location = caller_loc()
        self.ops.append(op)

    def define(self, op: device.IndexOp | device.TableOp, values: Values) -> Index:
        """An op's result as an index, with its value at each point."""
        self.emit(op)
        self.values[op.result] = values
        return Index(self, Ssa(op.result))

    def named(self, name: str, value: IndexLike) -> Index:
        """An index under a name, computed once."""
        index = self.index(value, f"index {name}")
        op = device.IndexOp(index.expr)
        op.result.name_hint = name
        return self.define(op, index.values())

    def evaluate(self, expr: Expr) -> Values:
        """The value at each point; broadcasts to the shape."""
        args, exprs = number([expr])
        value = evaluate(exprs.data[0], [self._value(a) for a in args])
        return np.asarray(value).reshape(value.shape or (1,) * len(self.shape))

    def _value(self, ssa: SSAValue) -> Values:
        if ssa in self.values or self.parent is None:
            return self.values[ssa]
        outer = self.parent.values[ssa]
        return outer.reshape(*outer.shape, *[1] * (len(self.shape) - outer.ndim))

    def index(self, value: IndexLike, what: str) -> Index:
        """An index or an integer as an index that may be used here.

        Raises:
            ProgramError: it is neither, or belongs elsewhere.
        """
        if isinstance(value, Index):
            if value.scope is not self and value.scope is not self.parent:
                why = "coordinates hold in their own grid only"
                if value.scope.root is not self.root:
                    why = "a program uses its own indices only"
                message = f"{what} of {self.name} is an index of {value.scope.name}; {why}"
                raise ProgramError(message, user_line())
            return Index(self, value.expr)
        return Index(self, as_expr(as_int(value, what)))

    def first(self, bad: Bools) -> tuple[int, ...]:
        """The first point of those marked, which broadcast to the shape."""
        points = np.argwhere(np.broadcast_to(bad, self.shape))
        return tuple(int(x) for x in points[0])

    def describe(self, point: Sequence[int]) -> str:
        """`rank 2, s = 1`."""
        names = zip(self.dims, point[1:], strict=True)
        return ", ".join([f"rank {point[0]}", *(f"{name} = {value}" for name, value in names)])


def as_int(value: object, what: str) -> int:
    """An integer from anything that is one.

    Raises:
        ProgramError: it is none.
    """
    try:
        return operator.index(cast("SupportsIndex", value))
    except TypeError:
        message = f"{what} is an index or an integer, got {value!r}"
        raise ProgramError(message, user_line()) from None


class Index:
    """One integer a task, made from the rank, coordinates and tables by operators.

    `+ - * // % ^`, comparisons (1 or 0), `&`, `|` and `~` on those. Division and `%` round down.
    """

    __slots__ = ("expr", "scope")
    __array_ufunc__ = None  # numpy leaves operators to this class

    def __init__(self, scope: Scope, expr: Expr) -> None:
        self.scope, self.expr = scope, expr

    def _with(self, op: str, other: IndexLike, *, swap: bool = False) -> Index:
        a, b = combined(f"{self.scope.name}'s arithmetic", self, other)
        return Index(a.scope, binary(op, b.expr, a.expr) if swap else binary(op, a.expr, b.expr))

    def __add__(self, other: IndexLike) -> Index:
        return self._with("+", other)

    def __radd__(self, other: IndexLike) -> Index:
        return self._with("+", other, swap=True)

    def __sub__(self, other: IndexLike) -> Index:
        return self._with("-", other)

    def __rsub__(self, other: IndexLike) -> Index:
        return self._with("-", other, swap=True)

    def __mul__(self, other: IndexLike) -> Index:
        return self._with("*", other)

    def __rmul__(self, other: IndexLike) -> Index:
        return self._with("*", other, swap=True)

    def __neg__(self) -> Index:
        return self._with("-", 0, swap=True)

    def __floordiv__(self, other: IndexLike) -> Index:
        return self._divided("floordiv", other)

    def __mod__(self, other: IndexLike) -> Index:
        return self._divided("mod", other)

    def __rfloordiv__(self, other: IndexLike) -> Index:
        return Index(self.scope, as_expr(as_int(other, "a dividend"))) // self

    def __rmod__(self, other: IndexLike) -> Index:
        return Index(self.scope, as_expr(as_int(other, "a dividend"))) % self

    def __xor__(self, other: IndexLike) -> Index:
        return self._with("xor", other)

    def __rxor__(self, other: IndexLike) -> Index:
        return self._with("xor", other)

    def __and__(self, other: IndexLike) -> Index:
        return self._with("and", other)

    def __rand__(self, other: IndexLike) -> Index:
        return self._with("and", other)

    def __or__(self, other: IndexLike) -> Index:
        return self._with("or", other)

    def __ror__(self, other: IndexLike) -> Index:
        return self._with("or", other)

    def __invert__(self) -> Index:
        return self._with("eq", 0)

    def __lt__(self, other: IndexLike) -> Index:
        return self._with("lt", other)

    def __le__(self, other: IndexLike) -> Index:
        return self._with("le", other)

    def __gt__(self, other: IndexLike) -> Index:
        return self._with("lt", other, swap=True)

    def __ge__(self, other: IndexLike) -> Index:
        return self._with("le", other, swap=True)

    def __eq__(self, other: IndexLike) -> Index:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._with("eq", other)

    def __ne__(self, other: IndexLike) -> Index:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._with("ne", other)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def _divided(self, op: str, other: IndexLike) -> Index:
        a, b = combined(f"{self.scope.name}'s arithmetic", self, other)
        divisor = a.scope.evaluate(b.expr)
        if (divisor == 0).any():
            at = a.scope.describe(a.scope.first(divisor == 0))
            message = f"the divisor of {'//' if op == 'floordiv' else '%'} is 0 at {at}"
            raise ProgramError(message, user_line())
        return Index(a.scope, binary(op, a.expr, b.expr))

    def values(self) -> Values:
        """The value at each point of the scope; broadcasts to its shape."""
        return self.scope.evaluate(self.expr)

    def __bool__(self) -> bool:
        message = (
            "an index differs from task to task, so it is neither true nor false here: combine"
            " conditions with & | ~, take d.min and d.max, and leave tasks out with g.where"
        )
        raise ProgramError(message, user_line())

    def __index__(self) -> int:
        message = "an index differs from task to task: Python's own integers stand for all of them"
        raise ProgramError(message, user_line())

    def __repr__(self) -> str:
        return f"<Index of {self.scope.name}>"


IndexLike = Index | int


def combined(what: str, *given: IndexLike) -> list[Index]:
    """Indices brought into one scope, the innermost of theirs.

    Raises:
        ProgramError: they belong to different grids or programs.
    """
    scopes = [i.scope for i in given if isinstance(i, Index)]
    inner = max(scopes, key=lambda scope: scope.parent is not None)
    return [inner.index(i, what) for i in given]


class Table:
    """Integers to look up by indices, for what no closed form fits."""

    def __init__(self, scope: Scope, values: object) -> None:
        self._scope = scope
        try:
            self._values = np.asarray(values, np.int64)
        except (TypeError, ValueError):
            message = f"a table holds integers in rows of one length, got {values!r}"
            raise ProgramError(message, user_line()) from None
        if not self._values.size or not self._values.ndim:
            message = "a table holds at least one integer"
            raise ProgramError(message, user_line())

    def __getitem__(self, at: IndexLike | tuple[IndexLike, ...]) -> Index:
        given = at if isinstance(at, tuple) else (at,)
        shape = self._values.shape
        if len(given) != len(shape):
            message = f"a table of shape {shape} takes {len(shape)} indices, got {len(given)}"
            raise ProgramError(message, user_line())
        found = combined("a lookup", Index(self._scope, as_expr(0)), *given)[1:]
        scope = found[0].scope
        values = [i.values() for i in found]
        for dim, (value, size) in enumerate(zip(values, shape, strict=True)):
            bad = (value < 0) | (value >= size)
            if bad.any():
                point = scope.first(bad)
                came = int(np.broadcast_to(value, scope.shape)[point])
                message = (
                    f"index {dim} of a table of shape {shape} is {came} at {scope.describe(point)}"
                )
                raise ProgramError(message, user_line())
        data = DenseIntOrFPElementsAttr.from_list(
            TensorType(i64, shape), self._values.ravel().tolist()
        )
        op = device.TableOp(data, [i.expr for i in found])
        return scope.define(op, self._values[tuple(values)])
