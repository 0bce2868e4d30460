"""lower-task-to-device: a task program becomes buffers and grids over tiles.

    %y = task.matmul %x, %w choice #task.choice<tile 128x256> : ...
    ->
    device.grid @matmul engine sm in (%m = 4, %n = 2) {
      %a = device.view %x[%m * 128, 0] [128, 512] : ...
      %b = device.view %w[0, %n * 256] [512, 256] : ...
      %c = device.view %y[%m * 128, %n * 256] [128, 256] : ...
      device.call @matmul(%a, %b, %c) : ...
    }

Needs: task IR with choices. Ensures: a `device.program` on the mesh's ranks and a `core.func` a
grid stand beside the task program, which stays for the proof of delivery. Collectives stand as
`device.collective` with their choice. A view (`buffer_places`) is a place in its operand's buffer;
every other value has one of its own. Every box is clipped at run time, so that uneven and empty
shards need no code of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from xdsl.context import Context
from xdsl.dialects.builtin import LocationAttr, ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from ditron.analysis.shards import moved_dim, sharded_dims
from ditron.analysis.symbols import find_device_program, kernels, task_program
from ditron.errors import PlanError
from ditron.ir import device, task
from ditron.ir.attrs import dtype_attr
from ditron.ir.index import Ssa
from ditron.ir.locations import op_location
from ditron.passes.buffer_places import Blocks
from ditron.passes.grids import GridBuilder, Names
from ditron.passes.tile_jobs import Job, Source, jobs
from ditron.passes.value_buffers import ValueBuffers
from ditron.plan.expr import Expr, as_expr
from ditron.plan.layout import Layout, axis_stride
from ditron.plan.placement import Mesh
from ditron.plan.places import Tile
from ditron.plan.tables import Memory, Role
from ditron.plan.tiling import DimTiling, tile_blocks, tile_dim

DEFAULT_TILE = (128, 128)


@dataclass(frozen=True)
class LowerTaskToDevicePass(ModulePass):
    """See the module's docstring."""

    name = "lower-task-to-device"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        program = task_program(op)
        if find_device_program(op) is not None:
            raise PlanError("the task program is lowered already", op_location(program))
        _Lowering(program, op).run()


