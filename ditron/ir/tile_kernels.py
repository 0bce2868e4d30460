"""Core kernels of task ops: load the views, compute in float32, round once, store.

What an op does to tiles is what it does to tensors, so the same body serves a tile's kernel and, on
whole tensors, the proof of delivery.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import Float32Type, IntegerType, LocationAttr, i32, i64
from xdsl.ir import Attribute, Block, Operation, SSAValue

from ditron.ir import core, task
from ditron.ir.attrs import dtype_attr

F32 = Float32Type()

# Task ops and the core ops that do the same to tiles.
POINTWISE: dict[type[Operation], type[core.BinaryOp | core.UnaryOp]] = {
    task.AddOp: core.AddOp,
    task.SubOp: core.SubOp,
    task.MulOp: core.MulOp,
    task.SiluOp: core.SiluOp,
    task.GeluOp: core.GeluOp,
    task.ReluOp: core.ReluOp,
    task.ExpOp: core.ExpOp,
}


class KernelBuilder:
    """One `core.func` in the making; ops get its location."""

    def __init__(self, func: core.FuncOp, location: LocationAttr) -> None:
        self.func, self.location = func, location
        func.location = location

    @property
    def block(self) -> Block:
        return self.func.body.block

    def add(self, op: Operation) -> SSAValue:
        """Append an op, return its result."""
        self.place(op)
        return op.results[0]

    def cast(self, tile: SSAValue, element: Attribute) -> SSAValue:
        """The tile in another element type, if it is not in that already."""
        if core.tile_type(tile).element_type == element:
            return tile
        return self.add(core.CastOp(tile, element))

    def widen(self, tile: SSAValue) -> SSAValue:
        """The tile in the type that it is computed in: float32, or its own integers."""
        if isinstance(core.tile_type(tile).element_type, IntegerType):
            return tile
        return self.cast(tile, F32)

    def load(self, view: SSAValue) -> SSAValue:
        """All of a view, in the type that it is computed in."""
        return self.widen(self.add(core.LoadOp(view)))

    def number(self, value: float, beside: SSAValue) -> SSAValue:
        """A constant that goes with a tile."""
        tile = core.tile_type(beside)
        return self.add(core.ConstantOp(value, tile.element_type, len(tile.dims)))

    def index(self, number: int, beside: SSAValue) -> SSAValue:
        """One of the kernel's indices as a tile that goes with another."""
        tile = core.tile_type(beside)
        return self.add(core.IndexOp(self.func.indices[number], tile.element_type, len(tile.dims)))

    def store(self, tile: SSAValue, view: SSAValue) -> None:
        """Round to the view's element type and write."""
        view_type = view.type
        assert isinstance(view_type, core.ViewType)
        self.place(core.StoreOp(self.cast(tile, view_type.element_type), view))

    def place(self, op: Operation) -> None:
        """Append an op."""
        op.location = self.location
        self.block.add_op(op)


TileBody = Callable[[KernelBuilder, Sequence[SSAValue]], SSAValue | None]
"""Computes on views; what it returns is stored to the last one."""


@dataclass(frozen=True)
class TileKernel:
    """What makes tiles of an op's result: its views are tiles of `values` and, last, the result's.

    `indices` are numbers that it is given besides; all 0 on whole tensors.
    """

    body: TileBody
    values: tuple[SSAValue, ...]
    indices: int = 0

    def build(self, name: str, types: Sequence[Attribute], location: LocationAttr) -> core.FuncOp:
        """The kernel for views of these types."""
        return build_kernel(name, types, self.body, location, self.indices)


def build_kernel(
    name: str,
    types: Sequence[Attribute],
    body: TileBody,
    location: LocationAttr,
    indices: int = 0,
) -> core.FuncOp:
    """A kernel that stores to its last view what `body` makes of all of them."""
    views = [t for t in types if isinstance(t, core.ViewType)]
    builder = KernelBuilder(core.FuncOp.empty(name, views, indices), location)
    made = body(builder, builder.func.views)
    if made is not None:
        builder.store(made, builder.func.views[-1])
    return builder.func


