"""Device memory that other processes on the host can map, by the CUDA driver.

One allocation a rank, made by the driver itself: torch's allocator may cut and move blocks, and an
IPC handle stands for a whole allocation. Works between processes on one GPU and between GPUs that
can reach each other.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from ditron.runtime.cuda_driver import call

HANDLE_BYTES = 64
_LAZY_PEER_ACCESS = 1


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * HANDLE_BYTES),)


class DeviceMemory:
    """An allocation on the current device, zeroed; `handle` lets other processes map it."""

    def __init__(self, size_bytes: int) -> None:
        torch.zeros(1, device="cuda")  # the device's context is current from here on
        pointer = ctypes.c_uint64()
        call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size_bytes))
        self.address, self.size_bytes = int(pointer.value), size_bytes
        self.tensor = as_tensor(self.address, size_bytes)
        self.tensor.zero_()

    @property
    def handle(self) -> bytes:
        """What another process opens it by."""
        handle = _Handle()
        call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(self.address))
        return bytes(handle)

    def free(self) -> None:
        """Give it back; nothing may use it any more."""
        call("cuMemFree_v2", ctypes.c_uint64(self.address))


def open_peer(handle: bytes) -> int:
    """Map another process's memory; returns its address here.

    Raises:
        LaunchError: it cannot be mapped: most often the two GPUs cannot reach each other.
    """
    pointer = ctypes.c_uint64()
    value = _Handle.from_buffer_copy(handle)
    call("cuIpcOpenMemHandle_v2", ctypes.byref(pointer), value, ctypes.c_uint(_LAZY_PEER_ACCESS))
    return int(pointer.value)


def close_peer(address: int) -> None:
    """Unmap another process's memory."""
    call("cuIpcCloseMemHandle", ctypes.c_uint64(address))


class IpcHeap:
    """See `gpu_heap.GpuHeap`: what ranks offer each other is handles.

    Args:
        size_bytes: of this rank's memory, zeroed.
        rank: this rank.
    """

    def __init__(self, size_bytes: int, rank: int) -> None:
        self._memory, self._rank = DeviceMemory(size_bytes), rank
        self.address, self.tensor = self._memory.address, self._memory.tensor
        self._peers: list[int] = []
        self._offered = False

    def offer(self) -> bytes:
        """The handle of this rank's memory."""
        self._offered = True
        return self._memory.handle

    def join(self, offers: Sequence[bytes]) -> list[int]:
        """Map the peers' memory."""
        bases = [
            self.address if rank == self._rank else open_peer(handle)
            for rank, handle in enumerate(offers)
        ]
        self._peers = [base for rank, base in enumerate(bases) if rank != self._rank]
        return bases

    def close(self) -> None:
        """Unmap the peers' memory; what they may have mapped of this rank's stays till the end."""
        for address in self._peers:
            close_peer(address)
        self._peers = []
        if not self._offered:
            self._memory.free()


class _Array:
    """What `torch.as_tensor` wraps without copying."""

    def __init__(self, address: int, size_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size_bytes,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }


def as_tensor(address: int, size_bytes: int) -> torch.Tensor:
    """Device memory as a uint8 tensor on the current device; the caller keeps it alive."""
    return torch.as_tensor(_Array(address, size_bytes), device="cuda")
