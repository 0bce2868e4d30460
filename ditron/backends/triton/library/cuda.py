"""Waits and notifies on NVIDIA GPUs."""

from __future__ import annotations

import triton
import triton.language as tl

from ditron.backends.triton.library.common import AGE, EPOCH, hold

__all__ = ["AGE", "EPOCH", "notify", "notify_set", "wait"]

_ZERO: tl.constexpr = tl.constexpr("mov.b32 $0, 0;")
HOOKS = {"mov.b32 $0, 0;": 0}


@triton.jit
def wait(control, word, want, site, task, SCOPE: tl.constexpr):
    """Hold this program until a signal word has reached `want`.

    Returns a 0 that the compiler cannot see through. It is to be added to every address that the
    wait guards: stock Triton moves loads across a wait that nothing depends on.
    """
    seen = hold(control, word, want, site, task, SCOPE)
    tl.debug_barrier()
    return tl.inline_asm_elementwise(_ZERO, "=r,r", [seen], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def notify(word, amount, SCOPE: tl.constexpr):
    """Add to a signal word, with release order, once the whole program's stores are done."""
    tl.debug_barrier()
    tl.atomic_add(word, amount, sem="release", scope=SCOPE)


@triton.jit
def notify_set(word, value, SCOPE: tl.constexpr):
    """The same, but the word becomes `value`."""
    tl.debug_barrier()
    tl.atomic_xchg(word, value, sem="release", scope=SCOPE)
