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
from ditron.passes.kernel_calls import resized
from ditron.passes.tile_kernels import TileBody, build_kernel, dot, pointwise
from ditron.plan.calls import Cuts
from ditron.plan.expr import Expr, as_expr
from ditron.plan.layout import Layout, axis_stride
from ditron.plan.placement import shard_size
from ditron.plan.spec import TensorSpec
from ditron.plan.tables import Memory, Role
from ditron.plan.tiling import DimTiling, tile_dim

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
        tensors = [op.tensor_name.data for op in (*program.inputs, *program.outputs)]
        self.buffer_names = set(tensors)
        rank = device.RankOp()
        rank.result.name_hint = "me"
        self._add(rank, program.location)
        self.me = Ssa(rank.result)

    def run(self) -> None:
        for op in self.program.body.block.ops:
            match op:
                case task.SourceOp():
                    role = Role.WEIGHT if isinstance(op, task.WeightOp) else Role.INPUT
                    self._buffer(op.result, op.tensor_name.data, role, op.location)
                case task.OutputOp():
                    self._output(op)
                case task.MatmulOp():
                    self._matmul(op)
                case task.CollectiveOp():
                    self._collective(op)
                case task.CallOp():
                    self._kernel_call(op)
                case task.PointwiseOp() | task.CastOp() | task.ShardOp():
                    self._pointwise(op)
                case _:
                    raise PlanError(f"{op.name} cannot be lowered yet", op_location(op))
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
        """The buffer of an op's result: the output's own where the result is one."""
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

    def _matmul(self, op: task.MatmulOp) -> None:
        if len(task.spec_of(op.result).shape) != 2:
            raise PlanError("matmul with batch dimensions cannot be lowered yet", op_location(op))
        target = self._result_buffer(op)
        spec = task.spec_of(op.result)
        rows, columns = self._tilings(op, spec)
        grid = self._grid(op, (rows, columns))
        m, n = _coords(grid, (rows, columns))
        k = max(Layout(task.spec_of(op.lhs), self.mesh).capacity(1), 1)
        at_m, at_n = (rows.offset(m), rows.size(m)), (columns.offset(n), columns.size(n))
        transpose = op.transpose_b is not None
        inner = (as_expr(0), as_expr(k))
        lhs = self._view(grid, op.lhs, (at_m, inner), (rows.block, k))
        spans, capacity = (inner, at_n), (k, columns.block)
        if transpose:
            spans, capacity = spans[::-1], capacity[::-1]
        rhs = self._view(grid, op.rhs, spans, capacity)
        out = grid.view(target, [at_m[0], at_n[0]], [at_m[1], at_n[1]], [rows.block, columns.block])
        self._call(grid, [lhs, rhs], out, dot(transpose_b=transpose))

    def _pointwise(self, op: task.ComputeOp) -> None:
        target = self._result_buffer(op)
        spec = task.spec_of(op.result)
        tilings = self._tilings(op, spec)
        grid = self._grid(op, tilings)
        coords = _coords(grid, tilings)
        spans = [(t.offset(c), t.size(c)) for t, c in zip(tilings, coords, strict=True)]
        cuts = [_pointwise_cuts(task.spec_of(value), spec) for value in op.operands]
        views = [
            self._operand_view(grid, value, cut, spec, tilings, spans)
            for value, cut in zip(op.operands, cuts, strict=True)
        ]
        blocks = [t.block for t in tilings]
        out = grid.view(target, [o for o, _ in spans], [s for _, s in spans], blocks)
        self._call(grid, views, out, pointwise(op))

    def _kernel_call(self, op: task.CallOp) -> None:
        """A user's kernel, at the tile sizes that were chosen."""
        target = self._result_buffer(op)
        spec = task.spec_of(op.result)
        tilings = self._tilings(op, spec)
        grid = self._grid(op, tilings)
        coords = _coords(grid, tilings)
        spans = [(t.offset(c), t.size(c)) for t, c in zip(tilings, coords, strict=True)]
        views = [
            self._operand_view(grid, value, cuts, spec, tilings, spans)
            for value, cuts in zip(op.args, op.cuts, strict=True)
        ]
        blocks = [t.block for t in tilings]
        views.append(grid.view(target, [o for o, _ in spans], [s for _, s in spans], blocks))
        self.module.body.block.add_op(resized(op.function(), grid.name, views))
        grid.add(device.CallOp(grid.name, views))
        self.block.add_op(grid.finish())

    def _operand_view(
        self,
        grid: GridBuilder,
        value: SSAValue,
        cuts: Cuts,
        result: TensorSpec,
        tilings: Sequence[DimTiling],
        spans: Sequence[tuple[Expr, Expr]],
    ) -> SSAValue:
        """The box of an operand that goes with a tile of the result; whole where it is not cut."""
        spec = task.spec_of(value)
        whole, there = Layout(spec, self.mesh), Layout(result, self.mesh)
        parts, blocks = list[tuple[Expr, Expr]](), list[int]()
        for d, along in enumerate(cuts):
            if along is None:
                parts.append((as_expr(0), as_expr(max(spec.shape[d], 1))))
                blocks.append(max(spec.shape[d], 1))
                continue
            offset, size = spans[along]
            if there.axes(along) != whole.axes(d):
                # A replica beside shards: this rank's rows of the whole.
                offset = there.offset(along, self.me) - whole.offset(d, self.me) + offset
            parts.append((offset, size))
            blocks.append(tilings[along].block)
        return self._view(grid, value, parts, blocks)

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

    def _tilings(self, op: task.ComputeOp, spec: TensorSpec) -> list[DimTiling]:
        """How the local part of an op's result is cut into tiles."""
        tile = op.choice.tile if op.choice is not None and op.choice.tile else DEFAULT_TILE
        ndim = len(spec.shape)
        blocks = (1,) * max(ndim - len(tile), 0) + tuple(tile[-ndim:] if ndim else ())
        layout = Layout(spec, self.mesh)
        axes = [self.dims.cut.get((op.result, d)) for d in range(ndim)]
        shards = [
            0 if axis is None or axis in layout.axes(d) else self.mesh.sizes[axis]
            for d, axis in enumerate(axes)
        ]
        sizes = layout.capacities()
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

    def _view(
        self,
        grid: GridBuilder,
        value: SSAValue,
        spans: Sequence[tuple[Expr, Expr]],
        capacity: Sequence[int],
    ) -> SSAValue:
        offsets, sizes = [o for o, _ in spans], [s for _, s in spans]
        return grid.view(self.buffers[value], offsets, sizes, capacity)

    def _call(
        self, grid: GridBuilder, views: Sequence[SSAValue], out: SSAValue, body: TileBody
    ) -> None:
        kernel = build_kernel(grid.name, [*views, out], body, grid.location)
        self.module.body.block.add_op(kernel)
        grid.add(device.CallOp(grid.name, [*views, out]))
        self.block.add_op(grid.finish())


def _pointwise_cuts(operand: TensorSpec, result: TensorSpec) -> Cuts:
    """Each dimension is cut along with the result's, but for those of size 1 that broadcast."""
    sizes = enumerate(zip(operand.shape, result.shape, strict=True))
    return tuple(None if mine == 1 != other else d for d, (mine, other) in sizes)


def _meets_collective(value: SSAValue) -> bool:
    users = (use.operation for use in value.uses)
    return isinstance(value.owner, task.CollectiveOp) or any(
        isinstance(user, task.CollectiveOp) for user in users
    )


def _first_output(value: SSAValue) -> Operation | None:
    outputs = [u.operation for u in value.uses if isinstance(u.operation, task.OutputOp)]
    return outputs[0] if outputs else None


def _dim_names(d: int, tiling: DimTiling) -> tuple[str, ...]:
    tile, shard = (("m", "p"), ("n", "q"))[d] if d < 2 else (f"i{d}", f"p{d}")
    return (shard, tile) if tiling.shard else (tile,)


def _coords(grid: GridBuilder, tilings: Sequence[DimTiling]) -> list[list[Expr]]:
    return [[grid[name] for name in _dim_names(d, t)] for d, t in enumerate(tilings)]
