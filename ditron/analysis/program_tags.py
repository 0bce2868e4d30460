"""What a task program says, as tags of its tensors' cells, and where its shards lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import Operation, SSAValue

from ditron.analysis.attention_tags import Dim, attention_tags, head_stretches
from ditron.analysis.cells import Cuts
from ditron.analysis.kernel_dims import dim_class, shared_dims
from ditron.analysis.kernel_tags import Hands, run_kernel
from ditron.analysis.lines import Line
from ditron.analysis.ring import BINARY, Tags, cast, dot, function, input_tags, weights
from ditron.ir import core, task
from ditron.ir.tile_kernels import tile_kernel, whole_kernel
from ditron.plan.placement import Mesh, Partial, Shard, shard_extent, shard_size
from ditron.plan.spec import TensorSpec
from ditron.plan.tables import Longs


@dataclass(frozen=True)
class Shards:
    """Where each rank's part of a tensor lies: offset, extent [ranks, D]. Partial: a term each."""

    offset: Longs
    extent: Longs
    partial: bool


def shards(spec: TensorSpec, mesh: Mesh) -> Shards:
    """The parts of a tensor; a dimension cut by several axes is cut by the outermost first."""
    ranks = np.arange(mesh.ranks)
    offset = np.zeros((mesh.ranks, len(spec.shape)), np.int64)
    extent = np.tile(np.array(spec.shape, np.int64), (mesh.ranks, 1))
    inner = mesh.ranks
    for axis, placement in enumerate(spec.placements):
        n = mesh.sizes[axis]
        inner //= n
        if isinstance(placement, Shard):
            place = ranks // inner % n
            for r in ranks:
                size = int(extent[r, placement.dim])
                offset[r, placement.dim] += min(int(place[r]) * shard_size(size, n), size)
                extent[r, placement.dim] = shard_extent(size, n, place[r])
    return Shards(offset, extent, any(isinstance(p, Partial) for p in spec.placements))


