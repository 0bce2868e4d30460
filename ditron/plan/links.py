"""Where ranks stand to each other on a machine, and how far apart they are."""

from __future__ import annotations

import math
from functools import lru_cache

import msgspec
import numpy as np

from ditron.plan.machine import LinkKind, Machine, Topology
from ditron.plan.tables import Ints


@lru_cache(maxsize=64)
def along(machine: Machine, stride: int) -> Machine:
    """A machine as the ranks of a mesh axis see it, which are `stride` ranks of the program apart.

    Fewer of them are in one node.
    """
    network = machine.topology.network
    if network is None or stride == 1:
        return machine
    inside = max(network.ranks_a_node // stride, 1)
    topology = msgspec.structs.replace(
        machine.topology, network=msgspec.structs.replace(network, ranks_a_node=inside)
    )
    return msgspec.structs.replace(machine, topology=topology)


def hops(topology: Topology, source: Ints, target: Ints) -> Ints:
    """Links between ranks of one node [N]: one, or the steps along the rows and columns of a grid.

    A rank is 0 hops from itself.
    """
    if topology.kind is not LinkKind.GRID:
        return (source != target).astype(np.int32)
    down = np.abs(source // topology.columns - target // topology.columns)
    across = np.abs(source % topology.columns - target % topology.columns)
    return (down + across).astype(np.int32)


def route(topology: Topology, source: int, target: int) -> list[tuple[int, int]]:
    """The links of a grid that a transfer takes: along the row of its source, then the column.

    Source: dimension-ordered routing, as networks on chips have it (Dally and Towles, "Principles
    and Practices of Interconnection Networks", 2004).
    """
    width, links, at = topology.columns, list[tuple[int, int]](), source
    for goal, step in (
        (target % width - source % width, 1),
        (target // width - at // width, width),
    ):
        for _ in range(abs(goal)):
            after = at + int(math.copysign(step, goal))
            links.append((at, after))
            at = after
    return links


def grid_share(machine: Machine, ranks: int, peers: int) -> float:
    """The part of a link that each of `ranks` ranks has when all send to `peers` peers at once.

    To one peer, a neighbour, a whole link; to all, what the links come to over the hops taken.
    """
    if peers <= 1:
        return 1.0
    width = min(machine.topology.columns, ranks)
    height = -(-ranks // width)
    links = 2 * (height * (width - 1) + width * (height - 1))
    mean = sum((side * side - 1) / (3 * side) for side in (width, height))
    return min(1.0, links / (ranks * max(mean, 1.0)))
