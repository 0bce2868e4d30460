"""What a collective asks of one rank's links and workers; the pieces that algorithms are made of.

Times in us, on top of `plan/cost.py`.
"""

from __future__ import annotations

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


def spread(machine: Machine, this: Message, shards: int = 1) -> Traffic:
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


def in_steps(machine: Machine, this: Message, steps: int, shards: int) -> Traffic:
    """`shards` shards one after another to one peer each, in dependent steps."""
    link = _slowest(machine, this.ranks)
    transfers = shards * this.chunks
    edge = arrival_us(machine, this.chunk_bytes, link)
    latency = edge - chunk_us(machine, this.chunk_bytes, link)
    wire = transfers * chunk_us(machine, this.chunk_bytes, link)
    return Traffic(wire, (steps - 1) * latency, edge, transfers=transfers)


def with_own(machine: Machine, this: Message, traffic: Traffic) -> Traffic:
    """And the rank's own shard to its place in the gathered tensor."""
    own = local_copy_us(machine, this.shard_bytes)
    return replace(traffic, wire_us=traffic.wire_us + own, transfers=traffic.transfers + 1)


def remote_us(machine: Machine, ranks: int, size_bytes: float) -> float:
    """Added to reads of peers' memory: nothing where memory is shared."""
    if machine.topology.kind is LinkKind.MEMORY:
        return 0.0
    near = min(ranks, machine.ranks_a_node) - 1
    link = far_link(machine) if near < ranks - 1 else near_link(machine, ranks, near, copied=False)
    return size_bytes / (link.gbytes_s * US_PER_GB_S) + link.latency_us


def additions(machine: Machine, this: Message, parts: int, shards: int = 1) -> TiledCost:
    """The sum of `parts` contributions, each of `shards` shards."""
    rows, columns = this.shape
    return sum_cost(machine, this.dtype, (rows * shards, columns), this.tile, parts)


def alone_us(machine: Machine, processes: int, traffic: Traffic) -> float:
    """A collective with nothing beside it, in a program of so many ranks."""
    if is_serial(machine):
        # While a rank waits for a chunk others have its core.
        busy = (traffic.wire_us + traffic.adds.us) / core_share(machine, processes)
        return busy + traffic.steps_us + machine.costs.signal_us
    moved = traffic.wire_us + traffic.steps_us + traffic.edge_us
    return moved + traffic.adds.us
