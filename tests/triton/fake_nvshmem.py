"""nvshmem4py without a GPU: PEs are processes, a piece of the heap is a file that all of them map.

Each PE writes down what it is asked for, in `$FAKE_NVSHMEM/calls-PE`; without that variable nothing
is installed, as where nvshmem4py is missing.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ditron.runtime import nvshmem

FOLDER = "FAKE_NVSHMEM"
ROOM = "NVSHMEM_SYMMETRIC_SIZE"
WAIT_S = 30.0


class NvshmemError(Exception):
    """As `nvshmem.core` has it."""


class NVSHMEMError(Exception):
    """As `nvshmem.bindings` has it."""


class NvshmemInvalid(Exception):  # noqa: N818 - its name there
    """A use that NVSHMEM forbids."""


class DynamicLibNotFoundError(RuntimeError):
    """As `cuda.pathfinder` has it."""


@dataclass(frozen=True)
class UniqueId:
    world: str


class Buffer:
    def __init__(self, path: Path, size: int, piece: int) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), size)
        self.handle = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.piece, self.size, self.freed = piece, size, False


class FakeNvshmem:
    """What `nvshmem.core` offers of what ditron calls."""

    NvshmemError, NvshmemInvalid = NvshmemError, NvshmemInvalid

    def __init__(self, folder: Path) -> None:
        self.folder, self.pieces, self.held = folder, 0, 0
        self.known: list[Buffer] = []
        self.world: tuple[int, int] | None = None

    def _say(self, text: str) -> None:
        pe = "none" if self.world is None else self.world[0]
        with (self.folder / f"calls-{pe}").open("a") as file:
            file.write(text + "\n")

    def _initialised(self) -> tuple[int, int]:
        if self.world is None:
            raise NvshmemInvalid("NVSHMEM Library is not initialized")
        return self.world

    def get_unique_id(self) -> UniqueId:
        return UniqueId("one")

    def init(
        self, *, device: object, uid: object, rank: int, nranks: int, initializer_method: str
    ) -> None:
        if self.world is not None or initializer_method != "uid" or device is None:
            raise NvshmemInvalid("init")
        if not isinstance(uid, UniqueId):
            raise NVSHMEMError("Status code 7")
        self.world = (rank, nranks)
        self._say(f"init {rank} of {nranks}")

    def my_pe(self) -> int:
        return self._initialised()[0]

    def n_pes(self) -> int:
        return self._initialised()[1]

    def buffer(self, size: int, *, except_on_del: bool) -> Buffer:
        assert not except_on_del
        pe, _ = self._initialised()
        if size > int(os.environ[ROOM]):
            raise NvshmemError(f"Failed to allocate memory of bytes {size}")
        self.pieces, self.held = self.pieces + 1, self.held + 1
        path = self.folder / f"{pe}-{self.pieces}"
        made = path.with_suffix(".new")
        made.write_bytes(b"\xff" * size)
        made.rename(path)
        self._say("buffer")
        return Buffer(path, size, self.pieces)

    def get_peer_buffer(self, buffer: Buffer, pe: int) -> Buffer:
        me, pes = self._initialised()
        if pe == me or pe >= pes or (self.folder / f"far-{pe}").exists():
            raise NvshmemError("Failed to retrieve peer buffer")
        path, until = self.folder / f"{pe}-{buffer.piece}", time.monotonic() + WAIT_S
        while not path.exists():
            if time.monotonic() > until:
                raise NvshmemError(f"PE {pe} makes no piece {buffer.piece}")
            time.sleep(1e-3)
        self._say(f"peer {pe}")
        self.known.append(Buffer(path, buffer.size, buffer.piece))
        return self.known[-1]

    def free(self, buffer: Buffer) -> None:
        self._initialised()
        if buffer.freed:
            raise NvshmemError("freed twice")
        buffer.freed = True
        self.held -= 1
        self._say("free")

    def finalize(self) -> None:
        self._initialised()
        if self.held:
            raise NvshmemError("pieces are held")
        self._say("finalize")
        self.world = None


class FakeDevice:
    def __init__(self, number: int) -> None:
        self.number = number

    def set_current(self) -> None:
        pass


def as_tensor(address: int, size_bytes: int) -> torch.Tensor:
    """Memory of this process as a tensor."""
    return torch.frombuffer((ctypes.c_uint8 * size_bytes).from_address(address), dtype=torch.uint8)


def modules(folder: Path) -> dict[str, Any]:
    """What stands for nvshmem4py and what it needs, by the names of modules."""
    named = {
        "nvshmem.bindings": {"NVSHMEMError": NVSHMEMError},
        "cuda": {},
        "cuda.core": {"Device": FakeDevice},
        "cuda.pathfinder": {"DynamicLibNotFoundError": DynamicLibNotFoundError},
    }
    found: dict[str, Any] = {"nvshmem.core": FakeNvshmem(folder)}
    for name, members in named.items():
        found[name] = ModuleType(name)
        vars(found[name]).update(members)
    return found


def install() -> None:
    """Put it in place in this process, where the environment names a folder."""
    if FOLDER not in os.environ:
        return
    sys.modules.update(modules(Path(os.environ[FOLDER])))
    cuda: Any = torch.cuda
    cuda.current_device = lambda: 0
    heap: Any = nvshmem
    heap.as_tensor = as_tensor
