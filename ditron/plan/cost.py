"""What compute and transfers cost on a machine, in closed form.

Pure functions of a machine's figures; times in us, sizes in bytes, shapes in elements of what one
rank holds. A *serial* machine (`cores` > 0) runs all lanes of a rank in turn on one core, and ranks
share the cores: costs add up. Elsewhere arithmetic, loads and transfers go on at once: the greatest
counts. `plan/collective_cost.py` prices collectives with these, `analysis/timeline.py` tasks.

Source: the forms are roofline and latency-bandwidth models (Williams, Waterman, Patterson 2009;
Hockney 1994); the figures are those of the machine file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from ditron.plan.links import grid_share
from ditron.plan.machine import LinkKind, Machine
from ditron.plan.tables import DTYPE_BYTES
from ditron.plan.waves import Waves

Number = TypeVar("Number", float, np.ndarray)

US_PER_GB_S = 1e3  # bytes a us at 1 GB/s
US_PER_TFLOP_S = 1e6  # flops a us at 1 TFLOP/s

SATURATING_WORKERS = 16
"""Workers that fill a link between them when tasks read peers' memory (measured on H100)."""


def is_serial(machine: Machine) -> bool:
    """Whether a rank's lanes take turns on one core."""
    return machine.cores > 0


def core_share(machine: Machine, ranks: int) -> float:
    """The part of a core that each rank has; 1 where ranks have devices of their own."""
    return min(1.0, machine.cores / ranks) if is_serial(machine) else 1.0


def dot_us(machine: Machine, dtype: str, flops: Number, size_bytes: Number) -> Number:
    """One tile of a product on one worker.

    Args:
        machine: where.
        dtype: of the operands; one that the machine does not multiply is widened to float32.
        flops: 2 M N K of the tile.
        size_bytes: of operands and result as they are stored.
    """
    rates, workers = machine.rates, machine.workers
    tflops = rates.matrix_tflops.get(dtype, rates.matrix_tflops["f32"])
    arithmetic = flops * (workers / (tflops * US_PER_TFLOP_S))
    wide = DTYPE_BYTES["f32"] if dtype not in rates.matrix_tflops else DTYPE_BYTES[dtype]
    widened = size_bytes * (wide / DTYPE_BYTES[dtype])
    loads = widened * (workers / (rates.operand_gbytes_s * US_PER_GB_S))
    if is_serial(machine):
        return arithmetic + loads + _convert_us(machine, dtype, size_bytes) + machine.costs.task_us
    return _greatest(arithmetic, loads) + machine.costs.task_us


def fetch_us(machine: Machine, size_bytes: float) -> float:
    """The least that a product takes to read from memory what all its tiles read between them.

    Of a few rows it takes about that; of many, operands come from the cache. 0 where cores pack
    operands: there it is part of their rate.
    """
    if is_serial(machine):
        return 0.0
    return size_bytes / (machine.rates.memory_gbytes_s * US_PER_GB_S)


def stream_us(machine: Machine, dtype: str, size_bytes: Number) -> Number:
    """One tile that is not a product (pointwise, or a sum of contributions) on one worker.

    Args:
        machine: where.
        dtype: of what is read and written; other than f32, it is widened and rounded.
        size_bytes: read and written, together.
    """
    rate = machine.rates.memory_gbytes_s * US_PER_GB_S / machine.workers
    converted = _convert_us(machine, dtype, size_bytes)
    return size_bytes * (1 / rate) + converted + machine.costs.task_us


def pointwise_us(machine: Machine, elements: Number) -> Number:
    """What is computed on a tile besides products, by one worker; `elements` of all steps.

    A core takes each step from its cache and back, a GPU works in registers.
    """
    if is_serial(machine):
        return elements * (2 * DTYPE_BYTES["f32"] / (machine.rates.memory_gbytes_s * US_PER_GB_S))
    a_us = machine.rates.matrix_tflops["f32"] * US_PER_TFLOP_S / machine.workers
    return elements * (2 / a_us)


