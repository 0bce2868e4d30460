"""Tensors that are parts of one buffer: where their elements lie, and which box a tile of one is.

A tensor's place is a start and strides in the row-major memory of a buffer, as torch's views have.
The buffer's own dimensions are runs of one tensor's, as fine as all that lie in it allow. A tile
then has to be a box of the buffer, whose dimensions it may split (columns as heads and widths) or
take in another order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from ditron.plan.expr import Expr, as_expr, minimum
from ditron.plan.reshape import matching_dims


@dataclass(frozen=True)
class Place:
    """Element [i, j, ...] of a tensor lies at start + i * strides[0] + j * strides[1] + ...

    `roots`: the dimension of the buffer's own tensor that each one is, or -1. Strides do not tell
    it of dimensions of one element, of which a rank may have none.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    roots: tuple[int, ...]
    start: int = 0

    @staticmethod
    def row_major(sizes: Sequence[int]) -> Place:
        """That of a whole buffer."""
        strides = [prod(sizes[d + 1 :]) for d in range(len(sizes))]
        return Place(tuple(sizes), tuple(strides), tuple(range(len(sizes))))

    def part(self, dim: int, at: int, size: int) -> Place:
        """`size` elements of a dimension, from `at` on."""
        sizes = (*self.sizes[:dim], size, *self.sizes[dim + 1 :])
        return replace(self, sizes=sizes, start=self.start + at * self.strides[dim])

    def swapped(self, a: int, b: int) -> Place:
        """Two dimensions in each other's place."""
        order = list(range(len(self.sizes)))
        order[a], order[b] = b, a
        columns = (self.sizes, self.strides, self.roots)
        sizes, strides, roots = (tuple(column[d] for d in order) for column in columns)
        return replace(self, sizes=sizes, strides=strides, roots=roots)

    def reshaped(self, before: Sequence[int], after: Sequence[int]) -> Place | None:
        """The same elements in row-major order in another shape, if strides can say it.

        `before` is this one's shape; its sizes may have room for more, in dimensions that stay.
        """
        sizes, strides, roots = list(after), [0] * len(after), [-1] * len(after)
        for ours, theirs in matching_dims(before, after):
            old = [d for d in ours if self.sizes[d] != 1]
            new = [d for d in theirs if after[d] != 1]
            if len(old) == 1 and before[old[0]] == 1:
                new = new or theirs[:1]  # one element, with room for more
            if len(old) == len(new) == 1:
                sizes[new[0]], strides[new[0]] = self.sizes[old[0]], self.strides[old[0]]
                roots[new[0]] = self.roots[old[0]]
                continue
            if any(self.sizes[d] != before[d] for d in old):
                return None
            if any(self.strides[a] != self.strides[b] * self.sizes[b] for a, b in pairwise(old)):
                return None
            step = self.strides[old[-1]] if old else 0
            for d in reversed(new):
                strides[d] = step
                step *= after[d]
        return Place(tuple(sizes), tuple(strides), tuple(roots), self.start)

    def same(self, other: Place) -> bool:
        """Whether the elements of another place are the same ones."""
        strides = all(self.strides[d] == other.strides[d] for d in self.solid())
        return self.sizes == other.sizes and self.start == other.start and strides

    def solid(self) -> list[int]:
        """Dimensions of more than one element."""
        return [d for d, size in enumerate(self.sizes) if size != 1]


@dataclass(frozen=True)
class Tile:
    """A tile of a tensor: where it begins, its sizes, and the most that those are.

    `loose`: dimensions along which it does not begin at a multiple of that.
    """

    offsets: Sequence[Expr]
    sizes: Sequence[Expr]
    blocks: Sequence[int]
    loose: Collection[int] = ()


@dataclass(frozen=True)
class Box:
    """A box of a buffer, and which of its dimensions each of the tile's is part of, if not so."""

    offsets: list[Expr]
    sizes: list[Expr]
    axes: tuple[int, ...] | None


