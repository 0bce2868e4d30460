"""Host memory laid out as a rank's, for peers behind a slow link: copy engines reach it by PCIe."""

from __future__ import annotations

import mmap
from collections.abc import Iterable

import torch

from ditron.runtime.cuda_driver import register_host, unregister_host


class PinnedMemory:
    """Room for a rank's memory, of which only what is touched takes pages; these are pinned.

    Args:
        size_bytes: of all of it.
        touched: half-open byte ranges that copy engines read or write.
    """

    def __init__(self, size_bytes: int, touched: Iterable[tuple[int, int]]) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._map = mmap.mmap(-1, size_bytes, flags=flags)
        self.bytes = torch.frombuffer(self._map, dtype=torch.uint8)
        self.address = self.bytes.data_ptr()
        self._pinned: list[int] = []
        for start, end in _pages(touched):
            register_host(self.address + start, end - start)
            self._pinned.append(self.address + start)

    def free(self) -> None:
        """Unpin; nothing may use it any more."""
        for address in self._pinned:
            unregister_host(address)
        self._pinned.clear()


def _pages(touched: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges in whole pages, those that meet put together."""
    page = mmap.PAGESIZE
    found: list[tuple[int, int]] = []
    for start, end in sorted((a // page * page, -(-b // page) * page) for a, b in touched):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found