def tile_kernel(op: task.ComputeOp) -> TileKernel:
    """The kernel of an op that is no collective and no call."""
    make = BODIES.get(type(op), _as_it_is)
    # An update's own state is the result.
    values = op.operands[1:] if isinstance(op, task.UpdateOp) else op.operands
    return TileKernel(make(op), tuple(values), 1 if isinstance(op, INDEXED) else 0)


def whole_kernel(op: task.ComputeOp) -> core.FuncOp:
    """An op's kernel for its tensors as a whole."""
    kernel = tile_kernel(op)
    types = [_whole(value) for value in (*kernel.values, op.result)]
    return kernel.build("whole", types, op.location)


def group_types(op: task.HeadsOp) -> list[core.ViewType]:
    """Views of the query heads that share a key head, of that, and of numbers beside them.

    Of parts those of a range of places, and of all that it makes.
    """
    q, k, v, *numbers = (_whole(value) for value in (*op.operands, op.result))
    batch, _, _, width = q.dims
    tokens, places, made = q.dims[1], k.dims[1], (width,)
    if isinstance(op, task.AttentionPartsOp):
        places, made = op.places, (width, 1, 1)
    rows = (batch, tokens, op.together)
    keys = [core.ViewType.get([batch, places, 1, width], t.element_type) for t in (k, v)]
    results = [core.ViewType.get([*rows, size], numbers[-1].element_type) for size in made]
    return [core.ViewType.get([*rows, width], q.element_type), *keys, *numbers[:-1], *results]


def _whole(value: SSAValue) -> core.ViewType:
    spec = task.spec_of(value)
    return core.ViewType.get([max(size, 1) for size in spec.shape], dtype_attr(spec.dtype))


def _as_it_is(op: task.ComputeOp) -> TileBody:
    del op
    return as_it_is


def as_it_is(k: KernelBuilder, views: Sequence[SSAValue]) -> SSAValue:
    """The first view's tile, whatever the result's type makes of it."""
    return k.add(core.LoadOp(views[0]))


def sum_in_order(k: KernelBuilder, views: Sequence[SSAValue]) -> SSAValue:
    """The body of a kernel that adds tiles from first to last."""
    tiles = [k.add(core.LoadOp(view)) for view in views[:-1]]
    first, *rest = map(k.widen, tiles)
    for tile in rest:
        first = k.add(core.AddOp(first, tile))
    return first


def _pointwise(op: task.PointwiseOp) -> TileBody:
    def body(k: KernelBuilder, views: Sequence[SSAValue]) -> SSAValue:
        tiles = [k.add(core.LoadOp(view)) for view in views[:-1]]
        return k.add(POINTWISE[type(op)](*map(k.widen, tiles)))

    return body


def _matmul(op: task.MatmulOp) -> TileBody:
    def body(k: KernelBuilder, views: Sequence[SSAValue]) -> SSAValue:
        lhs, rhs = (k.add(core.LoadOp(view)) for view in views[:2])
        ndim = len(core.tile_type(lhs).dims)
        if len(core.tile_type(rhs).dims) < ndim:
            rhs = k.add(core.ExpandDimsOp(rhs, ndim))
        return k.add(core.DotOp(lhs, rhs, transpose_b=op.transpose_b is not None))

    return body


def _rms_norm(op: task.RmsNormOp) -> TileBody:
    size = task.spec_of(op.operand).shape[-1]

    def body(k: KernelBuilder, views: Sequence[SSAValue]) -> SSAValue:
        x = k.load(views[0])
        ndim = len(core.tile_type(x).dims)
        squares = k.add(core.SumOp(k.add(core.MulOp(x, x)), ndim - 1))
        mean = k.add(core.DivOp(squares, k.number(max(size, 1), squares)))
        scale = k.add(core.RsqrtOp(k.add(core.AddOp(mean, k.number(op.eps, mean)))))
        normed = k.add(core.MulOp(x, scale))
        if op.gain is None:
            return normed
        gain = k.load(views[1])
        gain = gain if ndim == 1 else k.add(core.ExpandDimsOp(gain, ndim))
        return k.add(core.MulOp(normed, gain))

    return body


