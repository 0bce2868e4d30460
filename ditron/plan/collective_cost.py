"""What each algorithm of each collective costs by itself.

Closed forms on top of `plan/cost.py`; times in us. Letters: n ranks, s the bytes of one rank's
shard, c those of a chunk, r the ranks of a node.

| collective | algorithm | a rank sends | in how many steps | and adds |
|---|---|---|---|---|
| all_gather | mesh | (n - 1) s | 1 | |
| | ring | (n - 1) s | n - 1 | |
| | bruck | (n - 1) s | ceil(log2 n) | |
| | hierarchical | (n / r - 1) s to other nodes, (n - n / r) s in its own | 2 | |
| reduce_scatter | mesh | (n - 1) s | 1 | n shards |
| | ring, in float32 | (n - 1) s | n - 1 | n - 1 times 2 shards |
| all_reduce | one-shot | (n - 1) n s | 1 | n tensors |
| | two-shot | 2 (n - 1) s | 2 | n shards |
| | ring, in float32 | 2 (n - 1) s | 2 (n - 1) | n - 1 times 2 shards |

In place, nothing is sent: tiles read peers' memory, at the link's rate unless memory is shared.

Source: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in
MPICH" (2005).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from ditron.plan.cost import (
    NOTHING,
    US_PER_GB_S,
    Link,
    TiledCost,
    arrival_us,
    chunk_us,
    core_share,
    cut,
    far_link,
    is_serial,
    local_copy_us,
    near_link,
    sum_cost,
)
from ditron.plan.machine import LinkKind, Machine
from ditron.plan.tables import DTYPE_BYTES


@dataclass(frozen=True)
class Message:
    """A collective on one rank.

    Attributes:
        kind: "all_gather", "reduce_scatter" or "all_reduce".
        shape: rows and columns of one shard; all dimensions but that of the collective are columns.
        dtype: of its elements.
        ranks: that take part.
        chunk: rows of a transfer.
        tile: rows and columns of a task that adds.
        reads: how often a gathered tensor is read in place, by tiles side by side.
        processes: all ranks of the program, which share the cores of a serial machine.
    """

    kind: str
    shape: tuple[int, int]
    dtype: str
    ranks: int
    chunk: int
    tile: tuple[int, int] = (64, 4096)
    reads: int = 1
    processes: int = 1

    @property
    def shard_bytes(self) -> int:
        return self.shape[0] * self.shape[1] * DTYPE_BYTES[self.dtype]

    @property
    def chunk_bytes(self) -> float:
        rows = min(self.chunk or self.shape[0], self.shape[0])
        return float(max(rows, 1) * self.shape[1] * DTYPE_BYTES[self.dtype])

    @property
    def chunks(self) -> int:
        """Of one shard."""
        return sum(times for _, times in cut(self.shape[0], max(self.chunk or self.shape[0], 1)))


@dataclass(frozen=True)
class Traffic:
    """What a collective asks of one rank.

    Attributes:
        wire_us: its links (on a serial machine its core) are busy.
        steps_us: what latency adds that no chunking hides.
        edge_us: the first chunk's way, or the last one's: what a pipeline cannot hide.
        adds: the additions, on the rank's workers.
        transfers: how many.
    """

    wire_us: float
    steps_us: float
    edge_us: float
    adds: TiledCost = NOTHING
    transfers: int = 0


Rule = Callable[[Machine, Message], Traffic]


def traffic_of(machine: Machine, message: Message, algorithm: str, transfer: str) -> Traffic | None:
    """The price of an algorithm; None where no closed form is known."""
    rule = RULES.get((message.kind, algorithm, transfer))
    if rule is None:
        return None
    if message.ranks == 1 or message.shard_bytes == 0:
        return Traffic(0.0, 0.0, 0.0)
    return rule(machine, message)


def _spread(machine: Machine, this: Message, shards: int = 1) -> Traffic:
    """`shards` shards to each of the others at once."""
    near = min(this.ranks, machine.ranks_a_node) - 1
    far = this.ranks - 1 - near
    each = this.chunks * shards
    link = near_link(machine, this.ranks, near)
    near_us = near * each * chunk_us(machine, this.chunk_bytes, link)
    far_us = far * each * chunk_us(machine, this.chunk_bytes, far_link(machine)) if far else 0.0
    wire_us = near_us + far_us if is_serial(machine) else max(near_us, far_us)
    edge = arrival_us(machine, this.chunk_bytes, far_link(machine) if far else link)
    return Traffic(wire_us, 0.0, edge, transfers=(near + far) * each)


def _slowest(machine: Machine, ranks: int) -> Link:
    """The slowest link of a ring through all ranks."""
    if ranks > machine.ranks_a_node:
        return far_link(machine)
    return near_link(machine, ranks, 1)


def _steps(machine: Machine, this: Message, steps: int, shards: int) -> Traffic:
    """`shards` shards one after another to one peer each, in dependent steps."""
    link = _slowest(machine, this.ranks)
    transfers = shards * this.chunks
    edge = arrival_us(machine, this.chunk_bytes, link)
    latency = edge - chunk_us(machine, this.chunk_bytes, link)
    wire = transfers * chunk_us(machine, this.chunk_bytes, link)
    return Traffic(wire, (steps - 1) * latency, edge, transfers=transfers)


def _with_own(machine: Machine, this: Message, traffic: Traffic) -> Traffic:
    """And the rank's own shard to its place in the gathered tensor."""
    own = local_copy_us(machine, this.shard_bytes)
    return replace(traffic, wire_us=traffic.wire_us + own, transfers=traffic.transfers + 1)