class ProgramAxes:
    """Numbers an axis for each dimension of each tensor of a program, from `base` on."""

    def __init__(self, program: task.ProgramOp, base: int) -> None:
        self.program = program
        self._kernels: dict[object, core.FuncOp] = {}
        self.base: dict[SSAValue, int] = {}
        sizes: list[int] = []
        for op in program.body.block.ops:
            for result in op.results:
                self.base[result] = base + len(sizes)
                sizes.extend(task.spec_of(result).shape)
        self.sizes = np.array(sizes, np.int64)

    def same_stretches(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Stretches of axes that are one: (axis, start, other axis, start there, size)."""
        for op in self.program.body.block.ops:
            for (a, i), (b, j) in _same_dims(self, op):
                size = min(task.spec_of(a).shape[i], task.spec_of(b).shape[j])
                yield self.base[a] + i, 0, self.base[b] + j, 0, size
            for (a, i), start, (b, j), there, size in _stretches(op, self.program.mesh):
                yield self.base[a] + i, start, self.base[b] + j, there, size

    def reshapes(self) -> Iterator[tuple[Line, Line]]:
        """What holds the same elements in row-major order."""
        for op in self.program.body.block.ops:
            if isinstance(op, task.ReshapeOp):
                yield self._line(op.operand), self._line(op.result)

    def whole_kernel(self, op: task.ComputeOp) -> core.FuncOp:
        """An op's kernel for its tensors as a whole; layers' ops that say the same have one."""
        types = tuple(value.type for value in (*op.operands, op.result))
        key = (op.name, types, tuple(op.properties.items()))
        if key not in self._kernels:
            self._kernels[key] = whole_kernel(op)
        return self._kernels[key]

    def _line(self, value: SSAValue) -> Line:
        return Line.whole(self.base[value], task.spec_of(value).shape)


WHOLE = (
    *(task.RmsNormOp, task.SoftmaxOp, task.RopeOp, task.EmbeddingOp, task.AmaxOp, task.ArgmaxOp),
    task.AttentionJoinOp,
)
"""Ops whose tags are what their kernels make of whole tensors."""


def _runs_whole(op: Operation) -> bool:
    placed = isinstance(op, task.SliceOp | task.UpdateOp) and op.position is not None
    return placed or isinstance(op, (*WHOLE, task.HeadsOp))


def _same_dims(axes: ProgramAxes, op: Operation) -> Iterator[tuple[Dim, Dim]]:
    """Dimensions of operands that are one with the result's, or with each other."""
    if isinstance(op, task.CallOp):
        yield from _call_dims(op)
    elif isinstance(op, task.ComputeOp):
        if isinstance(op, task.MatmulOp):
            lhs, rhs = op.inner_dims
            yield (op.lhs, lhs), (op.rhs, rhs)
        if _runs_whole(op) and not isinstance(op, task.HeadsOp):
            yield from _kernel_dims(axes, op)
        for operand, dims in zip(op.operands, op.becomes(), strict=True):
            yield from (
                ((operand, d), (op.result, to)) for d, to in enumerate(dims) if to is not None
            )


def _kernel_dims(axes: ProgramAxes, op: task.ComputeOp) -> Iterator[tuple[Dim, Dim]]:
    """Those that an op's kernel says are one."""
    values = [*tile_kernel(op).values, op.result]
    for shared in shared_dims(axes.whole_kernel(op)):
        yield (values[shared.a], shared.a_dim), (values[shared.b], shared.b_dim)


def _stretches(op: Operation, mesh: Mesh) -> Iterator[tuple[Dim, int, Dim, int, int]]:
    """Stretches of dimensions that are one: (dim, start, other dim, start there, size)."""
    match op:
        case task.BroadcastOp() | task.ShiftOp():
            for start, there, size in moved(op, mesh):
                yield (op.operand, op.dim_index), start, (op.result, op.dim_index), there, size
        case task.SliceOp() if op.position is None:
            size = task.spec_of(op.result).shape[op.dim_index]
            yield (op.operand, op.dim_index), op.at, (op.result, op.dim_index), 0, size
        case task.UpdateOp() if op.position is None:
            size = task.spec_of(op.value).shape[op.dim_index]
            yield (op.value, op.dim_index), 0, (op.result, op.dim_index), op.at, size
        case task.ConcatOp():
            at = 0
            for value in op.operands:
                size = task.spec_of(value).shape[op.dim_index]
                yield (value, op.dim_index), 0, (op.result, op.dim_index), at, size
                at += size
        case task.HeadsOp():
            yield from head_stretches(op)
        case task.RopeOp():
            last = len(task.spec_of(op.result).shape) - 1
            half = task.spec_of(op.result).shape[last] // 2
            yield (op.result, last), 0, (op.result, last), half, half
        case _:
            return


def moved(op: task.BroadcastOp | task.ShiftOp, mesh: Mesh) -> list[tuple[int, int, int]]:
    """Stretches (start, start in the result, size) of the dimension that an op moves along."""
    size, ranks = task.spec_of(op.operand).shape[op.dim_index], mesh.size(op.axis.data)
    shard = shard_size(size, ranks)
    if isinstance(op, task.BroadcastOp):
        start = min(op.root_index * shard, size)
        return [(start, 0, task.spec_of(op.result).shape[op.dim_index])]
    by = op.steps % ranks * shard
    return [(0, by, size - by), (size - by, 0, by)]


def _call_dims(op: task.CallOp) -> Iterator[tuple[Dim, Dim]]:
    """A dimension is one with the result's that it is cut along; whole ones as the kernel says."""
    kernel = op.function()
    find, views = dim_class(kernel), kernel.views
    first: dict[tuple[object, int], Dim] = {}
    for arg, view, cuts in zip(op.args, views[:-1], op.cuts, strict=True):
        for d, (along, size) in enumerate(zip(cuts, task.spec_of(arg).shape, strict=True)):
            if along is not None:
                yield (arg, d), (op.result, along)
            else:
                yield first.setdefault((find((view, d)), size), (arg, d)), (arg, d)


def term_name(name: str, rank: int) -> str:
    """What to call one rank's term of a partial input."""
    return f"{name} of rank {rank}"


def program_tags(axes: ProgramAxes, cuts: Cuts) -> dict[SSAValue, Tags]:
    """Tags of all cells of all tensors of a program, `[cells of each dimension]`."""
    tags: dict[SSAValue, Tags] = {}
    for op in axes.program.body.block.ops:
        match op:
            case task.SourceOp() | task.ScalarOp():
                base, spec = axes.base[op.result], task.spec_of(op.result)
                edges = [cuts.edges(base + d) for d in range(len(spec.shape))]
                tags[op.result] = source_tags(op.tensor_name.data, spec, edges, axes.program.mesh)
            case task.MatmulOp():
                transpose, (inner, _) = op.transpose_b is not None, op.inner_dims
                by = weights(cuts.edges(axes.base[op.lhs] + inner))
                tags[op.result] = dot(tags[op.lhs], tags[op.rhs], by, transpose_b=transpose)
            case task.CallOp():
                tags[op.result] = _kernel_tags(axes, cuts, op, op.function(), op.args, tags)
            case task.ComputeOp() if _runs_whole(op):
                tags[op.result] = _layer_tags(axes, cuts, op, tags)
            case task.BinaryOp():
                tags[op.result] = BINARY[op.function()](tags[op.lhs], tags[op.rhs])
            case task.UnaryOp():
                tags[op.result] = function(op.function())(tags[op.operand])
            case task.ComputeOp():
                tags[op.result] = _rearranged(axes, cuts, op, tags)
            case _:
                assert isinstance(op, task.OutputOp), op.name
    return tags


def _rearranged(
    axes: ProgramAxes, cuts: Cuts, op: task.ComputeOp, tags: Mapping[SSAValue, Tags]
) -> Tags:
    """Cells of the operands where they lie in the result."""
    operands = [tags[operand] for operand in op.operands]
    match op:
        case task.BroadcastOp() | task.ShiftOp():
            made = _moved_tags(axes, cuts, op, operands[0])
        case task.CollectiveOp() | task.ShardOp():
            (made,) = operands
        case task.CastOp():
            dtypes = (task.spec_of(value).dtype for value in (op.operand, op.result))
            made = cast(operands[0], *dtypes)
        case task.ReshapeOp():
            made = operands[0].reshape(_cells(axes, cuts, op.result))
        case task.TransposeOp():
            made = np.swapaxes(operands[0], *op.dims)
        case task.ConcatOp():
            made = np.concatenate(operands, axis=op.dim_index)
        case task.SliceOp():
            made = operands[0][_part(axes, cuts, op.operand, op)]
        case task.UpdateOp():
            made = operands[0].copy()
            made[_part(axes, cuts, op.result, op)] = operands[1]
        case _:
            raise AssertionError(op.name)
    return made


def _moved_tags(
    axes: ProgramAxes, cuts: Cuts, op: task.BroadcastOp | task.ShiftOp, tags: Tags
) -> Tags:
    """The operand's cells where they lie in the result."""
    edges = cuts.edges(axes.base[op.operand] + op.dim_index)
    parts = sorted(moved(op, axes.program.mesh), key=lambda stretch: stretch[1])
    spans = [np.searchsorted(edges, [start, start + size]) for start, _, size in parts]
    whole = [slice(None)] * tags.ndim
    pieces: list[Tags] = []
    for first, last in spans:
        whole[op.dim_index] = slice(int(first), int(last))
        pieces.append(tags[tuple(whole)])
    return np.concatenate(pieces, axis=op.dim_index)


def _part(
    axes: ProgramAxes, cuts: Cuts, whole: SSAValue, op: task.SliceOp | task.UpdateOp
) -> tuple[slice, ...]:
    """The cells of the whole from where a slice or update begins to where it ends."""
    edges = cuts.edges(axes.base[whole] + op.dim_index)
    value = op.result if isinstance(op, task.SliceOp) else op.value
    size = task.spec_of(value).shape[op.dim_index]
    first, last = np.searchsorted(edges, [op.at, op.at + size]).tolist()
    return (*[slice(None)] * op.dim_index, slice(first, last))


def _cells(axes: ProgramAxes, cuts: Cuts, value: SSAValue) -> list[int]:
    base, ndim = axes.base[value], len(task.spec_of(value).shape)
    return [len(cuts.edges(base + d)) - 1 for d in range(ndim)]


def _kernel_tags(
    axes: ProgramAxes,
    cuts: Cuts,
    op: task.ComputeOp,
    kernel: core.FuncOp,
    values: Sequence[SSAValue],
    tags: Mapping[SSAValue, Tags],
) -> Tags:
    """A kernel on the cells of whole tensors; what it writes over part of is held before."""
    held = [*values, op.overwritten if op.overwritten is not None else op.result]
    stored: list[Tags] = []
    run_kernel(
        kernel,
        Hands(
            load=lambda view: tags[held[view]],
            store=lambda _, made: stored.append(made),
            edges=lambda view, dim: cuts.edges(axes.base[held[view]] + dim),
            index=lambda _: np.zeros((), np.int64),
        ),
    )
    return np.broadcast_to(stored[-1], _cells(axes, cuts, op.result))


def _layer_tags(
    axes: ProgramAxes, cuts: Cuts, op: task.ComputeOp, tags: Mapping[SSAValue, Tags]
) -> Tags:
    if isinstance(op, task.HeadsOp):
        return attention_tags(axes.base, cuts, op, tags)
    kernel, values = axes.whole_kernel(op), tile_kernel(op).values
    return _kernel_tags(axes, cuts, op, kernel, values, tags)


def source_tags(name: str, spec: TensorSpec, edges: list[Longs], mesh: Mesh) -> Tags:
    """Tags of an input or weight; a partial one is the sum of its terms."""
    if not shards(spec, mesh).partial:
        return input_tags(name, edges)
    terms = [input_tags(term_name(name, r), edges) for r in range(mesh.ranks)]
    return np.add.reduce(terms)