def _convert_us(machine: Machine, dtype: str, size_bytes: Number) -> Number:
    rate = machine.rates.convert_gelements_s
    if dtype == "f32" or rate == 0:
        return size_bytes * 0.0
    return size_bytes * (machine.workers / (DTYPE_BYTES[dtype] * rate * US_PER_GB_S))


def _greatest(a: Number, b: Number) -> Number:
    return np.maximum(a, b) if isinstance(a, np.ndarray) else max(a, b)


@dataclass(frozen=True)
class Link:
    """A way between ranks: what one rank sends on it, GB/s, and the least time, us."""

    gbytes_s: float
    latency_us: float


def near_link(machine: Machine, ranks: int, peers: int, *, copied: bool = True) -> Link:
    """What a rank sends within its node while all ranks send to `peers` peers each at once.

    By copy lanes; or, not `copied`, as tasks read and write peers' memory.
    """
    topology, copy = machine.topology, machine.engines["copy"]
    rate = topology.gbytes_s
    if topology.kind is LinkKind.MESH:
        rate *= max(peers, 1)
    if topology.kind is LinkKind.GRID:
        rate *= grid_share(machine, ranks, peers)
    if topology.shared_gbytes_s:
        rate = min(rate, topology.shared_gbytes_s / max(ranks, 1))
    if copy.gbytes_s and copied:
        rate = min(rate, copy.gbytes_s * min(copy.lanes, max(peers, 1)))
    return Link(rate, topology.latency_us)


def far_link(machine: Machine) -> Link:
    """What a rank sends to other nodes."""
    network = machine.topology.network
    if network is None:
        return near_link(machine, machine.max_ranks, 1)
    return Link(network.gbytes_s, network.latency_us)


def chunk_us(machine: Machine, size_bytes: float, link: Link) -> float:
    """One transfer among many on its lane: how long until the next one.

    The start of a transfer overlaps with the one before it, but for serial machines.
    """
    moving = size_bytes / (link.gbytes_s * US_PER_GB_S)
    if is_serial(machine):
        return moving + machine.costs.task_us
    return max(moving, machine.engines["copy"].start_us)


def arrival_us(machine: Machine, size_bytes: float, link: Link) -> float:
    """From when one transfer may start until a waiter goes on."""
    start = machine.engines["copy"].start_us + link.latency_us + machine.costs.signal_us
    return start + chunk_us(machine, size_bytes, link)


def local_copy_us(machine: Machine, size_bytes: Number) -> Number:
    """A copy within a rank's memory."""
    if is_serial(machine):
        return size_bytes * (1 / (machine.topology.gbytes_s * US_PER_GB_S)) + machine.costs.task_us
    moved = size_bytes * (2 / (machine.rates.memory_gbytes_s * US_PER_GB_S))
    start = moved * 0.0 + machine.engines["copy"].start_us
    return _greatest(moved, start)


@dataclass(frozen=True)
class GemmShape:
    """A product on one rank: rows [M], columns [N], summed over [K], and its dtype.

    `shards` > 1: rows are cut at that many shard boundaries, and no tile straddles one.
    """

    m: int
    n: int
    k: int
    dtype: str
    shards: int = 1

    @property
    def weight_bytes(self) -> int:
        """The operand that all rows share."""
        return self.k * self.n * DTYPE_BYTES[self.dtype]

    @property
    def operand_bytes(self) -> int:
        """Both operands."""
        return self.weight_bytes + self.m * self.k * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True)
class TiledCost:
    """A grid of tiles on one rank: in all, of one full tile, and how many there are.

    `us` is with all of the rank's workers but on the rank's own core: see `core_share`.
    """

    us: float
    tile_us: float
    tasks: int

    def __add__(self, other: TiledCost) -> TiledCost:
        return TiledCost(
            self.us + other.us, max(self.tile_us, other.tile_us), self.tasks + other.tasks
        )


NOTHING = TiledCost(0.0, 0.0, 0)


