"""What a collective costs together with the products beside it: overlapped, or one after another.

Times in us. Tile by tile, a product starts with what is there and a collective with what is made;
what no pipeline hides is the way of its first or last chunk. On a serial machine (`plan/cost.py`)
nothing overlaps, but ranks take turns on the cores, so that nobody waits for long either.
"""

from __future__ import annotations

from dataclasses import dataclass

from ditron.plan.cost import TiledCost, core_share, is_serial
from ditron.plan.machine import Machine
from ditron.plan.traffic import Message, Traffic, alone_us


@dataclass(frozen=True)
class Price:
    """A collective with the products beside it, us: overlapped tile by tile, and one after another.

    `compute_us` is the products alone, `transfer_us` the collective alone.
    """

    overlapped_us: float
    in_turn_us: float
    compute_us: float
    transfer_us: float


def gather_price(
    machine: Machine, message: Message, traffic: Traffic, gemm: TiledCost, slowdown: float = 1.0
) -> Price:
    """Products whose rows (or columns) arrive by an all-gather.

    Args:
        machine: where.
        message: the all-gather.
        traffic: its price by some algorithm.
        gemm: the products together.
        slowdown: how much longer the products take for starting chunk by chunk (`spread_factor`).
    """
    share, launch = core_share(machine, message.processes), machine.costs.launch_us
    alone, compute = alone_us(machine, message.processes, traffic), gemm.us / share
    in_turn = 2 * launch + alone + compute
    if is_serial(machine):
        return Price(launch + alone + compute, in_turn, compute, alone)
    slowed = compute * slowdown
    chunks = max(message.chunks * message.ranks, 1)
    last = max(slowed / chunks, gemm.tile_us)
    arrival = traffic.wire_us + traffic.steps_us + traffic.edge_us
    return Price(launch + max(slowed, arrival + last), in_turn, compute, alone)


def in_turn_price(machine: Machine, message: Message, traffic: Traffic, gemm: TiledCost) -> Price:
    """Products that need all of what is gathered (it is summed over): nothing overlaps."""
    share, launch = core_share(machine, message.processes), machine.costs.launch_us
    alone, compute = alone_us(machine, message.processes, traffic), gemm.us / share
    return Price(launch + alone + compute, 2 * launch + alone + compute, compute, alone)


def scatter_price(machine: Machine, message: Message, traffic: Traffic, gemm: TiledCost) -> Price:
    """Products whose result is reduced, scattered or not."""
    share, launch = core_share(machine, message.processes), machine.costs.launch_us
    alone, compute = alone_us(machine, message.processes, traffic), gemm.us / share
    in_turn = 2 * launch + alone + compute
    if is_serial(machine):
        return Price(launch + alone + compute, in_turn, compute, alone)
    after = traffic.steps_us + traffic.edge_us + traffic.adds.us
    busy = max(compute, gemm.tile_us + traffic.wire_us)
    return Price(launch + busy + after, in_turn, compute, alone)
