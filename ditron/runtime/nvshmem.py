"""A rank's memory as a piece of NVSHMEM's symmetric heap, by nvshmem4py.

NVSHMEM is initialised once a process, for all processes, by an id that rank 0 makes; what it knows
of hosts, links and networks then decides who reaches whom. Making and freeing a piece takes all
processes, in the same order. NVSHMEM ends with the process, if all pieces were freed; ending takes
all processes too, and those whose peer has failed must not wait for it.
"""

from __future__ import annotations

import atexit
import importlib
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ditron.errors import LaunchError
from ditron.runtime.ipc import as_tensor

# NVSHMEM's own default for the heap of a PE that shares its GPU, and what it keeps of it.
HEAP_BYTES, KEPT_BYTES = 1 << 30, 64 << 20


class Process:
    """NVSHMEM in this process.

    Attributes:
        place: (rank, ranks) that it was initialised as, None before.
        heaps: how many are held.
    """

    def __init__(self) -> None:
        self.place: tuple[int, int] | None = None
        self.heaps = 0

    def prepare(self, size_bytes: int) -> None:
        """Set what NVSHMEM reads when it is first called, where the user has not.

        Nothing here uses multicast, and a GPU has few multicast objects.
        """
        if self.place is None:
            room = max(HEAP_BYTES, size_bytes + KEPT_BYTES)
            os.environ.setdefault("NVSHMEM_SYMMETRIC_SIZE", str(room))
            os.environ.setdefault("NVSHMEM_DISABLE_NVLS", "1")

    def start(self, uid: object, rank: int, ranks: int) -> None:
        """Initialise NVSHMEM as one of `ranks`, unless that has been done.

        Raises:
            LaunchError: it was done for other ranks, or NVSHMEM refuses.
        """
        if self.place == (rank, ranks):
            return
        if self.place is not None:
            raise LaunchError(
                f"NVSHMEM was initialised here as rank {self.place[0]} of {self.place[1]}, which"
                f" a process does once: no program whose heap it makes runs as {rank} of {ranks}"
            )
        if uid is None:
            raise LaunchError(
                f"NVSHMEM is not initialised on rank {rank} of {ranks}, but is on rank 0, with"
                " other processes"
            )
        nv, device = library(), importlib.import_module("cuda.core").Device
        with told(f"NVSHMEM does not start on rank {rank} of {ranks} (NVSHMEM_DEBUG=INFO tells)"):
            current = device(torch.cuda.current_device())
            current.set_current()
            nv.init(device=current, uid=uid, rank=rank, nranks=ranks, initializer_method="uid")
        self.place = (nv.my_pe(), nv.n_pes())
        atexit.register(self.finish)
        if self.place != (rank, ranks):
            raise LaunchError(
                f"NVSHMEM calls rank {rank} of {ranks} PE {self.place[0]} of {self.place[1]}"
            )

    def finish(self) -> None:
        """End NVSHMEM, if no heap is held."""
        if self.place is not None and not self.heaps:
            self.place = None
            library().finalize()


PROCESS = Process()


class NvshmemHeap:
    """See `gpu_heap.GpuHeap`.

    Args:
        size_bytes: of every rank's memory.
        rank: this rank, among all processes.

    Raises:
        LaunchError: nvshmem4py is not installed.
    """

    def __init__(self, size_bytes: int, rank: int) -> None:
        self._library, self._size, self._rank = library(), size_bytes, rank
        PROCESS.prepare(size_bytes)

    def offer(self) -> Any:  # noqa: ANN401 - NVSHMEM's
        """The id to initialise by, from rank 0 before that is done; else None."""
        if self._rank or PROCESS.place is not None:
            return None
        with told("NVSHMEM makes no id to initialise by"):
            return self._library.get_unique_id()

    def join(self, offers: Sequence[Any]) -> list[int]:
        """Initialise NVSHMEM, make this piece of its heap and look up the peers'."""
        PROCESS.start(offers[0], self._rank, len(offers))
        with told(
            f"NVSHMEM has no room for {self._size} bytes on rank {self._rank}"
            f" (NVSHMEM_SYMMETRIC_SIZE={os.environ.get('NVSHMEM_SYMMETRIC_SIZE')})"
        ):
            self._buffer = self._library.buffer(self._size, except_on_del=False)
        PROCESS.heaps += 1
        self.address = int(self._buffer.handle)
        self.tensor = as_tensor(self.address, self._size)
        self.tensor.zero_()
        return [self._base(peer) for peer in range(len(offers))]

    def _base(self, peer: int) -> int:
        if peer == self._rank:
            return self.address
        with told(f"rank {self._rank} has no pointer to the memory of rank {peer}"):
            return int(self._library.get_peer_buffer(self._buffer, peer).handle)

    def close(self) -> None:
        """Free this piece; all processes do so, in the same order."""
        del self.tensor
        self._library.free(self._buffer)
        PROCESS.heaps -= 1


def library() -> Any:  # noqa: ANN401 - nvshmem4py has no types
    """The module `nvshmem.core`.

    Raises:
        LaunchError: it is not installed.
    """
    try:
        return importlib.import_module("nvshmem.core")
    except ImportError as error:
        raise LaunchError(
            f"heap nvshmem needs nvshmem4py ({error}): pip install 'ditron[nvidia]', or compile"
            ' with Options(heap="ipc"); ditron doctor tells what is there'
        ) from error


@contextmanager
def told(what: str) -> Generator[None]:
    """Say what NVSHMEM was to do where it fails.

    Raises:
        LaunchError: it does.
    """
    nv, bindings = library(), importlib.import_module("nvshmem.bindings")
    finder = importlib.import_module("cuda.pathfinder")
    failures = (
        nv.NvshmemError,
        nv.NvshmemInvalid,
        bindings.NVSHMEMError,
        finder.DynamicLibNotFoundError,
    )
    try:
        yield
    except failures as error:
        raise LaunchError(f"{what}: {error}") from error
