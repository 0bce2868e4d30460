"""Reduce-scatter and all-reduce: contributions are added in float32, in a fixed order."""

from __future__ import annotations

from collections.abc import Callable

from ditron.passes.collective_gathers import pass_on
from ditron.passes.collective_grids import Collective, Place, Rule
from ditron.passes.grids import GridBuilder
from ditron.plan.expr import Expr, as_expr


def reduce_scatter_push(this: Collective) -> None:
    """Every rank puts its contribution to each owner, who adds what arrives and its own."""
    this.reduce_shard(_scattered(this))


def reduce_scatter_in_place(this: Collective) -> None:
    """Every owner adds the contributions where they lie."""
    this.reduce_shard(lambda peer: Place(this.source, this.me * this.shard, this.rank(peer)))


def reduce_scatter_ring(this: Collective) -> None:
    """A float32 sum for each owner goes round, from owner + 1 to owner, growing by one a hop."""
    _ring_sum(this, as_expr(0))


def _ring_sum(this: Collective, result_at: Expr) -> None:
    own = Place(this.source, this.me * this.shard)
    result = Place(this.target, result_at)
    if this.n == 1:
        this.reduce_shard(lambda _: own, result_at)
        return
    wide = "f32" if this.floating else ""
    sums = this.scratch("sums", (this.n - 1) * this.shard, wide)
    following = this.rank((this.me + 1) % this.n)

    def part(hop: Expr) -> Place:
        return Place(this.source, (this.me - hop - 1) % this.n * this.shard)

    this.sum_tiles(
        "start",
        this.shard,
        lambda _: [part(as_expr(0))],
        lambda _: Place(sums, as_expr(0), following),
    )
    if this.n > 2:
        this.sum_tiles(
            "hop",
            this.shard,
            lambda g: [Place(sums, g["s"] * this.shard), part(g["s"] + 1)],
            lambda g: Place(sums, (g["s"] + 1) * this.shard, following),
            bounds={"s": this.n - 2},
        )
    last = Place(sums, as_expr((this.n - 2) * this.shard))
    this.sum_tiles(
        "finish",
        this.shard,
        lambda _: [last, own],
        lambda _: result,
    )


def all_reduce_one_shot_push(this: Collective) -> None:
    """Every rank puts its whole contribution to all, itself included; each adds for itself."""
    slots = this.scratch("slots", this.n * this.size)

    def ends(grid: GridBuilder) -> tuple[Place, Place]:
        peer = grid.index("peer", (this.me + grid["p"] + 1) % this.n)
        mine = Place(slots, this.me * this.size, this.rank(peer))
        return Place(this.source, as_expr(0)), mine

    this.transfer("push", {"p": this.n}, ends, this.size)
    this.reduce_whole(lambda peer: Place(slots, peer * this.size))


def all_reduce_one_shot_in_place(this: Collective) -> None:
    """Every rank adds all contributions where they lie."""
    this.reduce_whole(lambda peer: Place(this.source, as_expr(0), this.rank(peer)))


def all_reduce_two_shot_push(this: Collective) -> None:
    """A reduce-scatter into each owner's part of the result, then an all-gather of the parts."""
    this.reduce_shard(_scattered(this), this.me * this.shard)
    _gather_parts(this)


def all_reduce_two_shot_in_place(this: Collective) -> None:
    """The same, but owners read the contributions where they lie."""
    part = this.me * this.shard
    this.reduce_shard(lambda peer: Place(this.source, part, this.rank(peer)), part)
    _gather_parts(this)


def all_reduce_ring(this: Collective) -> None:
    """The ring reduce-scatter, then the ring all-gather of the parts."""
    _ring_sum(this, this.me * this.shard)
    pass_on(this)


def _scattered(this: Collective) -> Callable[[Expr], Place]:
    """Put every owner's part to it; where a rank's contribution then lies at its owner."""
    if this.n == 1:
        return lambda peer: Place(this.source, peer * this.shard)
    slots, mine = this.scratch("slots", this.n * this.shard), this.me * this.shard
    this.to_peers(
        "scatter",
        lambda peer, rank: (Place(this.source, peer * this.shard), Place(slots, mine, rank)),
    )
    return lambda peer: Place(slots, peer * this.shard)


def _gather_parts(this: Collective) -> None:
    part = this.me * this.shard
    own = Place(this.target, part)
    this.to_peers("gather", lambda _, rank: (own, Place(this.target, part, rank)))


SUMS: dict[tuple[str, str, str], Rule] = {
    ("reduce_scatter", "mesh", "push"): reduce_scatter_push,
    ("reduce_scatter", "mesh", "in-place"): reduce_scatter_in_place,
    ("reduce_scatter", "ring", "push"): reduce_scatter_ring,
    ("all_reduce", "one-shot", "push"): all_reduce_one_shot_push,
    ("all_reduce", "one-shot", "in-place"): all_reduce_one_shot_in_place,
    ("all_reduce", "two-shot", "push"): all_reduce_two_shot_push,
    ("all_reduce", "two-shot", "in-place"): all_reduce_two_shot_in_place,
    ("all_reduce", "ring", "push"): all_reduce_ring,
}
