"""What a kernel is given while it is traced: stand-ins for tensors, and `k`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn, cast

from xdsl.ir import SSAValue

from ditron.builder.tiles import Arithmetic, Axis, Tile
from ditron.errors import ProgramError, ShapeError
from ditron.ir import core
from ditron.ir.attrs import dtype_attr
from ditron.ir.locations import caller_loc
from ditron.plan.calls import Cuts
from ditron.plan.callsite import user_line
from ditron.plan.dtypes import DType
from ditron.plan.spec import show_shape


@dataclass(frozen=True, eq=False)
class Argument:
    """A tensor (or, in a grid, a view of a buffer) that a kernel is given.

    Attributes:
        name: the kernel's own name for it.
        shape: the tensor's global shape; of a view the most that it holds.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType

    def __repr__(self) -> str:
        return f"{self.name} {show_shape(self.shape)} {self.dtype}"


@dataclass(frozen=True, eq=False)
class Coordinate:
    """Which tile of the result a program makes, along one dimension; stands in an index."""

    dim: int
    block: int

    def __index__(self) -> int:
        message = "a tile's coordinate is no number: it stands in the index of a load or store"
        raise ProgramError(message, user_line())


Index = Sequence[Coordinate | int]


@dataclass(frozen=True)
class Traced:
    """A kernel traced for tensors.

    Attributes:
        func: the function; its last view is the result's tile.
        sources: which tensor, by number, each other view is a tile of.
        cuts: how that tensor is cut.
    """

    func: core.FuncOp
    sources: tuple[int, ...]
    cuts: tuple[Cuts, ...]


class _Context(Arithmetic):
    """A kernel being traced: its arguments, and the function in the making."""

    def __init__(self, name: str, args: Sequence[Argument]) -> None:
        self.func = core.FuncOp.empty(name, [])
        self.func.location = caller_loc()
        super().__init__(name, self.func.body.block)
        self.args = list(args)
        self.stored_at: str | None = None

    def _argument(self, what: str, arg: object) -> Argument:
        if not isinstance(arg, Argument) or not any(arg is own for own in self.args):
            names = ", ".join(a.name for a in self.args)
            self.refuse(ProgramError, f"{what} takes one of its tensors {names}, got {arg!r}")
        return arg

    def _view(self, arg: Argument, dims: Sequence[int], at: int) -> SSAValue:
        """One more view of the kernel's, the `at`-th."""
        type_ = core.ViewType.get(dims, dtype_attr(arg.dtype.name))
        view = self.block.insert_arg(type_, at)
        view.name_hint = arg.name
        return view

    def _write(self, tile: object, view: SSAValue, axes: Sequence[Axis]) -> None:
        if not isinstance(tile, Tile):
            self.refuse(ProgramError, f"store takes a tile, got {tile!r}")
        if tile.axes != tuple(axes):
            came, wanted = (" x ".join(map(str, part)) for part in (tile.axes, axes))
            self.refuse(ShapeError, f"it stores a tile of {wanted}, got one of {came}")
        assert isinstance(view.type, core.ViewType)
        op = core.StoreOp(self.rounded(tile, view.type.element_type), view)
        op.location = caller_loc()
        self.block.add_op(op)


