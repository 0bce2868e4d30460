"""Say what arrived in an output instead of what should have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from xdsl.ir import SSAValue

from ditron.analysis.arrays import longs
from ditron.analysis.cells import Cuts
from ditron.analysis.program_tags import ProgramAxes, shards
from ditron.analysis.ring import Tags, dot, weights
from ditron.ir import task
from ditron.ir.locations import op_location

MATRIX = 2


def explain_output(
    axes: ProgramAxes,
    cuts: Cuts,
    expected: Mapping[SSAValue, Tags],
    value: SSAValue,
    at: Sequence[int],
    got: np.uint64,
) -> str:
    """What the cell of `value` that begins at `at` should hold, and what it holds by its tag."""
    base = axes.base[value]
    index = tuple(int(cuts.cell(longs([base + d]), longs([x]))[0]) for d, x in enumerate(at))
    wanted = expected[value][index]
    found = _find_sum(axes, cuts, expected, value, index, wanted, got) or _find(
        axes, cuts, expected, got
    )
    return f"should hold {_name(value)} there, but holds {found or 'something else'}"


def _name(value: SSAValue) -> str:
    op = value.owner
    if isinstance(op, task.SourceOp | task.ScalarOp):
        return f"{op.tensor_name.data!r}"
    assert isinstance(op, task.ComputeOp)
    return f"the {op.label()} of {op_location(op)}"


def _find(
    axes: ProgramAxes, cuts: Cuts, expected: Mapping[SSAValue, Tags], got: np.uint64
) -> str | None:
    """A cell of a tensor of the program that has this tag; the last such tensor."""
    if got == 0:
        return "zeros"
    for value in reversed(list(expected)):
        places = np.argwhere(expected[value] == got)
        if len(places):
            edges = [cuts.edges(axes.base[value] + d) for d in range(places.shape[1])]
            box = ", ".join(f"{e[i]}:{e[i + 1]}" for e, i in zip(edges, places[0], strict=True))
            return f"what belongs in {_name(value)} at [{box}]"
    return None


def _find_sum(
    axes: ProgramAxes,
    cuts: Cuts,
    expected: Mapping[SSAValue, Tags],
    value: SSAValue,
    index: tuple[int, ...],
    wanted: np.uint64,
    got: np.uint64,
) -> str | None:
    """A sum over ranks with a term that is missing or that counts twice."""
    with np.errstate(over="ignore"):
        for rank, term in enumerate(_terms(axes, cuts, expected, value)):
            for difference, words in (
                (wanted - term[index], f"that without the term of rank {rank}"),
                (wanted + term[index], f"that with the term of rank {rank} twice"),
                (term[index], f"only the term of rank {rank}"),
            ):
                if got == difference:
                    return words
    return None


def _terms(
    axes: ProgramAxes, cuts: Cuts, expected: Mapping[SSAValue, Tags], value: SSAValue
) -> Iterator[Tags]:
    """Each rank's term of a sum that a collective or the host makes of a matmul over shards."""
    op = value.owner
    while isinstance(op, task.CollectiveOp | task.CastOp):
        op = op.operand.owner
    if not isinstance(op, task.MatmulOp) or any(expected[o].ndim > MATRIX for o in op.operands):
        return
    lhs, rhs = expected[op.lhs], expected[op.rhs]
    rhs = np.swapaxes(rhs, 0, 1) if op.transpose_b is not None else rhs
    parts = shards(task.spec_of(op.lhs), axes.program.mesh)
    axis = axes.base[op.lhs] + 1
    by = weights(cuts.edges(axis))
    for offset, extent in zip(parts.offset[:, 1], parts.extent[:, 1], strict=True):
        ends = cuts.cell(longs([axis, axis]), longs([offset, offset + extent])).tolist()
        here = slice(*ends)
        yield dot(lhs[:, here], rhs[here], by[here])
