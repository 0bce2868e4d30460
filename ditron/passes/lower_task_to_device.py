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
`device.collective` with their choice. Every value has a buffer of its own; every box is clipped at
run time, so that uneven and empty shards need no code of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

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
from ditron.passes.grids import GridBuilder, Names
from ditron.passes.tile_jobs import Job, Source, jobs
from ditron.plan.expr import Expr, as_expr
from ditron.plan.layout import Layout, axis_stride
from ditron.plan.placement import shard_size
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
        self.buffers: dict[SSAValue, SSAValue] = {}
        self.dims = sharded_dims(program)
        self.names = Names({program.program_name, *kernels(module)})
        # What the host knows by name keeps its name; other buffers are numbered around it.
        tensors = [op.tensor_name.data for op in (*program.sources, *program.outputs)]
        self.buffer_names = set(tensors)
        rank = device.RankOp()
        rank.result.name_hint = "me"
        self._add(rank, program.location)
        self.me = Ssa(rank.result)

    def run(self) -> None:
        for op in self.program.body.block.ops:
            match op:
                case task.SourceOp() | task.ScalarOp():
                    self._buffer(op.result, op.tensor_name.data, task.role_of(op), op.location)
                case task.OutputOp():
                    self._output(op)
                case task.CollectiveOp():
                    self._collective(op)
                case task.ReshapeOp():
                    self._reshape(op)
                case task.ComputeOp():
                    self._tiles(op)
                case _:
                    raise PlanError(f"{op.name} cannot be lowered", op_location(op))
        self.module.body.block.add_op(self.target)

    def _add(self, op: Operation, location: LocationAttr) -> None:
        op.location = location
        self.block.add_op(op)

    def _buffer(self, value: SSAValue, name: str, role: Role, location: LocationAttr) -> SSAValue:
        """The buffer that holds a value on every rank."""
        spec = task.spec_of(value)
        layout = Layout(spec, self.mesh)
        capacity = [self._room(value, d, c) for d, c in enumerate(layout.capacities())]
        memory = Memory.SYMMETRIC if _meets_collective(value) else Memory.LOCAL
        type_ = device.BufferType.get(capacity, dtype_attr(spec.dtype), memory)
        if role is Role.SCRATCH and name in self.buffer_names:
            numbered = (f"{name}.{i}" for i in count(1))
            name = next(n for n in numbered if n not in self.buffer_names)
        self.buffer_names.add(name)
        extents = [layout.extent(d, self.me) for d in range(len(spec.shape))]
        op = device.BufferOp(name, role, extents, type_)
        self._add(op, location)
        self.buffers[value] = op.result
        return op.result

    def _room(self, value: SSAValue, d: int, size: int) -> int:
        """Capacity of a dimension: whole shards where it is cut into them, and at least 1."""
        axis = self.dims.sharded.get((value, d))
        if axis is not None and axis not in Layout(task.spec_of(value), self.mesh).axes(d):
            ranks = self.mesh.sizes[axis]
            size = shard_size(size, ranks) * ranks
        return max(size, 1)

    def _result_buffer(self, op: task.ComputeOp) -> SSAValue:
        """The buffer of an op's result: the output's own where the result is one.

        What writes over part of a state has the state's.
        """
        if op.overwritten is not None:
            self.buffers[op.result] = self.buffers[op.overwritten]
            return self.buffers[op.result]
        for use in op.result.uses:
            if isinstance(use.operation, task.OutputOp):
                name = use.operation.tensor_name.data
                return self._buffer(op.result, name, Role.OUTPUT, op.location)
        return self._buffer(op.result, op.label(), Role.SCRATCH, op.location)

    def _output(self, op: task.OutputOp) -> None:
        name = op.tensor_name.data
        source = self.buffers[op.operand]
        owner = source.owner
        assert isinstance(owner, device.BufferOp)
        if owner.role.data == Role.OUTPUT and _first_output(op.operand) is op:
            return
        # An input that is an output too, or a second name for one value: copy it.
        spec = task.spec_of(op.operand)
        target = self._buffer(op.operand, name, Role.OUTPUT, op.location)
        self.buffers[op.operand] = source
        tilings = [tile_dim(c, c) for c in Layout(spec, self.mesh).capacities()]
        grid = GridBuilder(self.names.fresh(f"copy_{name}"), "sm", {}, op.location)
        zero = [as_expr(0)] * len(tilings)
        blocks = [t.block for t in tilings]
        views = [grid.view(b, zero, blocks, blocks) for b in (source, target)]
        grid.add(device.CopyOp(*views))
        self.block.add_op(grid.finish())

    def _tiles(self, op: task.ComputeOp) -> None:
        target = self._result_buffer(op)
        for job in jobs(op, self.mesh, self.me):
            self._job(op, job, target)

    def _job(self, op: task.ComputeOp, job: Job, target: SSAValue) -> None:
        tilings = self._tilings(op, job)
        grid = self._grid(op, tilings)
        coords = _coords(grid, tilings)
        spans = [(t.offset(c), t.size(c)) for t, c in zip(tilings, coords, strict=True)]
        views = [self._source(grid, source, job, tilings, spans) for source in job.sources]
        blocks = [t.block for t in tilings]
        for shift in job.targets:
            at = [shift.get(d, 0) + offset for d, (offset, _) in enumerate(spans)]
            views.append(grid.view(target, at, [size for _, size in spans], blocks))
        types = [view.type for view in views]
        self.module.body.block.add_op(job.build(grid.name, types, grid.location))
        indices = [*job.indices, *(spans[d][0] for d in job.offsets)]
        grid.add(device.CallOp(grid.name, views, indices))
        self.block.add_op(grid.finish())

    def _source(
        self,
        grid: GridBuilder,
        source: Source,
        job: Job,
        tilings: Sequence[DimTiling],
        spans: Sequence[tuple[Expr, Expr]],
    ) -> SSAValue:
        """The box of a source that goes with a tile of the domain; whole where it is not cut."""
        layout = Layout(task.spec_of(source.value), self.mesh)
        there = Layout(job.domain, self.mesh)
        offsets, sizes, blocks = list[Expr](), list[Expr](), list[int]()
        for d, along in enumerate(source.cuts):
            if along is None:
                size = max(layout.capacity(d), 1)
                offset, size, block = as_expr(0), as_expr(size), size
            else:
                shared = source.shared.get(d, 1)
                offset, size = (part // shared for part in spans[along])
                block = tilings[along].block // shared
                if there.axes(along) != layout.axes(d):
                    # A replica beside shards: this rank's rows of the whole.
                    offset = there.offset(along, self.me) - layout.offset(d, self.me) + offset
            offsets.append(source.shift.get(d, 0) + offset)
            sizes.append(size)
            blocks.append(block)
        return grid.view(self.buffers[source.value], offsets, sizes, blocks)

    def _reshape(self, op: task.ReshapeOp) -> None:
        """One copy between the local parts, which are boxes of two shapes."""
        source, target = self.buffers[op.operand], self._result_buffer(op)
        specs = task.spec_of(op.operand), task.spec_of(op.result)
        before, after = (Layout(spec, self.mesh).capacities() for spec in specs)
        if 0 in before:
            return
        whole = [tile_dim(c, c) for c in after]
        grid = self._grid(op, whole)
        zeros = [as_expr(0)] * max(len(before), len(after))
        views = [
            grid.view(buffer, zeros[: len(sizes)], [as_expr(n) for n in sizes], sizes)
            for buffer, sizes in ((source, before), (target, after))
        ]
        grid.add(device.CopyOp(*views))
        self.block.add_op(grid.finish())

    def _collective(self, op: task.CollectiveOp) -> None:
        source, target = self.buffers[op.operand], self._result_buffer(op)
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
        return GridBuilder(self.names.fresh(op.label()), "sm", bounds, op.location)


def _meets_collective(value: SSAValue) -> bool:
    """Whether a collective makes or takes it, or what an update makes of it."""
    users = [use.operation for use in value.uses]
    later = (u.result for u in users if isinstance(u, task.UpdateOp) and u.state is value)
    return (
        isinstance(value.owner, task.CollectiveOp)
        or any(isinstance(user, task.CollectiveOp) for user in users)
        or any(map(_meets_collective, later))
    )


def _first_output(value: SSAValue) -> Operation | None:
    outputs = [u.operation for u in value.uses if isinstance(u.operation, task.OutputOp)]
    return outputs[0] if outputs else None


def _dim_names(d: int, tiling: DimTiling) -> tuple[str, ...]:
    tile, shard = (("m", "p"), ("n", "q"))[d] if d < 2 else (f"i{d}", f"p{d}")
    return (shard, tile) if tiling.shard else (tile,)


def _coords(grid: GridBuilder, tilings: Sequence[DimTiling]) -> list[list[Expr]]:
    return [[grid[name] for name in _dim_names(d, t)] for d, t in enumerate(tilings)]
