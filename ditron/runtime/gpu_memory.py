"""One rank's device memory as torch tensors, and a kernel's arguments that point into it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import torch

from ditron.plan.tables import Buffer, Plan, Role
from ditron.runtime.gpu_layout import (
    AGE_WORD,
    EPOCH_WORD,
    NEXT_WORD,
    OLDEST,
    RECORD_WORD,
    SPINS_WORD,
    STOP_WORD,
    GpuLayout,
)
from ditron.runtime.gpu_program import SLOT_WORDS, Argument, TritonProgram, What
from ditron.runtime.heap import torch_dtype


class RankMemory:
    """The memory of one rank.

    Args:
        plan: what runs.
        program: its code.
        rank: whose memory it is.
        memory: uint8, `GpuLayout.total` long, on the rank's device.
        bases: the address of every rank's memory, as this rank sees it.
    """

    def __init__(
        self,
        plan: Plan,
        program: TritonProgram,
        rank: int,
        memory: torch.Tensor,
        bases: Sequence[int],
    ) -> None:
        self.plan, self.rank, self.bytes, self.bases = plan, rank, memory, list(bases)
        self.layout = GpuLayout.of(plan)
        self._rows = {b.name: b for b in plan.buffers}
        self._known: dict[int, torch.Tensor] = {}
        device = memory.device
        stamped = len(plan.tasks) if program.stamps else 1
        self.stamps = torch.zeros(2 * stamped, dtype=torch.int64, device=device)
        self._tables = {
            k: torch.tensor(v.tolist(), dtype=torch.int32, device=device)
            for k, v in program.tables.items()
        }

    def stamps_of(self, grid: str) -> torch.Tensor:
        """int64 words: two a task of this rank, from a grid's first one on; "" is all tasks."""
        if not grid:
            return self.stamps
        op = next(i for i, o in enumerate(self.plan.ops) if o.name == grid)
        tasks = self.plan.tasks
        first = int(((tasks.op == op) & (tasks.rank == self.rank)).argmax())
        return self.stamps[2 * first :]

    def start(self, epoch: int = 0, spins: int = 1 << 30) -> None:
        """Set all words to what `epoch` launches leave them at."""
        first = min([*self.layout.signals.values(), self.layout.control])
        self.bytes[first:] = 0
        control = self.control()
        control[EPOCH_WORD] = _int32(epoch)
        control[NEXT_WORD] = _int32(epoch + 1)
        control[AGE_WORD] = min(epoch, OLDEST)
        control[SPINS_WORD] = spins
        slots = self.plan.slots
        for row, name in enumerate(self.plan.signals):
            mine = (slots.rank == self.rank) & (slots.signals == row)
            words = self.words(self.layout.signals[name])
            if epoch:
                for index, count in zip(slots.index[mine], slots.count[mine], strict=True):
                    words[int(index) * SLOT_WORDS] = _int32(int(count) * epoch)

    def poison(self) -> None:
        """Fill buffers with NaN (-1 in integers), so that reads of garbage show; states with 0."""
        self.bytes[: min([*self.layout.signals.values(), self.layout.control])] = 0xFF
        for buffer in self.plan.buffers:
            if buffer.role is Role.STATE:
                self.buffer(buffer.name).zero_()

    def words(self, offset: int) -> torch.Tensor:
        """int32 words from a byte offset on."""
        return self.bytes[offset:].view(torch.int32)

    def control(self) -> torch.Tensor:
        """The control words."""
        return self.words(self.layout.control)

    def record(self) -> list[int] | None:
        """(site, task, seen, wanted) of the first wait that gave up, if one has."""
        words = [int(w) for w in self.control()[RECORD_WORD : RECORD_WORD + 5].cpu()]
        return words[1:] if words[0] else None

    def stop_word(self) -> torch.Tensor:
        """The word that makes all waits of the launch give up."""
        return self.control()[STOP_WORD : STOP_WORD + 1]

    def slot(self, signals: str, index: int) -> int:
        """What a slot of this rank holds."""
        return int(self.words(self.layout.signals[signals])[index * SLOT_WORDS])

    def slot_words(self, slot: int) -> torch.Tensor:
        """A slot of this rank, by its row in the plan, and what lies behind it."""
        slots = self.plan.slots
        array = self.layout.signals[self.plan.signals[int(slots.signals[slot])]]
        return self.words(array)[int(slots.index[slot]) * SLOT_WORDS :]

    def slot_address(self, slot: int) -> int:
        """The address of a slot of any rank, by its row in the plan."""
        slots = self.plan.slots
        array = self.layout.signals[self.plan.signals[int(slots.signals[slot])]]
        return self.bases[int(slots.rank[slot])] + array + 4 * SLOT_WORDS * int(slots.index[slot])

    def access_address(self, access: int) -> int:
        """The address of the buffer that an access touches, at its rank."""
        accesses = self.plan.accesses
        name = self.plan.buffers[int(accesses.buffer[access])].name
        return self.bases[int(accesses.rank[access])] + self.layout.buffers[name]

    def control_address(self, word: int) -> int:
        """The address of one of this rank's control words."""
        return self.bases[self.rank] + self.layout.control + 4 * word

    def view(self, access: int) -> torch.Tensor:
        """The box of this rank's memory that an access touches."""
        accesses = self.plan.accesses
        assert accesses.rank[access] == self.rank, "a library reaches this rank's memory only"
        view = self.buffer(self.plan.buffers[int(accesses.buffer[access])].name)
        for dim in range(view.dim()):
            lo, hi = int(accesses.lo[access, dim]), int(accesses.hi[access, dim])
            view = view.narrow(dim, min(lo, view.shape[dim]), max(hi - lo, 0))
        return view

    def buffer(self, name: str) -> torch.Tensor:
        """A buffer, as large as it is on this rank."""
        buffer = self._rows[name]
        view = self._typed(buffer, torch_dtype(buffer.dtype)).view(buffer.capacity)
        for dim, size in enumerate(buffer.extent[self.rank]):
            view = view.narrow(dim, 0, int(size))
        return view

    def _typed(self, buffer: Buffer, dtype: torch.dtype) -> torch.Tensor:
        start = self.layout.buffers[buffer.name]
        return self.bytes[start : start + buffer.size_bytes].view(dtype)

    def _elements(self, name: str) -> torch.Tensor:
        """A buffer's elements as kernels see them: truth values are bytes."""
        buffer = self._rows[name]
        dtype = torch.uint8 if buffer.dtype == "bool" else torch_dtype(buffer.dtype)
        return self._typed(buffer, dtype)

    def argument(self, argument: Argument) -> Any:  # noqa: ANN401, PLR0911 - one a kind
        """What a kernel gets for a parameter: a tensor, a number or a tensor descriptor."""
        name = argument.of
        match argument.what:
            case What.RANK:
                return self.rank
            case What.CONTROL:
                return self.control()
            case What.TABLE:
                return self._tables[name]
            case What.SIGNALS:
                return self.words(self.layout.signals[name])
            case What.STAMPS:
                return self.stamps_of(name)
            case What.MEMORY_AT | What.BUFFER_AT | What.SIGNALS_AT:
                return self._addresses(self._offset(argument))
            case What.BUFFER:
                return self._elements(name)
            case What.TILES:
                return self._tiles(name, argument.block)

    def _tiles(self, name: str, block: tuple[int, ...]) -> Any:  # noqa: ANN401 - Triton's
        """A buffer as a tensor descriptor: what lies beyond its extent reads as 0."""
        view = self.buffer(name)
        # A descriptor has no dimension of size 0; no task touches such a buffer.
        shape = [max(int(size), 1) for size in view.shape]
        made: Any = importlib.import_module("triton.tools.tensor_descriptor")
        return made.TensorDescriptor(view, shape, list(view.stride()), list(block))

    def _offset(self, argument: Argument) -> int:
        """Where what an argument points to at every rank lies in a rank's memory."""
        match argument.what:
            case What.BUFFER_AT:
                return self.layout.buffers[argument.of]
            case What.SIGNALS_AT:
                return self.layout.signals[argument.of]
            case _:
                return 0

    def _addresses(self, offset: int) -> torch.Tensor:
        """An offset's address on all ranks; kept, since kernels get pointers only."""
        if offset not in self._known:
            addresses = torch.tensor([base + offset for base in self.bases])
            self._known[offset] = addresses.to(self.bytes.device)
        return self._known[offset]


def _int32(value: int) -> int:
    """Modulo 2^32, as int32."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)
