"""The grids that decomposed collectives are made of: chunk transfers and sums of tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count

from xdsl.dialects.builtin import IntegerAttr, ModuleOp
from xdsl.ir import SSAValue

from ditron.ir import device
from ditron.ir.attrs import dtype_attr
from ditron.ir.index import Ssa
from ditron.ir.tile_kernels import build_kernel, sum_in_order
from ditron.passes.grids import GridBuilder, Names
from ditron.plan.expr import Expr, as_expr, minimum
from ditron.plan.placement import shard_size
from ditron.plan.tables import Memory, Role
from ditron.plan.tiling import tile_dim


@dataclass(frozen=True)
class Place:
    """Where a box starts along the collective's dimension, in which buffer, at which rank.

    `other` is its start along the second dimension of an all-to-all.
    """

    buffer: SSAValue
    start: Expr
    at: Expr | None = None
    other: Expr | None = None


class Collective:
    """One collective being decomposed.

    Its ranks are numbered 0..n-1 along the mesh axis; `me` is this rank's number, `rank(j)` the
    rank of the program with number j. Along `dim` the tensor has `size` elements in all, `shard` a
    rank (the last ones fewer, or none); a transfer moves at most `step` of them. An all-to-all
    gathers along `other_dim`, of which each rank has `other_shard`. New ops are
    inserted where the collective stands. Nodes hold `node_ranks` of them, the last maybe fewer.
    """

    def __init__(
        self,
        op: device.CollectiveOp,
        program: device.ProgramOp,
        module: ModuleOp,
        names: Names,
        chunk: int,
        node_ranks: int,
    ) -> None:
        self.op, self.program, self.module, self.names = op, program, module, names
        self.n, self.stride = op.group
        self.node_ranks = min(max(node_ranks // self.stride, 1), self.n) if node_ranks else self.n
        self.me = self._index_on_axis()
        self.source, self.target = op.source, op.target
        self.dim = op.dim.value.data
        self.whole = op.size.value.data
        self.size = max(self.whole, 1)
        self.shard = max(shard_size(self.whole, self.n), 1)
        self.step = chunk or op.choice.chunk or self.shard
        self.other_dim = _number(op.other_dim)
        self.other_shard = max(shard_size(_number(op.other_size), self.n), 1)
        self.root, self.by = _number(op.root), _number(op.by)

    def _index_on_axis(self) -> Expr:
        ops = self.program.body.block.ops
        rank = next(o for o in ops if isinstance(o, device.RankOp))
        if self.n == self.program.n:
            return Ssa(rank.result)
        name = self.op.axis.data
        known = (o for o in ops if isinstance(o, device.IndexOp) and o.result.name_hint == name)
        found = next(known, None)
        if found is None:
            found = device.IndexOp((Ssa(rank.result) // self.stride) % self.n)
            found.result.name_hint = name
            found.location = self.op.location
            self.program.body.block.insert_op_after(found, rank)
        return Ssa(found.result)

    def rank(self, number: Expr) -> Expr:
        """The program's rank with a number on the axis, in this rank's group."""
        if self.n == self.program.n:
            return number
        rank = next(o for o in self.program.body.block.ops if isinstance(o, device.RankOp))
        return Ssa(rank.result) + (number - self.me) * self.stride

    @property
    def floating(self) -> bool:
        """Whether the elements are floats, which are added in float32."""
        type_ = self.source.type
        assert isinstance(type_, device.BufferType)
        return type_.dtype in ("f32", "bf16", "f16")

    @property
    def name(self) -> str:
        """The result's name, which its grids bear."""
        buffer = self.target.owner
        assert isinstance(buffer, device.BufferOp)
        return buffer.buffer_name.data

    def grid(self, suffix: str, engine: str, bounds: dict[str, int]) -> GridBuilder:
        """Start a grid called after the collective's result."""
        name = self.names.fresh(f"{self.name}_{suffix}")
        return GridBuilder(name, engine, bounds, self.op.location)

    def insert(self, grid: GridBuilder) -> None:
        """Finish a grid and put it where the collective stands."""
        self._insert(grid.finish())

    def _insert(self, op: device.GridOp | device.BufferOp) -> None:
        op.location = self.op.location
        block = self.op.parent_block()
        assert block is not None
        block.insert_op_before(op, self.op)

    def scratch(self, suffix: str, lengths: int, dtype: str = "") -> SSAValue:
        """Symmetric room for `lengths` elements along the dimension."""
        type_ = self.source.type
        assert isinstance(type_, device.BufferType)
        dims = _capacity(self.source)
        dims[self.dim] = lengths
        element = dtype_attr(dtype) if dtype else type_.element_type
        buffer = device.BufferOp(
            self._fresh(f"{self.name}.{suffix}"),
            Role.SCRATCH,
            dims,
            device.BufferType.get(dims, element, Memory.SYMMETRIC),
        )
        self._insert(buffer)
        return buffer.result

    def _fresh(self, wanted: str) -> str:
        """A name that no buffer has: a user may have taken any."""
        ops = self.program.body.block.ops
        taken = {op.buffer_name.data for op in ops if isinstance(op, device.BufferOp)}
        numbered = (f"{wanted}.{number}" for number in count(1))
        return next(name for name in chain([wanted], numbered) if name not in taken)

    def box(self, grid: GridBuilder, place: Place, size: Expr, capacity: int) -> SSAValue:
        """`size` elements along the collective's dimension, all of the others."""
        dims = _capacity(place.buffer)
        offsets: list[Expr] = [as_expr(0)] * len(dims)
        sizes: list[Expr] = [as_expr(d) for d in dims]
        offsets[self.dim], sizes[self.dim], dims[self.dim] = place.start, size, capacity
        if place.other is not None:
            offsets[self.other_dim], dims[self.other_dim] = place.other, self.other_shard
            sizes[self.other_dim] = as_expr(self.other_shard)
        return grid.view(place.buffer, offsets, sizes, dims, place.at)

    def chunks(self, length: int) -> tuple[int, Callable[[Expr], tuple[Expr, Expr]], int]:
        """How `length` elements are cut: number of chunks, (offset, size) of one, most of one."""
        step = min(self.step, length)

        def chunk(c: Expr) -> tuple[Expr, Expr]:
            even = length % step == 0
            return c * step, as_expr(step) if even else minimum(step, length - c * step)

        return -(-length // step), chunk, step

    def transfer(
        self,
        suffix: str,
        bounds: dict[str, int],
        ends: Callable[[GridBuilder], tuple[Place, Place]],
        length: int = 0,
        where: Callable[[GridBuilder], Expr] | None = None,
    ) -> None:
        """A grid that moves `length` elements (a shard by default) a point, chunk by chunk.

        `ends` tells where they come from and go to; which of put, get and copy that is follows.
        `where` tells at which points anything moves.
        """
        length = length or self.shard
        count, chunk, most = self.chunks(length)
        grid = self.grid(suffix, "copy", {**bounds, "c": count})
        source, target = ends(grid)
        offset, size = chunk(grid["c"])
        views = [
            self.box(grid, replace(p, start=p.start + offset), size, most) for p in (source, target)
        ]
        if where is not None:
            grid.only_where(where(grid))
        kind = device.PutOp if target.at is not None else device.GetOp
        if source.at is None and target.at is None:
            kind = device.CopyOp
        grid.add(kind(*views))
        self.insert(grid)

    def copy_own_shard(self) -> None:
        """This rank's shard goes to its place in the gathered buffer."""
        own = Place(self.source, as_expr(0)), Place(self.target, self.me * self.shard)
        self.transfer("own", {}, lambda _: own)

    def to_peers(
        self, suffix: str, ends: Callable[[Expr, Expr], tuple[Place, Place]], length: int = 0
    ) -> None:
        """A transfer with each other rank, the next one first; `ends` get its number and rank."""
        if self.n == 1:
            return

        def both(grid: GridBuilder) -> tuple[Place, Place]:
            number = grid.index("peer", (self.me + grid["p"] + 1) % self.n)
            return ends(number, self.rank(number))

        self.transfer(suffix, {"p": self.n - 1}, both, length)

    def sum_tiles(
        self,
        suffix: str,
        length: int,
        parts: Callable[[GridBuilder], Sequence[Place]],
        result: Callable[[GridBuilder], Place],
        bounds: dict[str, int] | None = None,
    ) -> None:
        """A grid that adds tiles of `length` elements along the dimension, parts in order."""
        dims = _capacity(self.target)
        dims[self.dim] = length
        tile = self.op.choice.tile or (64, 4096)
        blocks = (1,) * (len(dims) - len(tile)) + tuple(tile[-len(dims) :])
        tilings = [tile_dim(d, b) for d, b in zip(dims, blocks, strict=True)]
        plane = ("m", "n")
        names = plane if len(dims) == len(plane) else tuple(f"i{d}" for d in range(len(dims)))
        own = {name: t.bounds[0] for name, t in zip(names, tilings, strict=True)}
        grid = self.grid(suffix, self.op.choice.engine, {**(bounds or {}), **own})
        offsets = [t.offset([grid[n]]) for n, t in zip(names, tilings, strict=True)]
        sizes = [t.size([grid[n]]) for n, t in zip(names, tilings, strict=True)]
        offset, block = offsets[self.dim], tilings[self.dim].block
        if length % block:
            sizes[self.dim] = minimum(block, length - offset)

        def view(place: Place) -> SSAValue:
            at = [*offsets]
            at[self.dim] = place.start + offset
            return grid.view(place.buffer, at, sizes, [t.block for t in tilings], place.at)

        views = [view(place) for place in (*parts(grid), result(grid))]
        types = [view.type for view in views]
        kernel = build_kernel(grid.name, types, sum_in_order, self.op.location)
        self.module.body.block.add_op(kernel)
        grid.add(device.CallOp(grid.name, views))
        self.insert(grid)

    def reduce_shard(self, contribution: Callable[[Expr], Place], at: Expr | int = 0) -> None:
        """Add up this rank's shard in the order me + 1, ..., me; it starts `at` in the result."""
        others = [contribution((self.me + j) % self.n) for j in range(1, self.n)]
        parts = [*others, Place(self.source, self.me * self.shard)]
        result = Place(self.target, as_expr(at))
        self.sum_tiles("reduce", self.shard, lambda _: parts, lambda _: result)

    def reduce_whole(self, contribution: Callable[[Expr], Place]) -> None:
        """Add up everything on every rank, contributions in the order 0, ..., n - 1."""
        parts = [contribution(as_expr(j)) for j in range(self.n)]
        result = Place(self.target, as_expr(0))
        self.sum_tiles("reduce", self.size, lambda _: parts, lambda _: result)


def _number(attr: IntegerAttr | None) -> int:
    return 0 if attr is None else attr.value.data


def _capacity(buffer: SSAValue) -> list[int]:
    type_ = buffer.type
    assert isinstance(type_, device.BufferType)
    return list(type_.dims)


# Writes the grids of one algorithm.
Rule = Callable[[Collective], None]
