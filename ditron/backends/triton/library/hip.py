"""Waits and notifies on AMD GPUs.

A release drains the stores of the wave that does it only, so every wave drains its own before the
barrier (Triton emits no such wait; whether the hardware needs it was not tried).
"""

from __future__ import annotations

import triton
import triton.language as tl

from ditron.backends.triton.library.common import (
    AGE,
    BEGIN,
    END,
    EPOCH,
    exceeds,
    first_largest,
    halves,
    hold,
    larger,
    largest,
    retire,
)

__all__ = [
    "AGE",
    "BEGIN",
    "END",
    "EPOCH",
    "enter",
    "exceeds",
    "first_largest",
    "halves",
    "larger",
    "largest",
    "notify",
    "notify_set",
    "read_clock",
    "retire",
    "stamp",
    "wait",
]

# What each piece of assembly gives in the interpreter, by how its text begins: a number, or the
# place of the operand that it passes on.
HOOKS: dict[str, tuple[str, int]] = {
    "v_mov_b32 $0, 0": ("is", 0),
    "v_mov_b32 $0, $1": ("operand", 0),
    "s_waitcnt": ("is", 0),
    "s_memrealtime": ("clock", 0),
}


@triton.jit
def wait(control, word, want, task, SITE: tl.constexpr, SCOPE: tl.constexpr):
    """Hold this program until a signal word has reached `want`.

    Returns a 0 that the compiler cannot see through. It is to be added to every address that the
    wait guards: stock Triton moves loads across a wait that nothing depends on.
    """
    seen = hold(control, word, want, SITE, task, SCOPE)
    tl.debug_barrier()
    return tl.inline_asm_elementwise(
        f"v_mov_b32 $0, 0 ; wait {SITE}",
        "=v,v",
        [seen],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def enter(lane, KIND: tl.constexpr):
    """Mark in the compiled text where the code of a task kind begins."""
    tl.inline_asm_elementwise(
        f"v_mov_b32 $0, $1 ; enter {KIND}",
        "=v,v",
        [lane],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def _mark(value, SITE: tl.constexpr):
    """`value`, by an instruction that tells in the compiled text which notify it belongs to."""
    return tl.inline_asm_elementwise(
        f"v_mov_b32 $0, $1 ; notify {SITE}",
        "=v,v",
        [value],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def _drain(zero):
    """Let every wave's stores reach memory."""
    return tl.inline_asm_elementwise(
        "s_waitcnt vmcnt(0)\n v_mov_b32 $0, 0 ; drain",
        "=v,v",
        [zero],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def notify(word, amount, SITE: tl.constexpr, SCOPE: tl.constexpr):
    """Add to a signal word, with release order, once the whole program's stores are done."""
    _drain(amount)
    tl.debug_barrier()
    tl.atomic_add(word, _mark(amount, SITE), sem="release", scope=SCOPE)


@triton.jit
def notify_set(word, value, SITE: tl.constexpr, SCOPE: tl.constexpr):
    """The same, but the word becomes `value`."""
    _drain(value)
    tl.debug_barrier()
    tl.atomic_xchg(word, _mark(value, SITE), sem="release", scope=SCOPE)


@triton.jit
def _clock(value):
    """A clock, in ns, that all of a GPU's programs share; it counts steps of 10."""
    ticks = tl.inline_asm_elementwise(
        "s_memrealtime $0\n s_waitcnt lgkmcnt(0)",
        "=s,v",
        [value],
        dtype=tl.int64,
        is_pure=False,
        pack=1,
    )
    return ticks * 10


@triton.jit
def stamp(stamps, task, MOMENT: tl.constexpr):
    """Write down when the whole program begins or ends a task."""
    tl.debug_barrier()
    tl.store(stamps + 2 * task + MOMENT, _clock(task))


@triton.jit
def read_clock(word):
    """What the clock of stamps says now. One program."""
    tl.store(word, _clock(0))
