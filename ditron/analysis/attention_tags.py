"""What a task program's attention makes of tags: its tile kernel by heads and ranges of places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from xdsl.ir import SSAValue

from ditron.analysis.cells import Cuts
from ditron.analysis.kernel_tags import Hands, run_kernel
from ditron.analysis.ring import Tags
from ditron.ir import task
from ditron.ir.tile_kernels import group_types, tile_kernel
from ditron.plan.tables import Longs

Dim = tuple[SSAValue, int]


def head_stretches(op: task.HeadsOp) -> Iterator[tuple[Dim, int, Dim, int, int]]:
    """Heads that share a key head are cut from others; the rest is one where it is the same."""
    (batch, tokens, _, width), groups = task.spec_of(op.q).shape, task.spec_of(op.k).shape[2]
    together = op.together
    parts = isinstance(op, task.AttentionPartsOp)
    for part, (first, size) in enumerate(_ranges(op)):
        yield (op.k, 1), first, (op.v, 1), first, size
        if parts:
            yield (op.result, 1), 0, (op.result, 1), part, 1
    if parts:
        yield (op.result, 3), width, (op.result, 3), width, 1
    else:
        yield (op.q, 1), 0, (op.result, 1), 0, tokens
    yield (op.q, 3), 0, (op.k, 3), 0, width
    yield (op.v, 3), 0, (op.result, 3), 0, width
    for value in (op.q, op.k, op.v):
        yield (value, 0), 0, (op.result, 0), 0, batch
    for g in range(groups):
        yield (op.q, 2), g * together, (op.result, 2), g * together, together
        yield (op.k, 2), g, (op.v, 2), g, 1


def _ranges(op: task.HeadsOp) -> Iterator[tuple[int, int]]:
    """The ranges of places that a kernel walks: the first, and how many."""
    places = task.spec_of(op.k).shape[1]
    step = op.places if isinstance(op, task.AttentionPartsOp) else max(places, 1)
    yield from ((first, min(step, places - first)) for first in range(0, places, step))


@dataclass(frozen=True)
class _Part:
    """A group of heads and a range of places: their cells, and the range's first place."""

    group: int
    first: int
    rows: slice
    here: slice


def attention_tags(
    base: Mapping[SSAValue, int], cuts: Cuts, op: task.HeadsOp, tags: Mapping[SSAValue, Tags]
) -> Tags:
    """The tile kernel on all query heads that share a key head, in parts by ranges of places.

    Once for all groups and ranges that are of as many cells.
    """
    together, ranges = op.together, list(_ranges(op))
    q, k, v, *numbers = op.operands
    heads, places = (cuts.edges(base[x] + d) for x, d in ((q, 2), (k, 1)))
    func = tile_kernel(op).build("group", group_types(op), op.location)
    alike: dict[tuple[int, int], list[_Part]] = {}
    for g in range(task.spec_of(k).shape[2]):
        rows = slice(*np.searchsorted(heads, [g * together, (g + 1) * together]).tolist())
        for first, size in ranges:
            here = slice(*np.searchsorted(places, [first, first + size]).tolist())
            cells = (rows.stop - rows.start, here.stop - here.start)
            alike.setdefault(cells, []).append(_Part(g, first, rows, here))
    made: dict[tuple[int, int], Tags] = {}
    for parts in alike.values():
        loads = [np.stack([tags[q][:, :, one.rows] for one in parts])]
        for x in (k, v):
            loads.append(np.stack([tags[x][:, p.here, p.group : p.group + 1] for p in parts]))
        loads += [tags[number] for number in numbers]
        first = np.array([one.first for one in parts], np.int64)
        within = np.stack([places[p.here.start : p.here.stop + 1] for p in parts]) - first[:, None]
        stored: list[Tags] = []

        def edges(view: int, dim: int, within: Longs = within) -> Longs:
            of_places = view in (1, 2) and dim == 1
            return within if of_places else cuts.edges(base[op.operands[view]] + dim)

        run_kernel(
            func,
            Hands(
                load=loads.__getitem__,
                store=lambda _, tile, stored=stored: stored.append(tile),
                edges=edges,
                index=lambda _, first=first: first,  # of a whole attention 0
            ),
        )
        tiles = np.concatenate(stored, axis=-1)
        made.update(((one.group, one.first), tile) for one, tile in zip(parts, tiles, strict=True))
    groups = range(task.spec_of(k).shape[2])
    rows_of = (np.concatenate([made[g, first] for first, _ in ranges], axis=1) for g in groups)
    return np.concatenate([*rows_of], axis=2)
