"""Where a plan's buffers and slots lie in memory, and torch views of them.

All ranks' segments lie one after another in one piece of memory that every process maps:

    segment of rank 0 | segment of rank 1 | ... | shared words

A segment is the rank's heap (its buffers), its slots (a word each, on its own cache line) and its
control words. The shared words are the launch barrier and the count of finished ranks. Only
offsets are computed here and they depend on the plan alone, so every process agrees on them.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from ditron.errors import PlanError
from ditron.plan.dtypes import DTYPES
from ditron.plan.tables import DTYPE_BYTES, Buffer, Longs, Plan

LINE_BYTES = 64
LINE_WORDS = LINE_BYTES // 4

# A rank's control words: the launch it is in, the lane whose task runs (-1: none), then how many
# tasks each of its lanes has finished in that launch. Peers and parent read them for reports.
EPOCH_WORD, RUNNING_WORD, HEADS_WORD = 0, 1, 2

# The shared words, a cache line each.
BARRIER_WORD, FINISHED_WORD, SHARED_WORDS = 0, LINE_WORDS, 2 * LINE_WORDS


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of a plan's dtype name ("bf16", ...)."""
    dtype = getattr(torch, DTYPES[name].torch_name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def _round_up(size: int, unit: int = LINE_BYTES) -> int:
    return -(-size // unit) * unit


@dataclass(frozen=True)
class Layout:
    """Offsets of everything; bytes for buffers, int32 words for all else.

    `buffer_bytes` [B] is within a segment, `slot_word` [S] and `control_word` [R] are absolute.
    Copy k of a doubled slot lies k lines after its first.
    """

    heap_bytes: int
    segment_bytes: int
    total_bytes: int
    buffer_bytes: tuple[int, ...]
    slot_word: Longs
    control_word: Longs
    shared_word: int

    @staticmethod
    def of(plan: Plan) -> Layout:
        """The layout of a plan; buffers whose memory is not planned go one after another."""
        buffers, heap_bytes = _buffer_offsets(plan)
        lines = np.zeros(plan.ranks, np.int64)
        slot_line = np.zeros(len(plan.slots), np.int64)
        for slot, (rank, copies) in enumerate(zip(plan.slots.rank, plan.slots.copies, strict=True)):
            slot_line[slot] = lines[rank]
            lines[rank] += copies
        slots_bytes = int(lines.max(initial=0)) * LINE_BYTES
        most_lanes = int(np.bincount(plan.lanes.rank, minlength=1).max())
        control_bytes = _round_up((HEADS_WORD + most_lanes) * 4)
        segment = heap_bytes + slots_bytes + control_bytes
        ranks = np.arange(plan.ranks, dtype=np.int64) * segment
        return Layout(
            heap_bytes=heap_bytes,
            segment_bytes=segment,
            total_bytes=_round_up(plan.ranks * segment + SHARED_WORDS * 4, mmap.PAGESIZE),
            buffer_bytes=buffers,
            slot_word=(ranks[plan.slots.rank] + heap_bytes) // 4 + slot_line * LINE_WORDS,
            control_word=(ranks + heap_bytes + slots_bytes) // 4,
            shared_word=plan.ranks * segment // 4,
        )


def _buffer_offsets(plan: Plan) -> tuple[tuple[int, ...], int]:
    planned = [
        b.offset_bytes + b.copies * b.size_bytes for b in plan.buffers if b.offset_bytes >= 0
    ]
    end = _round_up(max([plan.heap_bytes, *planned]))
    offsets: list[int] = []
    for buffer in plan.buffers:
        offset = buffer.offset_bytes
        if offset < 0:
            offset = end
            end = _round_up(end + buffer.copies * buffer.size_bytes)
        if offset % DTYPE_BYTES[buffer.dtype]:
            msg = f"buffer {buffer.name} ({buffer.dtype}) lies at byte {offset}, which it cannot"
            raise PlanError(msg)
        offsets.append(offset)
    return tuple(offsets), end


class Heap:
    """All segments of a plan in this process: torch views of buffers, int32 words of the rest."""

    def __init__(self, plan: Plan, memory: npt.NDArray[np.uint8], layout: Layout) -> None:
        self.plan = plan
        self.layout = layout
        self.words = memory.view(np.int32)
        self.address = memory.ctypes.data
        self.bytes = torch.frombuffer(memory, dtype=torch.uint8)
        self._typed: dict[str, torch.Tensor] = {}
        self._rows = {b.name: row for row, b in enumerate(plan.buffers)}

    @staticmethod
    def private(plan: Plan) -> Heap:
        """A heap of this process alone, zeroed."""
        layout = Layout.of(plan)
        return Heap(plan, np.zeros(layout.total_bytes, np.uint8), layout)

    @staticmethod
    def shared(plan: Plan, fd: int) -> Heap:
        """The heap in a shared memory object made by `open_shared`."""
        layout = Layout.of(plan)
        memory = mmap.mmap(fd, layout.total_bytes)
        return Heap(plan, np.frombuffer(memory, np.uint8), layout)

    def buffer_row(self, name: str) -> int:
        """The row of a buffer in the plan.

        Raises:
            PlanError: there is none of that name.
        """
        if name not in self._rows:
            msg = f"the plan has no buffer {name!r}; it has {', '.join(self._rows)}"
            raise PlanError(msg)
        return self._rows[name]

    def buffer(self, row: int, rank: int, copy: int = 0) -> torch.Tensor:
        """One copy of a buffer on a rank, at its full capacity."""
        buffer = self.plan.buffers[row]
        typed = self._typed.get(buffer.dtype)
        if typed is None:
            typed = self._typed[buffer.dtype] = self.bytes.view(torch_dtype(buffer.dtype))
        start = (
            rank * self.layout.segment_bytes
            + self.layout.buffer_bytes[row]
            + copy % buffer.copies * buffer.size_bytes
        )
        strides = _row_major(buffer)
        return typed.as_strided(buffer.capacity, strides, start // DTYPE_BYTES[buffer.dtype])

    def local(self, row: int, rank: int, copy: int = 0) -> torch.Tensor:
        """The part of `buffer` that exists on the rank: its extent."""
        view = self.buffer(row, rank, copy)
        for dim, size in enumerate(self.plan.buffers[row].extent[rank]):
            view = view.narrow(dim, 0, int(size))
        return view

    def control(self, rank: int) -> npt.NDArray[np.int32]:
        """A rank's control words (see `EPOCH_WORD` and the rest)."""
        start = int(self.layout.control_word[rank])
        lanes = int(np.count_nonzero(self.plan.lanes.rank == rank))
        return self.words[start : start + HEADS_WORD + lanes]

    def word_address(self, word: int) -> int:
        """The address of an int32 word in this process."""
        return self.address + 4 * word

    def poison(self) -> None:
        """Fill all buffers with NaN (-1 in integers), so that reads of garbage show."""
        for rank in range(self.plan.ranks):
            start = rank * self.layout.segment_bytes
            self.bytes[start : start + self.layout.heap_bytes].fill_(0xFF)

    def clear_words(self) -> None:
        """Zero all slots, control words and shared words: back to before the first launch."""
        for rank in range(self.plan.ranks):
            start, end = (r * self.layout.segment_bytes for r in (rank, rank + 1))
            self.words[(start + self.layout.heap_bytes) // 4 : end // 4] = 0
        self.words[self.layout.shared_word :] = 0


def _row_major(buffer: Buffer) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(buffer.capacity):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def open_shared(size_bytes: int) -> int:
    """A descriptor of zeroed shared memory that has no name: it goes with its last user."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("ditron", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:  # unlinked as soon as it is made
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size_bytes)
    return fd
