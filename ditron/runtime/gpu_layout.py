"""Where a rank's buffers, signal slots and control words lie in its device memory.

One piece of memory a rank, laid out alike on all of them, so that an address at a peer is the
peer's base plus the same offset:

    buffers | slots, array by array, SLOT_WORDS apart | control words
"""

from __future__ import annotations

from dataclasses import dataclass

from ditron.errors import PlanError
from ditron.plan.tables import Plan
from ditron.runtime.gpu_program import SLOT_WORDS

LINE_BYTES = 256

# A rank's control words, as `backends/triton/library/common.py` knows them.
EPOCH_WORD, AGE_WORD, STOP_WORD, SPINS_WORD, NEXT_WORD, RECORD_WORD = 0, 1, 2, 3, 4, 8
CONTROL_WORDS = 64
OLDEST = 1 << 20


@dataclass(frozen=True)
class GpuLayout:
    """Byte offsets within a rank's memory."""

    buffers: dict[str, int]
    signals: dict[str, int]
    control: int
    total: int

    @staticmethod
    def of(plan: Plan) -> GpuLayout:
        """The layout of a plan; buffers whose memory is not planned go one after another."""
        planned = [b.offset_bytes + b.size_bytes for b in plan.buffers if b.offset_bytes >= 0]
        end = _round_up(max([plan.heap_bytes, *planned]))
        buffers: dict[str, int] = {}
        for buffer in plan.buffers:
            buffers[buffer.name] = buffer.offset_bytes
            if buffer.offset_bytes < 0:
                buffers[buffer.name] = end
                end = _round_up(end + buffer.size_bytes)
            elif buffer.offset_bytes % 16:
                raise PlanError(
                    f"buffer {buffer.name} lies at byte {buffer.offset_bytes}: not at 16"
                )
        signals: dict[str, int] = {}
        for row, name in enumerate(plan.signals):
            signals[name] = end
            slots = int((plan.slots.signals == row).sum()) // plan.ranks
            end += slots * SLOT_WORDS * 4
        control = _round_up(end)
        return GpuLayout(buffers, signals, control, _round_up(control + CONTROL_WORDS * 4))


def _round_up(size: int) -> int:
    return -(-size // LINE_BYTES) * LINE_BYTES