def _remote_us(machine: Machine, ranks: int, size_bytes: float) -> float:
    """Added to reads of peers' memory: nothing where memory is shared."""
    if machine.topology.kind is LinkKind.MEMORY:
        return 0.0
    near = min(ranks, machine.ranks_a_node) - 1
    link = far_link(machine) if near < ranks - 1 else near_link(machine, ranks, near)
    return size_bytes / (link.gbytes_s * US_PER_GB_S) + link.latency_us


def _gather_mesh(machine: Machine, this: Message) -> Traffic:
    return _with_own(machine, this, _spread(machine, this))


def _gather_ring(machine: Machine, this: Message) -> Traffic:
    n = this.ranks
    return _with_own(machine, this, _steps(machine, this, n - 1, n - 1))


def _gather_bruck(machine: Machine, this: Message) -> Traffic:
    n = this.ranks
    return _with_own(machine, this, _steps(machine, this, math.ceil(math.log2(n)), n - 1))


def _gather_hierarchical(machine: Machine, this: Message) -> Traffic:
    n, r = this.ranks, min(this.ranks, machine.ranks_a_node)
    nodes = -(-n // r)
    across = (nodes - 1) * this.chunks
    within = (r - 1) * nodes * this.chunks
    link = near_link(machine, n, r - 1)
    far_us = across * chunk_us(machine, this.chunk_bytes, far_link(machine)) if across else 0.0
    near_us = within * chunk_us(machine, this.chunk_bytes, link)
    wire = far_us + near_us if is_serial(machine) else max(far_us, near_us)
    edge = arrival_us(machine, this.chunk_bytes, link)
    hop = arrival_us(machine, this.chunk_bytes, far_link(machine)) if across else 0.0
    return _with_own(machine, this, Traffic(wire, hop, edge, transfers=across + within))


def _gather_in_place(machine: Machine, this: Message) -> Traffic:
    read = (this.ranks - 1) * this.shard_bytes * this.reads
    remote = _remote_us(machine, this.ranks, read)
    return Traffic(remote, 0.0, machine.costs.signal_us)


def _adds(machine: Machine, this: Message, parts: int, shards: int = 1) -> TiledCost:
    rows, columns = this.shape
    return sum_cost(machine, this.dtype, (rows * shards, columns), this.tile, parts)


def _scatter_mesh(machine: Machine, this: Message) -> Traffic:
    return replace(_spread(machine, this), adds=_adds(machine, this, this.ranks))


def _scatter_in_place(machine: Machine, this: Message) -> Traffic:
    remote = _remote_us(machine, this.ranks, (this.ranks - 1) * this.shard_bytes)
    return Traffic(remote, 0.0, machine.costs.signal_us, _adds(machine, this, this.ranks))


def _wide(this: Message) -> Message:
    """The same with float32 on the wire."""
    return replace(this, dtype="f32")


def _scatter_ring(machine: Machine, this: Message) -> Traffic:
    wide, steps = _wide(this), this.ranks - 1
    moved = _steps(machine, wide, steps, steps)
    each = _adds(machine, wide, 2)
    adds = TiledCost(each.us * steps, each.tile_us, each.tasks * steps)
    return replace(moved, adds=adds)


def _reduce_one_shot(machine: Machine, this: Message) -> Traffic:
    moved = _spread(machine, this, shards=this.ranks)
    own = local_copy_us(machine, this.shard_bytes * this.ranks)
    adds = _adds(machine, this, this.ranks, shards=this.ranks)
    return replace(moved, wire_us=moved.wire_us + own, adds=adds, transfers=moved.transfers + 1)


def _reduce_one_shot_in_place(machine: Machine, this: Message) -> Traffic:
    remote = _remote_us(machine, this.ranks, (this.ranks - 1) * this.shard_bytes * this.ranks)
    adds = _adds(machine, this, this.ranks, shards=this.ranks)
    return Traffic(remote, 0.0, machine.costs.signal_us, adds)


def _both(machine: Machine, first: Traffic, second: Traffic) -> Traffic:
    """A reduce-scatter, then an all-gather of the parts, chunk by chunk."""
    return Traffic(
        first.wire_us + second.wire_us,
        first.steps_us + second.steps_us + second.edge_us,
        first.edge_us,
        first.adds + second.adds,
        first.transfers + second.transfers,
    )


def _reduce_two_shot(machine: Machine, this: Message) -> Traffic:
    return _both(machine, _scatter_mesh(machine, this), _spread(machine, this))


def _reduce_two_shot_in_place(machine: Machine, this: Message) -> Traffic:
    return _both(machine, _scatter_in_place(machine, this), _spread(machine, this))


def _reduce_ring(machine: Machine, this: Message) -> Traffic:
    steps = this.ranks - 1
    return _both(machine, _scatter_ring(machine, this), _steps(machine, this, steps, steps))


RULES: dict[tuple[str, str, str], Rule] = {
    ("all_gather", "mesh", "push"): _gather_mesh,
    ("all_gather", "mesh", "pull"): _gather_mesh,
    ("all_gather", "mesh", "in-place"): _gather_in_place,
    ("all_gather", "ring", "push"): _gather_ring,
    ("all_gather", "bruck", "push"): _gather_bruck,
    ("all_gather", "hierarchical", "push"): _gather_hierarchical,
    ("reduce_scatter", "mesh", "push"): _scatter_mesh,
    ("reduce_scatter", "mesh", "in-place"): _scatter_in_place,
    ("reduce_scatter", "ring", "push"): _scatter_ring,
    ("all_reduce", "one-shot", "push"): _reduce_one_shot,
    ("all_reduce", "one-shot", "in-place"): _reduce_one_shot_in_place,
    ("all_reduce", "two-shot", "push"): _reduce_two_shot,
    ("all_reduce", "two-shot", "in-place"): _reduce_two_shot_in_place,
    ("all_reduce", "ring", "push"): _reduce_ring,
}


def alone_us(machine: Machine, processes: int, traffic: Traffic) -> float:
    """A collective with nothing beside it, in a program of so many ranks."""
    if is_serial(machine):
        busy = traffic.wire_us + traffic.steps_us + traffic.edge_us + traffic.adds.us
        return busy / core_share(machine, processes)
    moved = traffic.wire_us + traffic.steps_us + traffic.edge_us
    return moved + traffic.adds.us
