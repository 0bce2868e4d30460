"""Waits and notifies on AMD GPUs.

A release drains the stores of the wave that does it only, so every wave drains its own before the
barrier (Triton emits no such wait; whether the hardware needs it was not tried).
"""

from __future__ import annotations

import triton
import triton.language as tl

from ditron.backends.triton.library.common import AGE, EPOCH, hold

__all__ = ["AGE", "EPOCH", "notify", "notify_set", "wait"]

_ZERO: tl.constexpr = tl.constexpr("v_mov_b32 $0, 0")
_DRAIN: tl.constexpr = tl.constexpr("s_waitcnt vmcnt(0)\nv_mov_b32 $0, 0")
HOOKS = {"v_mov_b32 $0, 0": 0, "s_waitcnt vmcnt(0)\nv_mov_b32 $0, 0": 0}


@triton.jit
def wait(control, word, want, site, task, SCOPE: tl.constexpr):
    """Hold this program until a signal word has reached `want`.

    Returns a 0 that the compiler cannot see through. It is to be added to every address that the
    wait guards: stock Triton moves loads across a wait that nothing depends on.
    """
    seen = hold(control, word, want, site, task, SCOPE)
    tl.debug_barrier()
    return tl.inline_asm_elementwise(_ZERO, "=v,v", [seen], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def drain(zero):
    """Let every wave's stores reach memory."""
    return tl.inline_asm_elementwise(_DRAIN, "=v,v", [zero], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def notify(word, amount, SCOPE: tl.constexpr):
    """Add to a signal word, with release order, once the whole program's stores are done."""
    drain(amount)
    tl.debug_barrier()
    tl.atomic_add(word, amount, sem="release", scope=SCOPE)


@triton.jit
def notify_set(word, value, SCOPE: tl.constexpr):
    """The same, but the word becomes `value`."""
    drain(value)
    tl.debug_barrier()
    tl.atomic_xchg(word, value, sem="release", scope=SCOPE)
