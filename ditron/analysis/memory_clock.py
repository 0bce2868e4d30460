"""A rank's memory while a plan is played: what streams through it slows down together.

Each piece of work asks for a part of the memory's rate; where all that run at once ask for more
than it has, all take as much longer. Products do not count: their operands come from the cache.

Source: processor sharing by a virtual clock (Parekh and Gallager, "A Generalized Processor Sharing
Approach to Flow Control", 1993).
"""

from __future__ import annotations

from heapq import heappop, heappush


class MemoryClock:
    """What streams through one memory. Its clock runs slower while too much is asked of it."""

    def __init__(self) -> None:
        self._clock = self._time = self._asked = 0.0
        self._ends: list[tuple[float, int]] = []  # (by the memory's clock, key)
        self._parts: dict[int, float] = {}

    def start(self, key: int, part: float, us: float, time: float) -> None:
        """Work that takes `us` by itself and asks for a part of the rate meanwhile."""
        self._advance(time)
        heappush(self._ends, (self._clock + us, key))
        self._parts[key] = part
        self._asked += part

    def next_end(self) -> float:
        """When the next piece of work ends, if nothing else starts before; -1 without any."""
        if not self._ends:
            return -1.0
        return self._time + max(self._ends[0][0] - self._clock, 0.0) * max(self._asked, 1.0)

    def finish(self, time: float) -> int:
        """The piece of work that ends now."""
        self._advance(time)
        _, key = heappop(self._ends)
        self._asked = self._asked - self._parts.pop(key) if self._ends else 0.0
        return key

    def _advance(self, time: float) -> None:
        self._clock += (time - self._time) / max(self._asked, 1.0)
        self._time = time
