"""What a task program says, as tags of its tensors' cells, and where its shards lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from xdsl.ir import Operation, SSAValue

from ditron.analysis.cells import Cuts
from ditron.analysis.kernel_dims import dim_class
from ditron.analysis.kernel_tags import run_kernel
from ditron.analysis.ring import BINARY, Tags, cast, dot, function, input_tags
from ditron.ir import task
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
            for (a, i), (b, j) in _same_dims(op):
                yield self.base[a] + i, 0, self.base[b] + j, 0, task.spec_of(a).shape[i]
            if isinstance(op, task.BroadcastOp | task.ShiftOp):
                a, b = self.base[op.operand] + op.dim_index, self.base[op.result] + op.dim_index
                for start, there, size in moved(op, self.program.mesh):
                    yield a, start, b, there, size


Dim = tuple[SSAValue, int]


def _same_dims(op: Operation) -> Iterator[tuple[Dim, Dim]]:
    if isinstance(op, task.MatmulOp):
        k, n = (1, 0) if op.transpose_b is not None else (0, 1)
        yield (op.lhs, 0), (op.result, 0)
        yield (op.lhs, 1), (op.rhs, k)
        yield (op.rhs, n), (op.result, 1)
    elif isinstance(op, task.CallOp):
        yield from _call_dims(op)
    elif isinstance(op, task.ComputeOp):
        shape = task.spec_of(op.result).shape
        moves = isinstance(op, task.BroadcastOp | task.ShiftOp)
        for operand in op.operands:
            for d, size in enumerate(task.spec_of(operand).shape):
                if size == shape[d] and not (moves and d == op.dim_index):
                    yield (operand, d), (op.result, d)


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
    find, views = dim_class(kernel), kernel.body.block.args
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
            case task.SourceOp():
                base, spec = axes.base[op.result], task.spec_of(op.result)
                edges = [cuts.edges(base + d) for d in range(len(spec.shape))]
                tags[op.result] = source_tags(op.tensor_name.data, spec, edges, axes.program.mesh)
            case task.MatmulOp():
                transpose = op.transpose_b is not None
                tags[op.result] = dot(tags[op.lhs], tags[op.rhs], transpose_b=transpose)
            case task.CallOp():
                tags[op.result] = _call_tags(axes, cuts, op, tags)
            case task.BinaryOp():
                tags[op.result] = BINARY[op.function()](tags[op.lhs], tags[op.rhs])
            case task.UnaryOp():
                tags[op.result] = function(op.function())(tags[op.operand])
            case task.BroadcastOp() | task.ShiftOp():
                tags[op.result] = _moved_tags(axes, cuts, op, tags[op.operand])
            case task.CastOp():
                names = (task.spec_of(value).dtype for value in (op.operand, op.result))
                tags[op.result] = cast(tags[op.operand], *names)
            case task.CollectiveOp() | task.ShardOp():
                tags[op.result] = tags[op.operand]
            case _:
                assert isinstance(op, task.OutputOp), op.name
    return tags


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


def _call_tags(
    axes: ProgramAxes, cuts: Cuts, op: task.CallOp, tags: Mapping[SSAValue, Tags]
) -> Tags:
    """The kernel on the cells of whole tensors."""
    stored: list[Tags] = []
    run_kernel(op.function(), lambda view: tags[op.args[view]], lambda _, t: stored.append(t))
    base = axes.base[op.result]
    shape = [len(cuts.edges(base + d)) - 1 for d in range(len(task.spec_of(op.result).shape))]
    return np.broadcast_to(stored[-1], shape)


def source_tags(name: str, spec: TensorSpec, edges: list[Longs], mesh: Mesh) -> Tags:
    """Tags of an input or weight; a partial one is the sum of its terms."""
    if not shards(spec, mesh).partial:
        return input_tags(name, edges)
    terms = [input_tags(term_name(name, r), edges) for r in range(mesh.ranks)]
    return np.add.reduce(terms)
