"""What `lower-task-to-device` makes of each op: grids over tiles, told in boxes.

A job is a grid whose tasks each make a tile of a domain: the local part of the result, or of a
piece of it. Sources are cut along with the domain or read whole; a shift moves a box along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from xdsl.dialects.builtin import LocationAttr
from xdsl.ir import Attribute, SSAValue

from ditron.ir import core, task
from ditron.ir.tile_kernels import TileKernel, as_it_is, tile_kernel
from ditron.passes.kernel_calls import resized
from ditron.plan.calls import Cuts
from ditron.plan.expr import Expr, maximum
from ditron.plan.layout import Layout
from ditron.plan.placement import Mesh, Replicate, Shard
from ditron.plan.spec import TensorSpec

Shift = Mapping[int, Expr | int]
"""How far a box lies from where its tile does, by dimension."""


class Builder(Protocol):
    """Makes a kernel for views of some types."""

    def __call__(
        self, name: str, types: Sequence[Attribute], location: LocationAttr
    ) -> core.FuncOp: ...


@dataclass(frozen=True)
class Source:
    """A tensor that a job reads; `cuts` gives the domain's dimension for each of its own.

    Along a dimension in `shared`, so many elements of the domain share one of the tensor; along one
    in `wide`, each of the domain's goes with so many.
    """

    value: SSAValue
    cuts: Cuts
    shift: Shift = field(default_factory=dict[int, Expr | int])
    shared: Mapping[int, int] = field(default_factory=dict[int, int])
    wide: Mapping[int, int] = field(default_factory=dict[int, int])


@dataclass(frozen=True)
class Target:
    """A box of the result that a tile is written to: where it lies, and sizes other than its."""

    shift: Shift = field(default_factory=dict[int, Expr | int])
    sizes: Mapping[int, int] = field(default_factory=dict[int, int])


@dataclass(frozen=True)
class Job:
    """One grid of tiles of `domain`.

    Attributes:
        build: makes the kernel, whose views are the sources' and then the targets'.
        targets: the boxes of the result that a tile is written to.
        indices: what the kernel is given besides, as expressions of the rank.
        offsets: then it is given where the tile begins along these dimensions of the domain, times
            so much.
        blocks: how many elements tiles have along a dimension, where that is not to be chosen.
    """

    domain: TensorSpec
    build: Builder
    sources: tuple[Source, ...]
    targets: tuple[Target, ...] = (Target(),)
    indices: tuple[Expr, ...] = ()
    offsets: Mapping[int, int] = field(default_factory=dict[int, int])
    blocks: Mapping[int, int] = field(default_factory=dict[int, int])

    def whole_dims(self) -> set[int]:
        """Dimensions that no source is cut along, so that tiles do not cut them either."""
        cut = {along for source in self.sources for along in source.cuts}
        return set(range(len(self.domain.shape))) - cut


def jobs(op: task.ComputeOp, mesh: Mesh, me: Expr) -> Iterator[Job]:
    """The grids of an op that is no collective and no reshape."""
    match op:
        case task.CallOp():
            yield _call(op)
        case task.ConcatOp():
            yield from _concat(op)
        case task.SliceOp() if op.position is None:
            yield _slice(op)
        case task.UpdateOp():
            yield _update(op, mesh, me)
        case task.HeadsOp():
            yield _attention(op)
        case task.AttentionJoinOp():
            yield replace(_tiles(op), blocks={0: 1, 2: 1})
        case task.EmbeddingOp():
            first = Layout(task.spec_of(op.table), mesh).offset(0, me)
            yield replace(_tiles(op), indices=(first,))
        case _:
            yield _tiles(op)


def _tiles(op: task.ComputeOp) -> Job:
    kernel = tile_kernel(op)
    sources = map(Source, kernel.values, op.becomes())
    return Job(task.spec_of(op.result), kernel.build, tuple(sources))


def _call(op: task.CallOp) -> Job:
    def build(name: str, types: Sequence[Attribute], location: LocationAttr) -> core.FuncOp:
        del location
        return resized(op.function(), name, types)

    sources = map(Source, op.args, op.cuts)
    return Job(task.spec_of(op.result), build, tuple(sources))


def _attention(op: task.HeadsOp) -> Job:
    """A tile is of all the query heads that share a key head, in parts of one range of places."""
    job, wide = _tiles(op), dict[int, int]()
    heads = op.together
    if isinstance(op, task.AttentionPartsOp):
        wide, width = {1: op.places}, task.spec_of(op.q).shape[3]
        beside = (Target({3: width + i}, {3: 1}) for i in range(2))
        domain = _with_size(job.domain, 3, width)
        job = replace(job, domain=domain, targets=(Target(), *beside))
    q, *numbers = (source for source in job.sources if source.value not in (op.k, op.v))
    along = (0, 1 if wide else None, 2, None)
    keys = (Source(value, along, shared={2: heads}, wide=wide) for value in (op.k, op.v))
    blocks = {0: 1, 2: heads} | dict.fromkeys(wide, 1)
    offsets = wide or {1: 1}
    return replace(job, sources=(q, *keys, *numbers), offsets=offsets, blocks=blocks)


def _concat(op: task.ConcatOp) -> Iterator[Job]:
    spec, start = task.spec_of(op.result), 0
    for value in op.operands:
        size = task.spec_of(value).shape[op.dim_index]
        source = Source(value, _all(spec))
        domain = _with_size(spec, op.dim_index, size)
        yield Job(domain, _builder(as_it_is), (source,), (Target({op.dim_index: start}),))
        start += size


def _slice(op: task.SliceOp) -> Job:
    spec = task.spec_of(op.result)
    source = Source(op.operand, _all(spec), {op.dim_index: op.at})
    return Job(spec, _builder(as_it_is), (source,))


def _update(op: task.UpdateOp, mesh: Mesh, me: Expr) -> Job:
    """Where it is known where the value goes, a copy of what of it goes to this rank's part."""
    spec, dim = task.spec_of(op.result), op.dim_index
    first = Layout(spec, mesh).offset(dim, me)
    if op.position is not None:
        kernel = tile_kernel(op)
        sources = tuple(map(Source, kernel.values, op.becomes()[1:]))
        return Job(spec, kernel.build, sources, indices=(first,))
    domain = task.spec_of(op.value)
    whole = tuple(Replicate() if p == Shard(dim) else p for p in spec.placements)
    source = Source(op.value, _all(spec), {dim: maximum(first - op.at, 0)})
    target = Target({dim: maximum(op.at - first, 0)})
    return Job(replace(domain, placements=whole), _builder(as_it_is), (source,), (target,))


def _builder(body: Callable[..., SSAValue | None]) -> Builder:
    return partial(TileKernel.build, TileKernel(body, ()))


def _all(spec: TensorSpec) -> Cuts:
    return tuple(range(len(spec.shape)))


def _with_size(spec: TensorSpec, dim: int, size: int) -> TensorSpec:
    shape = list(spec.shape)
    shape[dim] = size
    return replace(spec, shape=tuple(shape))