class _Lowering:
    def __init__(self, program: task.ProgramOp, module: ModuleOp) -> None:
        self.program, self.module = program, module
        self.mesh = program.mesh
        self.target = device.ProgramOp(program.program_name, self.mesh.ranks)
        self.target.location = program.location
        self.block = self.target.body.block
        self.dims = sharded_dims(program)
        self.names = Names({program.program_name, *kernels(module)})
        rank = device.RankOp()
        rank.result.name_hint = "me"
        self._add(rank, program.location)
        self.me = Ssa(rank.result)
        self.jobs = {op: self._jobs(op) for op in program.body.block.ops if _has_jobs(op)}
        self.buffers = ValueBuffers(
            program, self.dims, self._tiles_read(), self.me, self.block.add_op
        )

    def run(self) -> None:
        for op in self.program.body.block.ops:
            match op:
                case task.SourceOp() | task.ScalarOp():
                    self.buffers.of(op.result)
                case task.OutputOp():
                    self._output(op)
                case task.CollectiveOp():
                    self._collective(op)
                case task.ComputeOp() if self.buffers.places.is_view(op):
                    pass
                case task.ReshapeOp():
                    self._reshape(op)
                case task.ComputeOp():
                    for job, tilings in self._jobs_left(op):
                        self._job(op, job, tilings)
                case _:
                    raise PlanError(f"{op.name} cannot be lowered", op_location(op))
        self.module.body.block.add_op(self.target)

    def _add(self, op: Operation, location: LocationAttr) -> None:
        op.location = location
        self.block.add_op(op)

    def _jobs(self, op: task.ComputeOp) -> list[tuple[Job, list[DimTiling]]]:
        """An op's jobs, and how each one's domain is cut into tiles."""
        return [(job, self._tilings(op, job)) for job in jobs(op, self.mesh, self.me)]

    def _jobs_left(self, op: task.ComputeOp) -> list[tuple[Job, list[DimTiling]]]:
        """The jobs whose result does not lie in its place already."""
        if not isinstance(op, task.ConcatOp):
            return self.jobs[op]
        pairs = zip(op.operands, self.jobs[op], strict=True)
        return [job for value, job in pairs if not self.buffers.places.lies_in(value, op)]

    def _tiles_read(self) -> dict[SSAValue, list[Blocks]]:
        """The sizes of all tiles of each value that kernels read and write, or copies."""
        found: dict[SSAValue, list[Blocks]] = {}
        for op in self.program.body.block.ops:
            if isinstance(op, task.ReshapeOp):
                for value in (op.operand, op.result):
                    found.setdefault(value, []).append(self._whole(value))
            elif isinstance(op, task.ComputeOp) and op in self.jobs and not _rearranges(op):
                for job, tilings in self.jobs[op]:
                    made = [(d, t.block) for d, t in enumerate(tilings)]
                    found.setdefault(op.result, []).extend(
                        tuple(target.sizes.get(d, block) for d, block in made)
                        for target in job.targets
                    )
                    for source in job.sources:
                        blocks = found.setdefault(source.value, [])
                        blocks.append(_blocks(source, self.mesh, tilings))
        return found

    def _whole(self, value: SSAValue) -> tuple[int, ...]:
        return tuple(max(c, 1) for c in Layout(task.spec_of(value), self.mesh).capacities())

    def _output(self, op: task.OutputOp) -> None:
        """An input that is an output too is copied; anything else is made where it belongs."""
        if isinstance(op.operand.owner, task.ComputeOp) and op.operand.owner.overwritten is None:
            return
        layout, name = self.buffers.layout(op.operand), op.tensor_name.data
        capacity = [max(c, 1) for c in layout.capacities()]
        type_ = device.BufferType.get(capacity, dtype_attr(layout.spec.dtype), Memory.LOCAL)
        extents = [layout.extent(d, self.me) for d in range(len(capacity))]
        target = device.BufferOp(name, Role.OUTPUT, extents, type_)
        self._add(target, op.location)
        grid = GridBuilder(self.names.fresh(f"copy_{name}"), "sm", {}, op.location)
        source = self.buffers.whole(grid, op.operand)
        sizes, zeros = [as_expr(c) for c in capacity], [as_expr(0)] * len(capacity)
        grid.add(device.CopyOp(source, grid.view(target.result, zeros, sizes, capacity)))
        self.block.add_op(grid.finish())

    def _job(self, op: task.ComputeOp, job: Job, tilings: list[DimTiling]) -> None:
        if _rearranges(op):
            job, tilings = self._fitting(op, job, tilings)
        grid = self._grid(op, tilings)
        coords = _coords(grid, tilings)
        spans = [(t.offset(c), t.size(c)) for t, c in zip(tilings, coords, strict=True)]
        views = [self._source(grid, source, job, tilings, spans) for source in job.sources]
        blocks, sizes = [t.block for t in tilings], [size for _, size in spans]
        for target in job.targets:
            at = [target.shift.get(d, 0) + offset for d, (offset, _) in enumerate(spans)]
            loose = {d for d, t in enumerate(tilings) if t.shard or d in target.shift}
            room = [target.sizes.get(d, block) for d, block in enumerate(blocks)]
            size = [as_expr(target.sizes.get(d, size)) for d, size in enumerate(sizes)]
            views.append(self.buffers.view(grid, op.result, Tile(at, size, room, loose)))
        types = [view.type for view in views]
        self.module.body.block.add_op(job.build(grid.name, types, grid.location))
        indices = [*job.indices, *(spans[d][0] * each for d, each in job.offsets.items())]
        grid.add(device.CallOp(grid.name, views, indices))
        self.block.add_op(grid.finish())

    def _fitting(
        self, op: task.ComputeOp, job: Job, tilings: list[DimTiling]
    ) -> tuple[Job, list[DimTiling]]:
        """A job that copies, with tiles that are boxes of both buffers: whole, rows or elements."""
        last = len(tilings) - 1
        for rows in ({}, dict.fromkeys(range(last), 1), dict.fromkeys(range(last + 1), 1)):
            job = replace(job, blocks={**job.blocks, **rows})
            tilings = self._tilings(op, job)
            tiles = {s.value: _blocks(s, self.mesh, tilings) for s in job.sources}
            tiles[op.result] = tuple(t.block for t in tilings)
            if all(self.buffers.fits(value, blocks) for value, blocks in tiles.items()):
                break
        return job, tilings

    def _source(
        self,
        grid: GridBuilder,
        source: Source,
        job: Job,
        tilings: Sequence[DimTiling],
        spans: Sequence[tuple[Expr, Expr]],
    ) -> SSAValue:
        """The box of a source that goes with a tile of the domain; whole where it is not cut."""
        layout, there = self.buffers.layout(source.value), Layout(job.domain, self.mesh)
        offsets, sizes, loose = list[Expr](), list[Expr](), set(source.shift)
        blocks = _blocks(source, self.mesh, tilings)
        for d, along in enumerate(source.cuts):
            if along is None:
                offset, size = as_expr(0), as_expr(max(layout.capacity(d), 1))
            else:
                wide, shared = source.wide.get(d, 1), source.shared.get(d, 1)
                offset, size = (part * wide // shared for part in spans[along])
                if there.axes(along) != layout.axes(d):
                    # A replica beside shards: this rank's rows of the whole.
                    offset = there.offset(along, self.me) - layout.offset(d, self.me) + offset
                    loose.add(d)
                if tilings[along].shard:
                    loose.add(d)
            offsets.append(source.shift.get(d, 0) + offset)
            sizes.append(size)
        return self.buffers.view(grid, source.value, Tile(offsets, sizes, blocks, loose))

    def _reshape(self, op: task.ReshapeOp) -> None:
        """One copy between the local parts, which are boxes of two shapes."""
        if 0 in self.buffers.layout(op.operand).capacities():
            self.buffers.of(op.result)
            return
        grid = GridBuilder(self.names.fresh(op.label()), "sm", {}, op.location)
        views = [self.buffers.whole(grid, value) for value in (op.operand, op.result)]
        grid.add(device.CopyOp(*views))
        self.block.add_op(grid.finish())

    def _collective(self, op: task.CollectiveOp) -> None:
        source, target = self.buffers.of(op.operand), self.buffers.of(op.result)
        if op.choice is None:
            message = f"{op.label()} has no choice yet: run choose-algorithms first"
            raise PlanError(message, op_location(op))
        collective = device.CollectiveOp(
            op.name.removeprefix("task."),
            source,
            target,
            axis=op.axis.data,
            choice=op.choice,
            ranks=self.mesh.size(op.axis.data),
            stride=axis_stride(self.mesh, self.mesh.index(op.axis.data)),
            **self._dims_moved(op),
        )
        self._add(collective, op.location)

    def _dims_moved(self, op: task.CollectiveOp) -> dict[str, int]:
        """The dimensions that a collective moves along, with their sizes in a group of ranks."""
        match op:
            case task.AllToAllOp():
                dim, other = op.split_index, op.dim_index
                more = {"other_dim": other, "other_size": self._group_size(op, other)}
            case task.BroadcastOp():
                dim, more = op.dim_index, {"root": op.root_index}
            case task.ShiftOp():
                dim, more = op.dim_index, {"by": op.steps}
            case _:
                dim, more = moved_dim(op), {}
        return {"dim": dim, "size": self._group_size(op, dim), **more}

    def _group_size(self, op: task.CollectiveOp, dim: int) -> int:
        """Elements of a dimension that the ranks along a collective's axis have together."""
        spec, axis = task.spec_of(op.operand), self.mesh.index(op.axis.data)
        others = [a for a in Layout(spec, self.mesh).axes(dim) if a != axis]
        size = spec.shape[dim]
        for other in others:
            if other > axis or size % self.mesh.sizes[other]:
                raise PlanError(
                    f"dim {dim} of {spec} is cut by {self.mesh.axes[other]!r} too, unevenly or"
                    f" within {op.axis.data!r}: {op.label()} over it is not supported yet",
                    op_location(op),
                )
            size //= self.mesh.sizes[other]
        return size

    def _tilings(self, op: task.ComputeOp, job: Job) -> list[DimTiling]:
        """How the local part of a job's domain is cut into tiles."""
        layout, whole = Layout(job.domain, self.mesh), job.whole_dims()
        sizes = layout.capacities()
        tile = op.choice.tile if op.choice is not None and op.choice.tile else DEFAULT_TILE
        blocks = tile_blocks(sizes, tile, whole, matrix=isinstance(op, task.MatmulOp))
        blocks = [job.blocks.get(d, block) for d, block in enumerate(blocks)]
        axes = [self.dims.cut.get((op.result, d)) for d in range(len(sizes))]
        shards = [
            0 if axis is None or axis in layout.axes(d) or d in whole else self.mesh.sizes[axis]
            for d, axis in enumerate(axes)
        ]
        return [tile_dim(c, b, s) for c, b, s in zip(sizes, blocks, shards, strict=True)]

    def _grid(self, op: task.ComputeOp, tilings: Sequence[DimTiling]) -> GridBuilder:
        bounds: dict[str, int] = {}
        for d, tiling in enumerate(tilings):
            for name, bound in zip(_dim_names(d, tiling), tiling.bounds, strict=True):
                bounds[name] = bound
        if len(bounds) > device.MAX_GRID_DIMS:
            raise PlanError(
                f"{op.label()} has too many dimensions: a grid has at most {device.MAX_GRID_DIMS}",
                op_location(op),
            )
        engine = op.choice.engine if op.choice is not None else "sm"
        return GridBuilder(self.names.fresh(op.label()), engine, bounds, op.location)


def _has_jobs(op: Operation) -> TypeGuard[task.ComputeOp]:
    """Whether an op is done tile by tile, if at all."""
    other = task.CollectiveOp | task.ReshapeOp
    return isinstance(op, task.ComputeOp) and not isinstance(op, other)


def _rearranges(op: task.ComputeOp) -> bool:
    """Whether an op copies, if it has to do anything."""
    if isinstance(op, task.SliceOp):
        return op.position is None
    return isinstance(op, task.TransposeOp | task.ConcatOp)


def _blocks(source: Source, mesh: Mesh, tilings: Sequence[DimTiling]) -> tuple[int, ...]:
    """The sizes of the tiles of a source."""
    whole = Layout(task.spec_of(source.value), mesh).capacities()
    return tuple(
        max(size, 1)
        if along is None
        else tilings[along].block * source.wide.get(d, 1) // source.shared.get(d, 1)
        for d, (along, size) in enumerate(zip(source.cuts, whole, strict=True))
    )


def _dim_names(d: int, tiling: DimTiling) -> tuple[str, ...]:
    tile, shard = (("m", "p"), ("n", "q"))[d] if d < 2 else (f"i{d}", f"p{d}")
    return (shard, tile) if tiling.shard else (tile,)


def _coords(grid: GridBuilder, tilings: Sequence[DimTiling]) -> list[list[Expr]]:
    return [[grid[name] for name in _dim_names(d, t)] for d, t in enumerate(tilings)]