def _softmax(op: task.SoftmaxOp) -> TileBody:
    def body(k: KernelBuilder, views: Sequence[SSAValue]) -> SSAValue:
        x = k.load(views[0])
        below = k.add(core.SubOp(x, k.add(core.MaxOp(x, op.dim_index))))
        powers = k.add(core.ExpOp(below))
        return k.add(core.DivOp(powers, k.add(core.SumOp(powers, op.dim_index))))

    return body


def _amax(op: task.AmaxOp) -> TileBody:
    return lambda k, views: k.add(core.MaxOp(k.load(views[0]), op.dim_index))


def _argmax(op: task.ArgmaxOp) -> TileBody:
    def body(k: KernelBuilder, views: Sequence[SSAValue]) -> SSAValue:
        x = k.load(views[0])
        labels = k.add(core.IotaOp(x, op.dim_index, i64))
        if op.labels is not None:
            labels = k.add(core.LoadOp(views[1]))
        return k.add(core.ArgmaxOp(x, labels, op.dim_index))

    return body


def _attention(op: task.AttentionOp) -> TileBody:
    """Of query heads [B, t, R, D] that share one key head [B, C, 1, D].

    The index is the first of the tile's tokens.
    """

    def body(k: KernelBuilder, views: Sequence[SSAValue]) -> SSAValue:
        scores, sees, values = _scores(op, k, views)
        scores = k.add(core.WhereOp(sees, scores, k.number(-math.inf, scores)))
        below = k.add(core.SubOp(scores, k.add(core.MaxOp(scores, 3))))
        powers = k.add(core.ExpOp(below))
        weighted = k.add(core.DotOp(powers, values))
        return k.add(core.DivOp(weighted, k.add(core.SumOp(powers, 3))))

    return body


def _attention_parts(op: task.AttentionPartsOp) -> TileBody:
    """Of a range of places [B, c, 1, D], for query heads [B, 1, R, D].

    The index is the first of its places. There are three results.
    """

    def body(k: KernelBuilder, views: Sequence[SSAValue]) -> None:
        scores, sees, values = _scores(op, k, views)
        scores = k.add(core.WhereOp(sees, scores, k.number(-math.inf, scores)))
        largest = k.add(core.MaxOp(scores, 3))
        powers = k.add(core.ExpOp(k.add(core.SubOp(scores, largest))))
        # Where nothing is seen the largest is -inf, and -inf less that is no number.
        powers = k.add(core.WhereOp(sees, powers, k.number(0, powers)))
        made = (core.DotOp(powers, values), None, core.SumOp(powers, 3))
        for one, view in zip(made, views[-3:], strict=True):
            k.store(largest if one is None else k.add(one), view)

    return body


def _scores(
    op: task.HeadsOp, k: KernelBuilder, views: Sequence[SSAValue]
) -> tuple[SSAValue, SSAValue, SSAValue]:
    """Scores of a tile's rows at its places, which of them a row sees, and values to weigh."""
    tokens = task.spec_of(op.q).shape[1]
    q, keys, values = (k.add(core.LoadOp(view)) for view in views[:3])
    keys, values = (k.add(core.TransposeOp(tile, 1, 2)) for tile in (keys, values))
    scores = k.add(core.DotOp(q, keys, transpose_b=True))
    scores = k.add(core.MulOp(scores, k.number(op.scale, scores)))
    places = k.add(core.IotaOp(scores, 3))
    if isinstance(op, task.AttentionPartsOp):
        places = k.add(core.AddOp(places, k.index(0, places)))
    start = k.number(op.at, places)
    if op.position is not None:
        at = k.cast(k.load(views[3]), i32)
        start = k.add(core.AddOp(start, k.add(core.ExpandDimsOp(at, 4))))
    last = k.add(core.AddOp(start, k.number(tokens - 1, start)))
    sees = within = k.add(core.LeOp(places, last))
    if isinstance(op, task.AttentionOp) and op.causal:
        own = k.add(core.AddOp(k.add(core.IotaOp(q, 1)), k.index(0, start)))
        sees = k.add(core.LeOp(places, k.add(core.AddOp(own, start))))
    # What nobody sees may be anything: even times 0 it must not get into the sum.
    values = k.widen(values)
    rows = k.add(core.TransposeOp(within, 2, 3))
    values = k.add(core.WhereOp(rows, values, k.number(0, values)))
    return scores, sees, values