def gemm_cost(machine: Machine, shape: GemmShape, tile: Sequence[int]) -> TiledCost:
    """A product by tiles of [rows, columns], each over all of K.

    Workers run in waves: with one wave not full, the machine's rate is not reached.
    """
    rows = _worked(machine, -(-shape.m // shape.shards), tile[0])
    total, tasks, largest = 0.0, 0, 0.0
    for m, times in rows:
        down = times * shape.shards
        for n, across in _worked(machine, shape.n, tile[1]):
            one = _tile_us(machine, shape, m, n)
            total += one * down * across
            tasks += down * across
            largest = max(largest, one)
    us = max(in_waves(machine, total, largest, tasks), fetch_us(machine, shape.operand_bytes))
    return TiledCost(us, largest, tasks)


def split_cost(machine: Machine, shape: GemmShape, tile: Sequence[int]) -> TiledCost:
    """The same where no collective stands beside it: `split-waves` may cut its last wave finer."""
    whole = gemm_cost(machine, shape, tile)
    waves = gemm_waves(machine, shape, tile, machine.workers)
    if waves is None or not waves.pays:
        return whole
    return replace(whole, us=waves.split_us)


def _tile_us(machine: Machine, shape: GemmShape, rows: int, columns: int) -> float:
    """One tile of a product, over all of K."""
    m, n, k = rows, columns, shape.k
    size_bytes = float(DTYPE_BYTES[shape.dtype] * (m * k + k * n + m * n))
    return dot_us(machine, shape.dtype, 2.0 * m * n * k, size_bytes)


def gemm_waves(
    machine: Machine, shape: GemmShape, tile: Sequence[int], workers: int
) -> Waves | None:
    """A product's tiles on `workers` workers, where its last wave may be cut finer."""
    height, width = tile
    half = (height, width // 2)
    if is_serial(machine) or shape.shards > 1 or half not in machine.tiles:
        return None
    return Waves(
        tiles=(-(-shape.m // height), -(-shape.n // width)),
        halves=-(-shape.n // half[1]),
        tile_us=_tile_us(machine, shape, height, width),
        half_us=_tile_us(machine, shape, *half),
        next_us=machine.costs.launch_us,
        workers=workers,
    )


def sum_cost(
    machine: Machine, dtype: str, shape: Sequence[int], tile: Sequence[int], parts: int
) -> TiledCost:
    """The sum of `parts` contributions of a shape [rows, columns], by tiles."""
    total, tasks, largest = 0.0, 0, 0.0
    for m, down in cut(shape[0], tile[0]):
        for n, across in cut(shape[1], tile[1]):
            size_bytes = float(DTYPE_BYTES[dtype] * m * n * (parts + 1))
            one = stream_us(machine, dtype, size_bytes)
            total += one * down * across
            tasks += down * across
            largest = max(largest, one)
    return TiledCost(in_waves(machine, total, largest, tasks), largest, tasks)


def cut(size: int, block: int) -> list[tuple[int, int]]:
    """(elements, how many such) of the blocks that a dimension is cut into."""
    whole, rest = divmod(size, block)
    return [(b, times) for b, times in ((block, whole), (rest, 1 if rest else 0)) if times]


def _worked(machine: Machine, size: int, block: int) -> list[tuple[int, int]]:
    """`cut` as it is worked on: a GPU multiplies whole blocks, with zeros beyond the end."""
    parts = cut(size, block)
    whole = is_serial(machine) or len(parts) < 2
    return parts if whole else [(block, sum(times for _, times in parts))]


def in_waves(machine: Machine, total: float, largest: float, tasks: int) -> float:
    """`total` us of tasks on a rank's workers, none of them longer than `largest`."""
    workers = machine.workers
    if workers == 1 or not tasks:
        return total
    return max(total / workers, -(-tasks // workers) * (total / tasks), largest)


def spread_factor(machine: Machine, weight_bytes: float, tile_rows_together: float) -> float:
    """How much longer a product takes whose tiles start `tile_rows_together` rows of tiles at once.

    Workers that do not start together read the other operand again, where it is larger than the
    cache (see `Cache`).
    """
    cache = machine.cache
    if weight_bytes <= cache.bytes or cache.spread_loss == 0:
        return 1.0
    return 1.0 + cache.spread_loss * max(tile_rows_together, 1.0) ** -cache.spread_power
