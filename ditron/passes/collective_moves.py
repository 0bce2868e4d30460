"""All-to-all, broadcast and shift: shards change places, nothing is added."""

from __future__ import annotations

from ditron.passes.collective_grids import Collective, Place, Rule
from ditron.passes.grids import GridBuilder
from ditron.plan.expr import Expr, as_expr, binary


def all_to_all_mesh(this: Collective) -> None:
    """Every rank puts to each peer the peer's part of its shard, the next rank first."""
    _own_part(this)
    this.to_peers("push", lambda peer, rank: _parts(this, peer, rank))


def all_to_all_xor(this: Collective) -> None:
    """In step s ranks whose numbers differ by xor s exchange parts, so that pairs talk in turn."""
    _own_part(this)
    steps = 1 << (this.n - 1).bit_length()
    if this.n == 1:
        return

    def ends(grid: GridBuilder) -> tuple[Place, Place]:
        peer = grid.index("peer", binary("min", _partner(this, grid), this.n - 1))
        return _parts(this, peer, this.rank(peer))

    def where(grid: GridBuilder) -> Expr:
        return binary("lt", _partner(this, grid), this.n)

    this.transfer("exchange", {"s": steps - 1}, ends, where=where)


def _partner(this: Collective, grid: GridBuilder) -> Expr:
    return binary("xor", this.me, grid["s"] + 1)


def _own_part(this: Collective) -> None:
    source, target = _parts(this, this.me, None)
    this.transfer("own", {}, lambda _: (source, target))


def _parts(this: Collective, peer: Expr, rank: Expr | None) -> tuple[Place, Place]:
    """A peer's part of this rank's shard, and where it goes."""
    source = Place(this.source, peer * this.shard, other=as_expr(0))
    target = Place(this.target, as_expr(0), rank, other=this.me * this.other_shard)
    return source, target


def broadcast_flat(this: Collective) -> None:
    """The root puts its shard to every other rank."""
    _at_root(this)

    def ends(grid: GridBuilder) -> tuple[Place, Place]:
        peer = grid.index("peer", (this.me + grid["p"] + 1) % this.n)
        return Place(this.source, as_expr(0)), Place(this.target, as_expr(0), this.rank(peer))

    if this.n > 1:
        root = binary("eq", this.me, this.root)
        this.transfer("flat", {"p": this.n - 1}, ends, where=lambda _: root)


def broadcast_tree(this: Collective) -> None:
    """In step s each rank that has the shard puts it to the one 2^s further: a binomial tree."""
    _at_root(this)
    steps = [1 << s for s in range((this.n - 1).bit_length())]

    def ends(grid: GridBuilder) -> tuple[Place, Place]:
        far = grid.table("far", steps, [grid["s"]])
        peer = grid.index("peer", (this.me + far) % this.n)
        return Place(this.target, as_expr(0)), Place(this.target, as_expr(0), this.rank(peer))

    def where(grid: GridBuilder) -> Expr:
        far = grid.table("step", steps, [grid["s"]])
        place = _place(this)
        return binary("and", binary("lt", place, far), binary("lt", place + far, this.n))

    if steps:
        this.transfer("tree", {"s": len(steps)}, ends, where=where)


def broadcast_chain(this: Collective) -> None:
    """Every rank hands each chunk on to the next one as soon as it has it."""
    _at_root(this)
    following = this.rank((this.me + 1) % this.n)
    ends = Place(this.target, as_expr(0)), Place(this.target, as_expr(0), following)
    if this.n > 1:
        this.transfer(
            "chain",
            {"h": this.n - 1},
            lambda _: ends,
            where=lambda grid: binary("eq", _place(this), grid["h"]),
        )


def _at_root(this: Collective) -> None:
    """The root's own shard becomes its result."""
    ends = Place(this.source, as_expr(0)), Place(this.target, as_expr(0))
    root = binary("eq", this.me, this.root)
    this.transfer("root", {}, lambda _: ends, where=lambda _: root)


def _place(this: Collective) -> Expr:
    """How many ranks after the root this one is."""
    return (this.me - this.root) % this.n


def shift_push(this: Collective) -> None:
    """Every rank puts its shard to the rank `by` further."""
    peer = this.rank((this.me + this.by) % this.n)
    at = None if this.by % this.n == 0 else peer
    ends = Place(this.source, as_expr(0)), Place(this.target, as_expr(0), at)
    this.transfer("shift", {}, lambda _: ends)


MOVES: dict[tuple[str, str, str], Rule] = {
    ("all_to_all", "mesh", "push"): all_to_all_mesh,
    ("all_to_all", "pairwise-xor", "push"): all_to_all_xor,
    ("broadcast", "flat", "push"): broadcast_flat,
    ("broadcast", "tree", "push"): broadcast_tree,
    ("broadcast", "chain", "push"): broadcast_chain,
    ("shift", "mesh", "push"): shift_push,
}