class CallContext(_Context):
    """`k` of a kernel that `dt.call` runs on tensors, tile by tile of its result."""

    def __init__(self, name: str, args: Sequence[Argument]) -> None:
        super().__init__(name, args)
        self._coordinates: tuple[Coordinate, ...] = ()
        self._loaded: dict[tuple[Argument, Cuts], tuple[int, Tile]] = {}
        self._out = self.args[-1]

    def tile(self, out: Argument, block: Sequence[int]) -> tuple[Coordinate, ...]:
        """Cut the result into tiles of `block` elements; the coordinates of this program's tile."""
        arg = self._argument("tile", out)
        sizes = self._sizes("tile", arg, block)
        if arg is not self._out:
            self.refuse(
                ProgramError, f"it makes tiles of its result {self._out.name}, not {arg.name}"
            )
        if self._coordinates:
            self.refuse(ProgramError, "a kernel calls k.tile once")
        self._coordinates = tuple(Coordinate(d, size) for d, size in enumerate(sizes))
        return self._coordinates

    def load(
        self, x: Argument, index: Index | None = None, block: Sequence[int] | None = None
    ) -> Tile:
        """A tile of `block` elements of a tensor: the `index`-th along each dimension.

        An index is a coordinate from `k.tile`, or 0 for a dimension that is loaded whole. Without
        index and block all of the tensor is loaded.
        """
        arg = self._argument("load", x)
        if arg is self._out:
            self.refuse(ProgramError, f"{arg.name} is its result, so there is nothing to load yet")
        if (index is None) != (block is None):
            self.refuse(ProgramError, f"load of {arg!r} takes an index and a block, or neither")
        index, block = index or (0,) * len(arg.shape), block or arg.shape
        sizes = self._sizes("load", arg, block)
        cut, axes = self._cut("load", arg, index, sizes)
        if (arg, cut) not in self._loaded:
            view = self._view(arg, [a.size for a in axes], len(self._loaded))
            tile = Tile(self, self.emit(core.LoadOp(view)), axes)
            self._loaded[arg, cut] = len(self._loaded), tile
        return self._loaded[arg, cut][1]

    def store(self, y: Argument, index: Index, tile: Tile) -> None:
        """Write this program's tile of the result, rounded to its dtype."""
        if self._argument("store", y) is not self._out:
            self.refuse(ProgramError, f"it stores to its result only, {self._out.name}")
        if not self._coordinates or list(index) != list(self._coordinates):
            self.refuse(
                ProgramError, f"it stores at its own tile: i, ... = k.tile({self._out.name}, block)"
            )
        if self.stored_at is not None:
            self.refuse(ProgramError, f"it has stored its tile already, at {self.stored_at}")
        self.stored_at = user_line()
        axes = [Axis(c.block, c.dim) for c in self._coordinates]
        view = self._view(self._out, [a.size for a in axes], len(self._loaded))
        self._write(tile, view, axes)

    def finish(self) -> Traced:
        """The function, once all of it has been traced."""
        if self.stored_at is None:
            message = f"kernel {self.kernel} never stores its result, {self._out.name}"
            raise ProgramError(message)
        self.func.verify()
        numbers = {id(arg): i for i, arg in enumerate(self.args)}
        return Traced(
            self.func,
            tuple(numbers[id(arg)] for arg, _ in self._loaded),
            tuple(cut for _, cut in self._loaded),
        )

    def _sizes(self, what: str, arg: Argument, block: object) -> list[int]:
        sizes = [max(s, 1) for s in _entries(block) if type(s) is int and s >= 0]
        if len(sizes) != len(arg.shape) or len(_entries(block)) != len(sizes):
            many = f"a block of {len(arg.shape)} sizes"
            self.refuse(ShapeError, f"{what} of {arg!r} takes {many}, got {block!r}")
        return sizes

    def _cut(
        self, what: str, arg: Argument, index: object, block: Sequence[int]
    ) -> tuple[Cuts, list[Axis]]:
        """How a tensor is cut by an index; the axes of its tile."""
        entries = _entries(index)
        if len(entries) != len(arg.shape):
            self.refuse(
                ShapeError, f"{what} of {arg!r} takes {len(arg.shape)} indices, got {index!r}"
            )
        axes = [self._axis(what, arg, d, entries[d], block[d]) for d in range(len(entries))]
        return tuple(axis.cut for axis in axes), axes

    def _axis(self, what: str, arg: Argument, dim: int, entry: object, block: int) -> Axis:
        called, size = f"{what} of {arg!r}, dim {dim}", arg.shape[dim]
        if isinstance(entry, Coordinate) and any(entry is c for c in self._coordinates):
            wanted = self._out.shape[entry.dim]
            if block != entry.block or size != wanted:
                self.refuse(
                    ShapeError,
                    f"{called}: cut into {size} / {block}, but the result's dim {entry.dim} is"
                    f" {wanted} / {entry.block}; they must be cut alike",
                )
            return Axis(block, entry.dim)
        if entry != 0:
            self.refuse(ProgramError, f"{called}: an index is 0 or from k.tile, got {entry!r}")
        if block < size:
            self.refuse(
                ShapeError,
                f"{called}: a block of {block} is not all {size}; what no coordinate cuts is loaded"
                f" whole",
            )
        return Axis(max(size, 1))


def _entries(given: object) -> list[object]:
    """The entries of a tuple or list, or of the one that something else is."""
    if isinstance(given, tuple | list):
        return list(cast("Sequence[object]", given))
    return [given]


class ViewContext(_Context):
    """`k` of a kernel that a grid calls on views: each is loaded and stored whole."""

    def __init__(self, name: str, args: Sequence[Argument]) -> None:
        super().__init__(name, args)
        self._views = {id(arg): self._view(arg, arg.shape, i) for i, arg in enumerate(args)}

    def tile(self, out: Argument, block: Sequence[int]) -> NoReturn:
        """There is nothing to cut: a grid's tasks are its tiles.

        Raises:
            ProgramError: always.
        """
        self.refuse(ProgramError, "a grid gives its kernel views that are tiles: k.load(x) is all")

    def load(self, x: Argument, *index: object) -> Tile:
        """All of a view."""
        arg = self._argument("load", x)
        if index:
            self.refuse(
                ProgramError, f"load of {arg!r}: a grid's views are loaded whole: k.load(x)"
            )
        axes = [Axis(size) for size in arg.shape]
        return Tile(self, self.emit(core.LoadOp(self._views[id(arg)])), axes)

    def store(self, y: Argument, tile: Tile, *rest: object) -> None:
        """Write all of a view, rounded to its dtype."""
        arg = self._argument("store", y)
        if rest:
            self.refuse(ProgramError, f"a grid's views are stored whole: k.store({arg.name}, tile)")
        self._write(tile, self._views[id(arg)], [Axis(size) for size in arg.shape])
        self.stored_at = user_line()

    def finish(self) -> core.FuncOp:
        """The function, once all of it has been traced."""
        if self.stored_at is None:
            message = f"kernel {self.kernel} stores nothing"
            raise ProgramError(message)
        self.func.verify()
        return self.func
