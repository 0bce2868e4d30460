"""A rank's memory on a GPU, and its peers' as it sees them: where the table of bases comes from.

heap = make_heap("ipc", size_bytes, rank)
bases = heap.join(exchange(heap.offer()))  # all ranks together
...
heap.close()
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from ditron.runtime.ipc import IpcHeap
from ditron.runtime.nvshmem import NvshmemHeap


class GpuHeap(Protocol):
    """One rank's memory, as large on every rank.

    Attributes:
        address: of this rank's memory; known from `join` on, at the latest.
        tensor: the memory as uint8, zeroed; likewise.
    """

    address: int
    tensor: torch.Tensor

    def offer(self) -> Any:  # noqa: ANN401 - what it is concerns the kind of heap alone
        """What every rank has to know before it can join; survives pickling."""
        ...

    def join(self, offers: Sequence[Any]) -> list[int]:
        """The address of every rank's memory as this rank sees it, by what all of them offer.

        Raises:
            LaunchError: this rank does not reach another's memory.
        """
        ...

    def close(self) -> None:
        """Let go of the memory; nothing of this rank's may use it any more."""
        ...


def make_heap(kind: str, size_bytes: int, rank: int) -> GpuHeap:
    """Memory on the current device, of a kind of `plan.options.HEAPS`."""
    return NvshmemHeap(size_bytes, rank) if kind == "nvshmem" else IpcHeap(size_bytes, rank)
