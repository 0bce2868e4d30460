"""All-gather: every rank's shard goes to every rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from ditron.ir import device
from ditron.ir.index import Ssa
from ditron.passes.collective_grids import Collective, Place, Rule
from ditron.passes.grids import GridBuilder
from ditron.passes.own_shard import read_own_shard
from ditron.plan.expr import Binary, Const, Expr, as_expr, binary


def all_gather_push(this: Collective) -> None:
    """Every rank puts its shard to each peer, the next rank first."""
    if not read_own_shard(this):
        this.copy_own_shard()
    own, place = Place(this.source, as_expr(0)), this.me * this.shard
    this.to_peers("push", lambda _, rank: (own, Place(this.target, place, rank)))


def all_gather_pull(this: Collective) -> None:
    """Every rank gets each peer's shard, the next rank's first."""
    if not read_own_shard(this):
        this.copy_own_shard()
    this.to_peers(
        "pull",
        lambda peer, rank: (
            Place(this.source, as_expr(0), rank),
            Place(this.target, peer * this.shard),
        ),
    )


def all_gather_ring(this: Collective) -> None:
    """In step s every rank hands on the shard of the rank s before it."""
    this.copy_own_shard()
    pass_on(this)


def pass_on(this: Collective) -> None:
    """Shards that stand in their places of the result go round the ring."""

    def ends(grid: GridBuilder) -> tuple[Place, Place]:
        owner = grid.index("owner", (this.me - grid["s"]) % this.n)
        start, following = owner * this.shard, this.rank((this.me + 1) % this.n)
        return Place(this.target, start), Place(this.target, start, following)

    if this.n > 1:
        this.transfer("ring", {"s": this.n - 1}, ends)


def all_gather_bruck(this: Collective) -> None:
    """In step s every rank hands the 2^s shards that it has to the rank 2^s before it.

    Source: Bruck et al., "Efficient Algorithms for All-to-All Communications in Multiport
    Message-Passing Systems" (1997), for any number of ranks.
    """
    this.copy_own_shard()
    steps = [1 << s for s in range((this.n - 1).bit_length())]
    if not steps:
        return

    def ends(grid: GridBuilder) -> tuple[Place, Place]:
        far = grid.table("far", steps, [grid["s"]])
        start = (this.me + grid["j"]) % this.n * this.shard
        peer = grid.index("peer", (this.me - far) % this.n)
        return Place(this.target, start), Place(this.target, start, this.rank(peer))

    def where(grid: GridBuilder) -> Expr:
        sent = [min(step, this.n - step) for step in steps]
        return binary("lt", grid["j"], grid.table("sent", sent, [grid["s"]]))

    widest = max(min(step, this.n - step) for step in steps)
    this.transfer("bruck", {"s": len(steps), "j": widest}, ends, where=where)


def all_gather_hierarchical(this: Collective) -> None:
    """Every shard goes to one rank of each other node, which hands it on within the node."""
    this.copy_own_shard()
    node = Nodes(this.n, this.node_ranks)
    if node.count > 1:
        across = [
            [node.landing(r, node.other(r, g)) for g in range(node.count - 1)] for r in node.ranks
        ]
        mine = this.me * this.shard

        def abroad(grid: GridBuilder) -> tuple[Place, Place]:
            peer = grid.table("peer", across, [this.me, grid["g"]])
            return Place(this.source, as_expr(0)), Place(this.target, mine, this.rank(peer))

        this.transfer("across", {"g": node.count - 1}, abroad)
    held = [node.held(r) for r in node.ranks]
    most = max(map(len, held))
    neighbours = [node.neighbours(r) for r in node.ranks]
    widest = max(map(len, neighbours))
    if not widest:
        return

    def within(grid: GridBuilder) -> tuple[Place, Place]:
        owner = grid.table("owner", _padded(held, most), [this.me, grid["h"]])
        peer = grid.table("peer", _padded(neighbours, widest), [this.me, grid["p"]])
        start = owner * this.shard
        return Place(this.target, start), Place(this.target, start, this.rank(peer))

    def where(grid: GridBuilder) -> Expr:
        shards = grid.table("shards", [len(h) for h in held], [this.me])
        peers = grid.table("peers", [len(p) for p in neighbours], [this.me])
        return binary("and", binary("lt", grid["h"], shards), binary("lt", grid["p"], peers))

    this.transfer("within", {"h": most, "p": widest}, within, where=where)


@dataclass(frozen=True)
class Nodes:
    """Ranks 0..n-1 on nodes of `size`, the last one perhaps smaller."""

    n: int
    size: int

    @property
    def ranks(self) -> range:
        return range(self.n)

    @property
    def count(self) -> int:
        return -(-self.n // self.size)

    def other(self, rank: int, g: int) -> int:
        """The g-th node after a rank's own."""
        return (rank // self.size + g + 1) % self.count

    def landing(self, rank: int, node: int) -> int:
        """The rank of another node that a rank's shard goes to."""
        there = min(self.size, self.n - node * self.size)
        return node * self.size + rank % self.size % there

    def held(self, rank: int) -> list[int]:
        """The shards that a rank hands on in its node: its own, then those that land there."""
        node = rank // self.size
        foreign = [r for r in self.ranks if r // self.size != node]
        return [rank, *(r for r in foreign if self.landing(r, node) == rank)]

    def neighbours(self, rank: int) -> list[int]:
        """The other ranks of a rank's node, the next one first."""
        base = rank // self.size * self.size
        there = min(self.size, self.n - base)
        return [base + (rank - base + j) % there for j in range(1, there)]


def _padded(rows: Sequence[Sequence[int]], width: int) -> list[list[int]]:
    return [[*row, *[0] * (width - len(row))] for row in rows]


def all_gather_in_place(this: Collective) -> None:
    """Turn every view of the gathered buffer to the shard where it lies."""
    gathered = this.target.owner
    assert isinstance(gathered, device.BufferOp)
    for use in list(this.target.uses):
        if isinstance(use.operation, device.ViewOp):
            _turn_to_shard(use.operation, this)
    this.op.operands[1] = this.source
    gathered.detach()
    gathered.erase()


def _turn_to_shard(view: device.ViewOp, this: Collective) -> None:
    grid = view.parent_op()
    assert isinstance(grid, device.GridOp)
    bounds: dict[SSAValue, int] = dict(zip(grid.body.block.args, grid.dims, strict=True))
    offsets = list(view.offset_exprs)
    owner, offsets[this.dim] = split_at_shards(offsets[this.dim], this.shard, bounds)
    dims = view.result.type.dims
    turned = device.ViewOp(this.source, offsets, view.size_exprs, dims, this.rank(owner))
    turned.location = view.location
    grid.body.block.insert_op_before(turned, view)
    view.result.replace_all_uses_with(turned.result)
    view.detach()
    view.erase()


def split_at_shards(offset: Expr, shard: int, bounds: Mapping[SSAValue, int]) -> tuple[Expr, Expr]:
    """(offset floordiv shard, offset mod shard), simplified where the offset says it plainly."""
    if shard == 1:
        return offset, as_expr(0)
    match offset:
        case Binary("*", owner, Const(q)) if q == shard:
            return owner, as_expr(0)
        case Binary("+", Binary("*", owner, Const(q)), rest) if q == shard:
            if _top(rest, bounds) < shard:
                return owner, rest
        case _:
            pass
    return offset // shard, offset % shard


def _top(expr: Expr, bounds: Mapping[SSAValue, int]) -> float:
    """The largest value of a sum of products of coordinates; infinite if it is anything else."""
    match expr:
        case Const(value):
            return value
        case Ssa(value=value) if value in bounds:
            return bounds[value] - 1
        case Binary("*", lhs, rhs):
            return _top(lhs, bounds) * _top(rhs, bounds)
        case Binary("+", lhs, rhs):
            return _top(lhs, bounds) + _top(rhs, bounds)
        case _:
            return float("inf")


GATHERS: dict[tuple[str, str, str], Rule] = {
    ("all_gather", "mesh", "push"): all_gather_push,
    ("all_gather", "mesh", "pull"): all_gather_pull,
    ("all_gather", "mesh", "in-place"): all_gather_in_place,
    ("all_gather", "ring", "push"): all_gather_ring,
    ("all_gather", "bruck", "push"): all_gather_bruck,
    ("all_gather", "hierarchical", "push"): all_gather_hierarchical,
}
