"""Which word each wait reads and each notify writes in a launch, and which values.

This is the slot arithmetic of `ditron.plan.tables` on arrays: launches e = 1, 2, ...,
q(e) = (e - 1) div copies, values int32 with wrap-around.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ditron.plan.tables import Bools, Ints, Longs, NotifyOp, Plan
from ditron.runtime.heap import LINE_WORDS, Layout


@dataclass(frozen=True)
class WaitWords:
    """For each wait its word, the value it wants, and whether it is absent in this launch."""

    word: Longs
    want: Ints
    absent: Bools


@dataclass(frozen=True)
class NotifyWords:
    """For each notify its word, and what is added or (where `sets`) stored."""

    word: Longs
    value: Ints
    sets: Bools


def wait_words(plan: Plan, layout: Layout, rows: Longs, epoch: int) -> WaitWords:
    """The waits at `rows` in launch `epoch`."""
    slot = plan.waits.slot[rows]
    source = epoch - plan.waits.lag[rows].astype(np.int64)
    copies = plan.slots.copies[slot].astype(np.int64)
    want = (source - 1) // copies * plan.slots.count[slot] + plan.waits.value[rows]
    word = layout.slot_word[slot] + (source - 1) % copies * LINE_WORDS
    return WaitWords(word, wrap(want), source < 1)


def notify_words(plan: Plan, layout: Layout, rows: Longs, epoch: int) -> NotifyWords:
    """The notifies at `rows` in launch `epoch`."""
    slot = plan.notifies.slot[rows]
    sets = plan.notifies.op[rows] == NotifyOp.SET
    copies = plan.slots.copies[slot].astype(np.int64)
    earlier = (epoch - 1) // copies * plan.slots.count[slot]
    value = plan.notifies.amount[rows].astype(np.int64) + np.where(sets, earlier, 0)
    word = layout.slot_word[slot] + (epoch - 1) % copies * LINE_WORDS
    return NotifyWords(word, wrap(value), sets)


def wrap(values: Longs) -> Ints:
    """Reduce to int32 modulo 2^32."""
    return values.astype(np.uint32).view(np.int32)


def reached(seen: int, want: int) -> bool:
    """`seen >= want`, compared cyclically on 32 bits."""
    return (seen - want) & 0xFFFFFFFF < 0x80000000


def period(plan: Plan) -> int:
    """Launches after which all doubled buffers and slots repeat."""
    copies = [b.copies for b in plan.buffers]
    return int(np.lcm.reduce([plan.copies, *copies, *plan.slots.copies.tolist()]))
