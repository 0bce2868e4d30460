"""Waits and notifies on NVIDIA GPUs."""

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
    "fence_loads",
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
    "mov.b32 $0, 0": ("is", 0),
    "mov.b32 $0, $1": ("operand", 0),
    "fence.proxy.async": ("operand", 0),
    "bar.sync 0": ("operand", 0),
    "mov.u64 $0, %globaltimer": ("clock", 0),
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
        f"mov.b32 $0, 0; // wait {SITE}",
        "=r,r",
        [seen],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def fence_loads(token):
    """Let loads through tensor descriptors see what the waits before have seen.

    They go another way to memory than the stores that the waits tell of (PTX calls it the async
    proxy), and nothing orders the two but this. Returns the token, for the loads to depend on.
    """
    return tl.inline_asm_elementwise(
        "fence.proxy.async.global; mov.b32 $0, $1;",
        "=r,r",
        [token],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def enter(lane, KIND: tl.constexpr):
    """Mark in the compiled text where the code of a task kind begins."""
    tl.inline_asm_elementwise(
        f"mov.b32 $0, $1; // enter {KIND}",
        "=r,r",
        [lane],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def _mark(value, SITE: tl.constexpr):
    """`value`, by an instruction that tells in the compiled text which notify it belongs to."""
    return tl.inline_asm_elementwise(
        f"mov.b32 $0, $1; // notify {SITE}",
        "=r,r",
        [value],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def _meet(value):
    """`value`, once all threads of the program are here.

    A barrier that Triton knows of would keep the loads of a loop from running ahead.
    """
    return tl.inline_asm_elementwise(
        "bar.sync 0; mov.b32 $0, $1;",
        "=r,r",
        [value],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def notify(word, amount, SITE: tl.constexpr, SCOPE: tl.constexpr):
    """Add to a signal word, with release order, once the whole program's stores are done."""
    tl.atomic_add(word, _mark(_meet(amount), SITE), sem="release", scope=SCOPE)


@triton.jit
def notify_set(word, value, SITE: tl.constexpr, SCOPE: tl.constexpr):
    """The same, but the word becomes `value`."""
    tl.atomic_xchg(word, _mark(_meet(value), SITE), sem="release", scope=SCOPE)


@triton.jit
def _clock(value):
    """A clock, in ns, that all of a GPU's programs share."""
    return tl.inline_asm_elementwise(
        "mov.u64 $0, %globaltimer;",
        "=l,r",
        [value],
        dtype=tl.int64,
        is_pure=False,
        pack=1,
    )


@triton.jit
def stamp(stamps, task, MOMENT: tl.constexpr):
    """Write down when the whole program begins or ends a task."""
    tl.store(stamps + 2 * task + MOMENT, _clock(_meet(task)))


@triton.jit
def read_clock(word):
    """What the clock of stamps says now. One program."""
    tl.store(word, _clock(0))
