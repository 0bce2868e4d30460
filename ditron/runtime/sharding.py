"""Global tensors into the local parts of ranks, and back."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import torch

from ditron.plan.expr import as_expr, evaluate
from ditron.plan.layout import Layout
from ditron.plan.placement import Mesh, Partial, Replicate
from ditron.plan.spec import TensorSpec


def local_box(spec: TensorSpec, mesh: Mesh, rank: int) -> tuple[slice, ...]:
    """What a rank holds of a tensor, as slices of the whole."""
    layout, here = Layout(spec, mesh), as_expr(rank)

    def one(dim: int) -> slice:
        start = int(evaluate(layout.offset(dim, here), []))
        start = min(start, spec.shape[dim])
        return slice(start, start + int(evaluate(layout.extent(dim, here), [])))

    return tuple(one(dim) for dim in range(len(spec.shape)))


def holds_sum(spec: TensorSpec, mesh: Mesh, rank: int) -> bool:
    """Whether a rank gets its part of a tensor that comes as a sum: the others' terms are zeros."""
    place = np.unravel_index(rank, mesh.sizes)
    return all(i == 0 for i, p in zip(place, spec.placements, strict=True) if p == Partial())


def assemble(spec: TensorSpec, mesh: Mesh, local: Callable[[int], torch.Tensor]) -> torch.Tensor:
    """The whole of a tensor: shards put together, replicas from the first rank that holds one.

    Partial sums are added in float32 (integers as they are) in the order of their ranks and
    rounded once.
    """
    first = local(0)
    wide = torch.float32 if first.dtype.is_floating_point else first.dtype
    summed = Partial() in spec.placements
    whole = torch.zeros(spec.shape, dtype=wide if summed else first.dtype)
    for place in product(*(range(1 if p == Replicate() else n) for p, n in _axes(spec, mesh))):
        rank = int(np.ravel_multi_index(place, mesh.sizes))
        box = local_box(spec, mesh, rank)
        part = local(rank)
        whole[box] = whole[box] + part.to(wide) if summed else part
    return whole.to(first.dtype)


def _axes(spec: TensorSpec, mesh: Mesh) -> zip[tuple[object, int]]:
    return zip(spec.placements, mesh.sizes, strict=True)