def _attention_join(op: task.AttentionJoinOp) -> TileBody:
    del op

    def body(k: KernelBuilder, views: Sequence[SSAValue]) -> SSAValue:
        sums, largest, weights = (k.load(view) for view in views[:3])
        below = k.add(core.SubOp(largest, k.add(core.MaxOp(largest, 1))))
        share = k.add(core.ExpOp(below))
        sums, weights = (
            k.add(core.SumOp(k.add(core.MulOp(tile, share)), 1)) for tile in (sums, weights)
        )
        return k.add(core.DivOp(sums, weights))

    return body


def _embedding(op: task.EmbeddingOp) -> TileBody:
    """The index is the first id whose row this rank's part of the table has."""
    del op

    def body(k: KernelBuilder, views: Sequence[SSAValue]) -> SSAValue:
        ids = k.load(views[0])
        return k.add(core.GatherOp(views[1], k.add(core.SubOp(ids, k.index(0, ids)))))

    return body


def _rope(op: task.RopeOp) -> TileBody:
    """The second half times sin is taken from the first, and the first's is added to it."""
    last = len(task.spec_of(op.result).shape) - 1
    half = task.spec_of(op.result).shape[last] // 2

    def body(k: KernelBuilder, views: Sequence[SSAValue]) -> SSAValue:
        x, cos, sin = (k.load(view) for view in views[:3])
        place = k.add(core.IotaOp(x, last))
        first = k.add(core.LeOp(place, k.number(half - 1, place)))
        sign = k.add(core.WhereOp(first, k.number(-1, x), k.number(1, x)))
        other = k.add(core.MulOp(k.add(core.SwapHalvesOp(x, last)), sign))
        return k.add(core.AddOp(k.add(core.MulOp(x, cos)), k.add(core.MulOp(other, sin))))

    return body


def _transpose(op: task.TransposeOp) -> TileBody:
    return lambda k, views: k.add(core.TransposeOp(k.add(core.LoadOp(views[0])), *op.dims))


def _slice(op: task.SliceOp) -> TileBody:
    """From a place at run time on; from a known one it is a box, of which nothing is computed."""
    size = max(task.spec_of(op.result).shape[op.dim_index], 1)

    def body(k: KernelBuilder, views: Sequence[SSAValue]) -> SSAValue:
        at = k.load(views[1])
        at = k.add(core.AddOp(at, k.number(op.at, at)))
        return k.add(core.LoadAtOp(views[0], at, op.dim_index, size))

    return body


def _update(op: task.UpdateOp) -> TileBody:
    """At a place at run time, as `_slice`.

    The index is the first element along `dim` that this rank's part of the state has.
    """

    def body(k: KernelBuilder, views: Sequence[SSAValue]) -> None:
        value, position, state = views
        tile, at = k.add(core.LoadOp(value)), k.load(position)
        at = k.add(core.AddOp(at, k.number(op.at, at)))
        at = k.add(core.SubOp(at, k.index(0, at)))
        k.place(core.StoreAtOp(tile, state, at, op.dim_index))

    return body


INDEXED = (task.HeadsOp, task.EmbeddingOp, task.UpdateOp)
BODIES: dict[type[Operation], Callable[[Any], TileBody]] = {
    task.MatmulOp: _matmul,
    task.RmsNormOp: _rms_norm,
    task.SoftmaxOp: _softmax,
    task.AmaxOp: _amax,
    task.ArgmaxOp: _argmax,
    task.AttentionOp: _attention,
    task.AttentionPartsOp: _attention_parts,
    task.AttentionJoinOp: _attention_join,
    task.EmbeddingOp: _embedding,
    task.RopeOp: _rope,
    task.TransposeOp: _transpose,
    task.SliceOp: _slice,
    task.UpdateOp: _update,
    **dict.fromkeys(POINTWISE, _pointwise),
}
