"""decompose-collectives: each collective becomes grids of chunk transfers and reductions.

    device.collective all_gather %x -> %xg dim 0 size 512 choice #task.choice<mesh push chunk 64>
    ... -> device.grid @xg_own engine copy in (%c = 2) { ... device.copy ... } device.grid @xg_push
    engine copy in (%p = 3, %c = 2) {
      %peer = device.index (%me + %p + 1) mod 4
      %src = device.view %x[%c * 64, 0] [64, 256] : ...
      %dst = device.view %xg[%me * 128 + %c * 64, 0] [64, 256] at %peer : ...
      device.put %src -> %dst
    }

Needs: device IR with `device.collective`. Ensures: none is left; buffers that the host fills or
reads and that peers touch are handed over by `device.acquire` at the start of a launch and
`device.release` at its end.

In place, an all_gather moves nothing: the views of its users turn to the owner's shard (`at` the
owner), and the gathered buffer disappears. A reduction adds float32 in the order owner + 1, ...,
owner where one rank owns the result, and 0, ..., n - 1 where every rank adds for itself (one-shot),
so that all replicas hold the same bits.

Source: the algorithms are the mesh and ring collectives of Thakur, Rabenseifner and Gropp,
"Optimization of Collective Communication Operations in MPICH" (2005); the order of addition is
ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from ditron.analysis.symbols import device_program
from ditron.errors import PlanError
from ditron.ir import device
from ditron.ir.index import Ssa
from ditron.ir.locations import op_location
from ditron.passes.collective_grids import Collective, Place
from ditron.passes.grids import GridBuilder, Names, names_in
from ditron.plan.expr import Binary, Const, Expr, as_expr, binary
from ditron.plan.tables import Role


@dataclass(frozen=True)
class DecomposeCollectivesPass(ModulePass):
    """See the module's docstring.

    `chunk` > 0 overrides every choice (rows of a transfer); `node_ranks` is how many ranks share a
    node, for hierarchical algorithms (0: all of them).
    """

    name = "decompose-collectives"

    chunk: int = 0
    node_ranks: int = 0

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        program = device_program(op)
        names = names_in(program)
        for child in list(program.body.block.ops):
            if isinstance(child, device.CollectiveOp):
                decompose(Collective(child, program, op, names, self.chunk, self.node_ranks))
        _hand_over_shared_buffers(program, names)


def decompose(this: Collective) -> None:
    """Replace one collective by its grids."""
    choice = this.op.choice
    key = (this.op.kind.data, choice.algorithm, choice.transfer)
    rule = DECOMPOSITIONS.get(key)
    if rule is None:
        raise PlanError(f"no way to decompose {' '.join(key)}", op_location(this.op))
    rule(this)
    this.op.detach()
    this.op.erase()


def all_gather_push(this: Collective) -> None:
    """Every rank puts its shard to each peer, the next rank first."""
    this.copy_own_shard()
    own, place = Place(this.source, as_expr(0)), this.me * this.shard
    this.to_peers("push", lambda _, rank: (own, Place(this.target, place, rank)))


def all_gather_pull(this: Collective) -> None:
    """Every rank gets each peer's shard, the next rank's first."""
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
    _ring(this)


def _ring(this: Collective) -> None:
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

    def extent(hop: Expr) -> Expr:
        return this.extent((this.me - hop - 1) % this.n)

    this.sum_tiles(
        "start",
        this.shard,
        lambda _: [part(as_expr(0))],
        lambda _: Place(sums, as_expr(0), following),
        extent=lambda _: extent(as_expr(0)),
    )
    if this.n > 2:
        this.sum_tiles(
            "hop",
            this.shard,
            lambda g: [Place(sums, g["s"] * this.shard), part(g["s"] + 1)],
            lambda g: Place(sums, (g["s"] + 1) * this.shard, following),
            extent=lambda g: extent(g["s"] + 1),
            bounds={"s": this.n - 2},
        )
    last = Place(sums, as_expr((this.n - 2) * this.shard))
    this.sum_tiles(
        "finish",
        this.shard,
        lambda _: [last, own],
        lambda _: result,
        extent=lambda _: this.extent(this.me),
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
    _ring(this)


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


DECOMPOSITIONS: dict[tuple[str, str, str], Callable[[Collective], None]] = {
    ("all_gather", "mesh", "push"): all_gather_push,
    ("all_gather", "mesh", "pull"): all_gather_pull,
    ("all_gather", "mesh", "in-place"): all_gather_in_place,
    ("all_gather", "ring", "push"): all_gather_ring,
    ("all_gather", "bruck", "push"): all_gather_bruck,
    ("all_gather", "hierarchical", "push"): all_gather_hierarchical,
    ("reduce_scatter", "mesh", "push"): reduce_scatter_push,
    ("reduce_scatter", "mesh", "in-place"): reduce_scatter_in_place,
    ("reduce_scatter", "ring", "push"): reduce_scatter_ring,
    ("all_reduce", "one-shot", "push"): all_reduce_one_shot_push,
    ("all_reduce", "one-shot", "in-place"): all_reduce_one_shot_in_place,
    ("all_reduce", "two-shot", "push"): all_reduce_two_shot_push,
    ("all_reduce", "two-shot", "in-place"): all_reduce_two_shot_in_place,
    ("all_reduce", "ring", "push"): all_reduce_ring,
}


def _hand_over_shared_buffers(program: device.ProgramOp, names: Names) -> None:
    """Acquire and release the host's buffers that peers touch."""
    block = program.body.block
    for buffer in [op for op in block.ops if isinstance(op, device.BufferOp)]:
        views = (use.operation for use in buffer.result.uses)
        touched = any(isinstance(v, device.ViewOp) and v.at is not None for v in views)
        if buffer.role.data == Role.SCRATCH or not touched:
            continue
        first_grid = next(op for op in block.ops if isinstance(op, device.GridOp))
        for verb, op in (("acquire", device.AcquireOp), ("release", device.ReleaseOp)):
            name = names.fresh(f"{verb}_{buffer.buffer_name.data}")
            grid = GridBuilder(name, "host", {}, buffer.location)
            grid.add(op(buffer.result))
            if verb == "acquire" and _stands_before(buffer, first_grid):
                block.insert_op_before(grid.finish(), first_grid)
            elif verb == "acquire":
                block.insert_op_after(grid.finish(), buffer)
            else:
                block.add_op(grid.finish())


def _stands_before(op: Operation, other: Operation) -> bool:
    at = op.next_op
    while at is not None and at is not other:
        at = at.next_op
    return at is other
