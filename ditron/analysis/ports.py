"""Ports and links of a machine while a plan is played: who sends when, first come first served."""

from __future__ import annotations

from collections.abc import Sequence

from ditron.plan.cost import US_PER_GB_S, far_link
from ditron.plan.links import route
from ditron.plan.machine import LinkKind, Machine


class Ports:
    """What is taken until when, in us.

    A transfer holds its sender's port, then its receiver's, which may start as soon as the first
    bytes come; on a full mesh it holds the link between the two, on a grid all links of its route,
    and starts when the last of them is free; on PCIe also what all share.
    """

    def __init__(self, machine: Machine, ranks: int) -> None:
        self._topology = machine.topology
        self._node = machine.ranks_a_node
        self._out = [0.0] * (2 * ranks)  # near, then far
        self._in = [0.0] * (2 * ranks)
        self._ranks = ranks
        self._links: dict[tuple[int, int], float] = {}
        self._shared = 0.0
        self._far = far_link(machine)

    def move(
        self, source: int, target: int, size_bytes: float, begin: float, engine_gbytes_s: float
    ) -> tuple[float, float]:
        """Between two ranks: (when the engine is free again, when the data has landed)."""
        far = source // self._node != target // self._node
        if not far and self._topology.kind is LinkKind.MESH:
            return self._on_links([(source, target)], size_bytes, begin, engine_gbytes_s)
        if not far and self._topology.kind is LinkKind.GRID:
            links = route(self._topology, source, target)
            return self._on_links(links, size_bytes, begin, engine_gbytes_s)
        rate = self._far.gbytes_s if far else self._topology.gbytes_s
        latency = self._far.latency_us if far else self._topology.latency_us
        port_us = size_bytes / (rate * US_PER_GB_S)
        shift = self._ranks if far else 0
        leaves = max(begin, self._out[source + shift])
        if self._topology.shared_gbytes_s and not far:
            leaves = max(leaves, self._shared)
            self._shared = leaves + size_bytes / (self._topology.shared_gbytes_s * US_PER_GB_S)
        self._out[source + shift] = leaves + port_us
        arrives = max(leaves, self._in[target + shift])
        self._in[target + shift] = arrives + port_us
        done = arrives + _at_most(port_us, size_bytes, engine_gbytes_s)
        return done, done + latency

    def _on_links(
        self,
        links: Sequence[tuple[int, int]],
        size_bytes: float,
        begin: float,
        engine_gbytes_s: float,
    ) -> tuple[float, float]:
        start = max(begin, *(self._links.get(link, 0.0) for link in links))
        port_us = size_bytes / (self._topology.gbytes_s * US_PER_GB_S)
        done = start + _at_most(port_us, size_bytes, engine_gbytes_s)
        for link in links:
            self._links[link] = start + port_us
        return done, done + self._topology.latency_us * len(links)


def _at_most(port_us: float, size_bytes: float, engine_gbytes_s: float) -> float:
    """How long it takes when the engine may be slower than the port."""
    if not engine_gbytes_s:
        return port_us
    return max(port_us, size_bytes / (engine_gbytes_s * US_PER_GB_S))
