"""Waves: tiles of a product run as many at a time as there are workers, and the last may be few."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Waves:
    """A product's tiles on its workers.

    Attributes:
        tiles: of the result, rows and columns of them.
        halves: columns of tiles of half the width.
        tile_us, half_us: what one of each takes.
        next_us: from the end of one grid of tiles to the start of the next.
        workers: tiles that run at once.
    """

    tiles: tuple[int, int]
    halves: int
    tile_us: float
    half_us: float
    next_us: float
    workers: int

    @property
    def whole_us(self) -> float:
        """All tiles alike."""
        return self._waves(self.tiles[0] * self.tiles[1]) * self.tile_us

    @property
    def head(self) -> int:
        """Rows of tiles that fill whole waves, and no more of them."""
        down, across = self.tiles
        return down * across // self.workers * self.workers // across

    @property
    def split_us(self) -> float:
        """Whole tiles in the head, tiles of half the width in the rows that are left."""
        down, across = self.tiles
        head = self._waves(self.head * across) * self.tile_us
        return head + self.next_us + self._waves((down - self.head) * self.halves) * self.half_us

    @property
    def pays(self) -> bool:
        """Whether the rows after the head are better cut finer."""
        return 0 < self.head < self.tiles[0] and self.split_us < self.whole_us

    def _waves(self, tiles: int) -> int:
        return -(-tiles // self.workers)
