"""An operation carried out by hand on every rank of a mesh, from parts cut out of whole tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from xdsl.ir import SSAValue

from ditron.builder.task import Program
from ditron.ir import task
from ditron.plan.placement import (
    Mesh,
    Partial,
    Placement,
    Placements,
    Replicate,
    Shard,
    local_extent,
    local_offset,
)
from ditron.runtime import reference
from ditron.runtime.reference import _compute

Box = list[tuple[int, int]]  # begin and end of each dimension


@dataclass(frozen=True)
class Layout:
    """A global shape and how it lies."""

    shape: tuple[int, ...]
    placements: Placements


def box(layout: Layout, mesh: Mesh, rank: int) -> Box:
    """What a rank holds of the global tensor."""
    offset = local_offset(layout, mesh, rank).tolist()
    extent = local_extent(layout, mesh, rank).tolist()
    return [(o, o + e) for o, e in zip(offset, extent, strict=True)]


def term(layout: Layout, mesh: Mesh, rank: int) -> float:
    """A rank's share of a partial sum: the more, the higher its rank; all of them add up to 1."""
    share = 1.0
    for axis, placement in zip(mesh.axes, layout.placements, strict=True):
        if isinstance(placement, Partial):
            n = mesh.size(axis)
            share *= (int(mesh.coordinate(axis, rank)) + 1) / (n * (n + 1) / 2)
    return share


def local(x: torch.Tensor, placements: Placements, mesh: Mesh, rank: int) -> torch.Tensor:
    """A rank's part of a whole tensor."""
    layout = Layout(tuple(x.shape), placements)
    cut = x[tuple(slice(*edges) for edges in box(layout, mesh, rank))]
    return cut * term(layout, mesh, rank) if Partial() in placements else cut


def whole(parts: Sequence[torch.Tensor], layout: Layout, mesh: Mesh) -> torch.Tensor:
    """The tensor that all ranks' parts make; copies are taken from the first of each group."""
    result = torch.zeros(layout.shape, dtype=parts[0].dtype)
    for rank, part in enumerate(parts):
        copy = any(
            placement == Replicate() and int(mesh.coordinate(axis, rank)) > 0
            for axis, placement in zip(mesh.axes, layout.placements, strict=True)
        )
        if not copy:
            result[tuple(slice(*edges) for edges in box(layout, mesh, rank))] += part
    return result


def run(
    fn: Callable[..., torch.Tensor],
    operands: Sequence[tuple[torch.Tensor, Placements]],
    becomes: Sequence[Sequence[int | None]],
    result: Layout,
    mesh: Mesh,
) -> torch.Tensor:
    """The whole result of an operation done on each rank's parts.

    Each rank reads, of the dimensions that the result has too, what its part of the result needs;
    it must hold that.
    """
    parts: list[torch.Tensor] = []
    for rank in range(mesh.ranks):
        needed = box(result, mesh, rank)
        pieces: list[torch.Tensor] = []
        for (x, placements), dims in zip(operands, becomes, strict=True):
            held = box(Layout(tuple(x.shape), placements), mesh, rank)
            piece = local(x, placements, mesh, rank)
            for dim, target in enumerate(dims):
                if target is None:
                    continue
                (begin, end), (first, last) = needed[target], held[dim]
                assert begin == end or first <= begin <= end <= last, "not what the rank holds"
                piece = piece.narrow(dim, begin - first if begin < end else 0, end - begin)
            pieces.append(piece)
        parts.append(fn(*pieces))
    return whole(parts, result, mesh)


def meshes(most: int = 4) -> st.SearchStrategy[Mesh]:
    """Meshes of one or two axes."""
    sizes = st.lists(st.integers(1, most), min_size=1, max_size=2)
    return sizes.map(lambda s: Mesh(**dict(zip(("dp", "tp"), s, strict=False))))


def placements(ndim: int, mesh: Mesh, *, sums: bool = True) -> st.SearchStrategy[Placements]:
    """Any placements of a tensor."""
    choices: list[Placement] = [Replicate(), *(Shard(dim) for dim in range(ndim))]
    if sums:
        choices.append(Partial())
    return st.tuples(*(st.sampled_from(choices) for _ in mesh.axes))


def run_program(program: Program, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A task program op by op, each on every rank's parts; outputs and states as whole tensors.

    What moves between ranks is moved at once: the whole is put together, then cut anew.
    """
    found: dict[str, torch.Tensor] = {}
    values: dict[SSAValue, torch.Tensor] = {}
    source = next(op for op in program.ir.ops if isinstance(op, task.ProgramOp))
    for op in source.body.block.ops:
        match op:
            case task.SourceOp() | task.ScalarOp():
                values[op.result] = inputs[op.tensor_name.data]
            case task.OutputOp():
                found[op.tensor_name.data] = values[op.operand]
            case task.CollectiveOp():
                values[op.result] = values[op.operand]
            case task.ComputeOp():
                operands = [(values[o], task.spec_of(o).placements) for o in op.operands]
                values[op.result] = _run_op(op, operands, source.mesh)
            case _:
                pass
        if isinstance(op, task.UpdateOp):
            found[task.find_state(op.state).tensor_name.data] = values[op.result]
    return found


def _run_op(
    op: task.ComputeOp, operands: Sequence[tuple[torch.Tensor, Placements]], mesh: Mesh
) -> torch.Tensor:
    spec = task.spec_of(op.result)
    result = Layout(spec.shape, spec.placements)
    if (rule := op.placement_rule()) is not None and not isinstance(op, task.EmbeddingOp):
        return run(lambda *parts: _compute(op, list(parts)), operands, rule.becomes, result, mesh)
    parts: list[torch.Tensor] = []
    for rank in range(mesh.ranks):
        mine = [local(x, placements, mesh, rank) for x, placements in operands]
        if isinstance(op, task.ReshapeOp):
            sizes = [end - begin for begin, end in box(result, mesh, rank)]
            parts.append(mine[0].reshape(sizes))
        else:  # ids are those of the whole table
            rows = box(Layout(tuple(operands[1][0].shape), operands[1][1]), mesh, rank)[0]
            parts.append(reference.embedding(mine[0] - rows[0], mine[1]))
    return whole(parts, result, mesh)