@dataclass(frozen=True)
class BufferShape:
    """The dimensions of a buffer: `runs` of those of the tensor that it is made for."""

    whole: Place
    runs: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(sizes: Sequence[int]) -> BufferShape:
        """The tensor's own dimensions."""
        return BufferShape(Place.row_major(sizes), tuple((d,) for d in range(len(sizes))))

    @property
    def sizes(self) -> list[int]:
        """Elements along each dimension."""
        return [prod(self.whole.sizes[d] for d in run) for run in self.runs]

    @property
    def strides(self) -> list[int]:
        """How far apart neighbours along each dimension lie."""
        return [self.whole.strides[run[-1]] for run in self.runs]

    def merged(self, place: Place, ragged: Collection[int]) -> BufferShape | None:
        """Dimensions merged so that each of a tensor's lies within one, if they can be.

        A `ragged` dimension, whose size is not the same on all ranks, stays the outermost one.
        """
        runs = list(self.runs)
        for d in place.solid():
            low, high = place.strides[d], place.strides[d] * place.sizes[d]
            met = [i for i, run in enumerate(runs) if self._meets(run, low, high)]
            if len(met) > 1:
                new = tuple(dim for run in runs[met[0] : met[-1] + 1] for dim in run)
                solid = [dim for dim in new if self.whole.sizes[dim] != 1]
                if any(dim in ragged for dim in new if dim != solid[0]):
                    return None
                runs[met[0] : met[-1] + 1] = [new]
        return replace(self, runs=tuple(runs))

    def _meets(self, run: Sequence[int], low: int, high: int) -> bool:
        size, stride = prod(self.whole.sizes[d] for d in run), self.whole.strides[run[-1]]
        return size > 1 and stride < high and low < stride * size

    def axis(self, place: Place, dim: int) -> int | None:
        """The dimension that one of a tensor lies in; None if there is none."""
        step, size = place.strides[dim], place.sizes[dim]
        for axis, (count, stride) in enumerate(zip(self.sizes, self.strides, strict=True)):
            if count > 1 and stride <= step and step * size <= stride * count:
                return axis if step % stride == 0 else None
        return None

    def fits(self, place: Place, blocks: Sequence[int]) -> bool:
        """Whether tiles of such sizes, wherever they begin, are boxes."""
        parts = self._parts(place)
        return parts is not None and all(
            _is_range(place, blocks, dims, self.strides[axis]) for axis, dims in parts.items()
        )

    def box(self, place: Place, tile: Tile) -> Box:
        """The box that a tile is, which has to fit."""
        if place == self.whole and all(len(run) == 1 for run in self.runs):
            # Also along a dimension of one element, a tile may lie beyond what a rank has.
            return Box(list(tile.offsets), list(tile.sizes), None)
        parts = self._parts(place)
        assert parts is not None
        offsets, sizes = list[Expr](), list[Expr]()
        rest = place.start
        for axis, stride in enumerate(self.strides):
            first = rest // stride if self.sizes[axis] > 1 else 0
            rest -= first * stride
            offset, size = as_expr(first), as_expr(1)
            dims = parts.get(axis, [])
            for d in dims:
                offset = offset + tile.offsets[d] * (place.strides[d] // stride)
            grown = next((d for d in dims if tile.blocks[d] > 1), None)
            if grown is not None:
                size = tile.sizes[grown]
                to_end = first + place.sizes[grown] * place.strides[grown] // stride
                past = grown in tile.loose or place.sizes[grown] % tile.blocks[grown] != 0
                if past and (grown != dims[0] or to_end != self.sizes[axis]):
                    size = minimum(size, place.sizes[grown] - tile.offsets[grown])
                size = size * (place.strides[grown] // stride)
            offsets.append(offset)
            sizes.append(size)
        axes = self._axes(place, parts)
        plain = axes == tuple(range(len(self.runs)))
        return Box(offsets, sizes, None if plain else axes)

    def _parts(self, place: Place) -> dict[int, list[int]] | None:
        """The tensor's dimensions in each of the buffer's; None where one lies in none."""
        parts: dict[int, list[int]] = {}
        for d in place.solid():
            axis = self._axis(place, d)
            if axis is None:
                return None
            parts.setdefault(axis, []).append(d)
        return parts

    def _axis(self, place: Place, dim: int) -> int | None:
        step, size = place.strides[dim], place.sizes[dim]
        for axis, (count, stride) in enumerate(zip(self.sizes, self.strides, strict=True)):
            if count > 1 and stride <= step and step * (size - 1) < stride * count:
                return axis if step % stride == 0 else None
        return None

    def _axes(self, place: Place, parts: dict[int, list[int]]) -> tuple[int, ...]:
        """Of each of the tensor's dimensions the buffer's; one of 1 element goes where it may."""
        known = {d: axis for axis, dims in parts.items() for d in dims}
        alone = {run[0]: axis for axis, run in enumerate(self.runs) if len(run) == 1}
        known = {d: alone[root] for d, root in enumerate(place.roots) if root in alone} | known
        axes: list[int] = []
        for d in range(len(place.sizes)):
            after = next((known[i] for i in range(d, len(place.sizes)) if i in known), None)
            before = axes[-1] if axes else -1
            end = len(self.runs) if after is None else after
            free = before + 1 < end and before + 1 not in parts
            other = before + 1 if free else max(before, 0) if after is None else after
            axes.append(known.get(d, other))
        return tuple(axes)


def _is_range(place: Place, blocks: Sequence[int], dims: Sequence[int], stride: int) -> bool:
    """Whether a tile is a range of one dimension of a buffer, of which it has some dimensions."""
    steps = [place.strides[d] for d in dims]
    if any(a <= b for a, b in pairwise(steps)):
        return False  # not in row-major order
    grown = [i for i, d in enumerate(dims) if blocks[d] > 1]
    if not grown:
        return True
    inner = range(grown[0] + 1, len(dims))
    whole = all(blocks[dims[i]] == place.sizes[dims[i]] for i in inner)
    near = all(steps[i - 1] == steps[i] * place.sizes[dims[i]] for i in inner)
    return whole and near and steps[-1] == stride
