"""The grids that decomposed collectives are made of: chunk transfers and reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from ditron.ir import device
from ditron.ir.index import Ssa
from ditron.passes.grids import GridBuilder, Names
from ditron.passes.tile_kernels import build_kernel, sum_in_order
from ditron.plan.expr import Const, Expr, as_expr, minimum
from ditron.plan.placement import shard_size
from ditron.plan.tables import Memory, Role
from ditron.plan.tiling import extent_of_shard, rest_of, tile_dim

# Where along the collective's dimension, and at which rank, the contribution of a rank lies.
Contribution = Callable[[Expr], tuple[SSAValue, Expr, Expr | None]]


class Collective:
    """One collective being decomposed.

    Along `dim` the tensor has `size` elements in all, `shard` a rank (the last ones fewer, or
    none); a transfer moves `step` of them. New ops are inserted where the collective stands.
    """

    def __init__(
        self,
        op: device.CollectiveOp,
        program: device.ProgramOp,
        module: ModuleOp,
        names: Names,
        chunk: int,
    ) -> None:
        self.op, self.program, self.module, self.names = op, program, module, names
        self.n = program.n
        self.me = Ssa(
            next(o for o in program.body.block.ops if isinstance(o, device.RankOp)).result
        )
        self.source, self.target = op.source, op.target
        self.dim = op.dim.value.data
        self.size = max(op.size.value.data, 1)
        self.shard = max(shard_size(op.size.value.data, self.n), 1)
        self.step = chunk or op.choice.chunk or self.shard

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

    def box(
        self,
        grid: GridBuilder,
        buffer: SSAValue,
        start: Expr,
        size: Expr,
        capacity: int,
        at: Expr | None = None,
    ) -> SSAValue:
        """`size` elements from `start` on along the collective's dimension, all of the others."""
        dims = _capacity(buffer)
        offsets: list[Expr] = [as_expr(0)] * len(dims)
        sizes: list[Expr] = [as_expr(d) for d in dims]
        offsets[self.dim], sizes[self.dim], dims[self.dim] = start, size, capacity
        return grid.view(buffer, offsets, sizes, dims, at)

    def slots(self, length: int) -> SSAValue:
        """Room for `length` elements along the dimension from every rank, one after another."""
        type_ = self.source.type
        assert isinstance(type_, device.BufferType)
        dims = _capacity(self.source)
        dims[self.dim] = self.n * length
        slots = device.BufferOp(
            f"{self.name}.slots",
            Role.SCRATCH,
            dims,
            device.BufferType.get(dims, type_.element_type, Memory.SYMMETRIC),
        )
        self._insert(slots)
        return slots.result

    def chunks(self, length: int) -> tuple[int, Callable[[Expr], tuple[Expr, Expr]], int]:
        """How `length` elements are cut: number of chunks, (offset, size) of one, most of one."""
        step = min(self.step, length)

        def chunk(c: Expr) -> tuple[Expr, Expr]:
            even = length % step == 0
            return c * step, as_expr(step) if even else minimum(step, length - c * step)

        return -(-length // step), chunk, step

    def copy_own_shard(self) -> None:
        """This rank's shard goes to its place in the gathered buffer."""
        count, chunk, most = self.chunks(self.shard)
        grid = self.grid("own", "copy", {"c": count})
        offset, size = chunk(grid["c"])
        source = self.box(grid, self.source, offset, size, most)
        target = self.box(grid, self.target, self.me * self.shard + offset, size, most)
        grid.add(device.CopyOp(source, target))
        self.insert(grid)

    def put_chunks(
        self,
        suffix: str,
        source: tuple[SSAValue, Callable[[Expr], Expr]],
        target: SSAValue,
    ) -> None:
        """Put a shard to each peer, the next rank first.

        It comes from `source` at the start given for a peer, and lands where this rank's shard has
        its place in the peer's `target`.
        """
        if self.n == 1:
            return
        count, chunk, most = self.chunks(self.shard)
        grid = self.grid(suffix, "copy", {"p": self.n - 1, "c": count})
        peer = grid.index("peer", (self.me + grid["p"] + 1) % self.n)
        offset, size = chunk(grid["c"])
        buffer, start = source
        box = self.box(grid, buffer, start(peer) + offset, size, most)
        landing = self.box(grid, target, self.me * self.shard + offset, size, most, at=peer)
        grid.add(device.PutOp(box, landing))
        self.insert(grid)

    def put_whole(self, target: SSAValue) -> None:
        """Put everything to every rank, this one included, each into its place by source rank."""
        count, chunk, most = self.chunks(self.size)
        grid = self.grid("push", "copy", {"p": self.n, "c": count})
        peer = grid.index("peer", (self.me + grid["p"] + 1) % self.n)
        offset, size = chunk(grid["c"])
        box = self.box(grid, self.source, offset, size, most)
        landing = self.box(grid, target, self.me * self.size + offset, size, most, at=peer)
        grid.add(device.PutOp(box, landing))
        self.insert(grid)

    def reduce_shard(self, contribution: Contribution, result_at: Expr | int = 0) -> None:
        """Add up this rank's shard, contributions in the order me + 1, ..., me."""
        extent = extent_of_shard(self.op.size.value.data, self.n, self.me)
        ranks = [(self.me + j) % self.n for j in range(1, self.n)]
        own = (self.source, self.me * self.shard, None)
        self._reduce(extent, self.shard, [*map(contribution, ranks), own], as_expr(result_at))

    def reduce_whole(self, contribution: Contribution) -> None:
        """Add up everything on every rank, contributions in the order 0, ..., n - 1."""
        parts = [contribution(as_expr(r)) for r in range(self.n)]
        self._reduce(as_expr(self.op.size.value.data), self.size, parts, as_expr(0))

    def _reduce(
        self,
        extent: Expr,
        length: int,
        parts: Sequence[tuple[SSAValue, Expr, Expr | None]],
        result_at: Expr,
    ) -> None:
        dims = _capacity(self.target)
        dims[self.dim] = length
        tile = self.op.choice.tile or (64, 4096)
        blocks = (1,) * (len(dims) - len(tile)) + tuple(tile[-len(dims) :])
        tilings = [tile_dim(d, b) for d, b in zip(dims, blocks, strict=True)]
        names = ("m", "n") if len(dims) == 2 else tuple(f"i{d}" for d in range(len(dims)))
        bounds = {name: t.bounds[0] for name, t in zip(names, tilings, strict=True)}
        grid = self.grid("reduce", "sm", bounds)
        spans = [
            (t.offset([grid[n]]), t.size([grid[n]])) for n, t in zip(names, tilings, strict=True)
        ]
        offset, size = spans[self.dim]
        block = tilings[self.dim].block
        if not isinstance(extent, Const):
            size = rest_of(extent, offset, block)
        elif length % block:
            size = minimum(block, length - offset)

        def tile_of(buffer: SSAValue, start: Expr, at: Expr | None) -> SSAValue:
            offsets, sizes = [o for o, _ in spans], [s for _, s in spans]
            offsets[self.dim], sizes[self.dim] = start + offset, size
            return grid.view(buffer, offsets, sizes, [t.block for t in tilings], at)

        views = [tile_of(*part) for part in parts]
        views.append(tile_of(self.target, result_at, None))
        kernel = build_kernel(grid.name, views, sum_in_order, self.op.location)
        self.module.body.block.add_op(kernel)
        grid.add(device.CallOp(grid.name, views))
        self.insert(grid)


def _capacity(buffer: SSAValue) -> list[int]:
    type_ = buffer.type
    assert isinstance(type_, device.BufferType)
    return list(type_.dims)
