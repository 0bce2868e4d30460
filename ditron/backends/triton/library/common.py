"""What waits and notifies share.

A rank's control words (int32, in device memory) are: `EPOCH` launches done so far, modulo 2^32;
`AGE` the same, but no more than a million, so that it never wraps; `STOP` not 0 once some wait has
given up; `SPINS` polls after which one does; `NEXT` one more than `EPOCH`, which copy engines set
flags to; `ENDED` programs of a persistent launch that have ended; then the record
of the first wait that gave up.
"""

from __future__ import annotations

import triton
import triton.language as tl

EPOCH: tl.constexpr = tl.constexpr(0)
AGE: tl.constexpr = tl.constexpr(1)
STOP: tl.constexpr = tl.constexpr(2)
SPINS: tl.constexpr = tl.constexpr(3)
NEXT: tl.constexpr = tl.constexpr(4)
ENDED: tl.constexpr = tl.constexpr(5)
# The record: 1 once it is taken, then site, task, seen, wanted.
RECORD: tl.constexpr = tl.constexpr(8)
CONTROL_WORDS = 64

# Of a task's two stamps, the place of each.
BEGIN: tl.constexpr = tl.constexpr(0)
END: tl.constexpr = tl.constexpr(1)

# Polls between two looks at the stop word.
LOOK: tl.constexpr = tl.constexpr(64)
OLDEST: tl.constexpr = tl.constexpr(1 << 20)


@triton.jit
def hold(control, word, want, site, task, SCOPE: tl.constexpr):
    """Poll a signal word, with acquire order, until it has reached `want` or the launch stops.

    Comparison is cyclic. Returns what was seen last.
    """
    seen = want - 1
    polls = 0
    going = 1
    while (seen - want < 0) & (going != 0):
        seen = tl.atomic_add(word, 0, sem="acquire", scope=SCOPE)
        polls += 1
        if polls % LOOK == 0:
            stopped = tl.load(control + STOP, volatile=True)
            if (stopped != 0) | (polls >= tl.load(control + SPINS)):
                give_up(control, site, task, seen, want)
                going = 0
    return seen


@triton.jit
def give_up(control, site, task, seen, want):
    """Write down which wait ran out, if it is the first, and stop the launch."""
    if tl.atomic_add(control + RECORD, 1, sem="relaxed", scope="gpu") == 0:
        tl.store(control + RECORD + 1, site)
        tl.store(control + RECORD + 2, task)
        tl.store(control + RECORD + 3, seen)
        tl.store(control + RECORD + 4, want)
    tl.atomic_or(control + STOP, 1, sem="relaxed", scope="gpu")


@triton.jit
def halves(tile):
    """The left and the right half of a tile's columns."""
    rows: tl.constexpr = tile.shape[0]
    half: tl.constexpr = tile.shape[1] // 2
    return tl.split(tl.permute(tl.reshape(tile, (rows, 2, half)), (0, 2, 1)))


@triton.jit
def larger(a, b):
    """The larger of two, element by element; NaN is larger than any number."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def largest(tile, DIM: tl.constexpr, KEEP: tl.constexpr):
    """The greatest along a dimension, which may stay."""
    return tl.reduce(tile, DIM, larger, keep_dims=KEEP)


@triton.jit
def exceeds(a, b):
    """Whether a is larger, element by element; NaN is larger than any number."""
    return (a > b) | ((a != a) & (b == b))


@triton.jit
def first_largest(tile, labels, places, DIM: tl.constexpr, KEEP: tl.constexpr):
    """The label of the greatest along a dimension: of those, of that with the least place."""
    best = largest(tile, DIM, True)
    hit = (tile == best) | ((tile != tile) & (best != best))
    first = tl.min(tl.where(hit, places, 0x7FFFFFFF), DIM, keep_dims=True)
    return tl.sum(tl.where(hit & (places == first), labels, 0), DIM, keep_dims=KEEP)


@triton.jit
def advance(control):
    """End a launch: the next one begins an epoch later. One program."""
    done = tl.load(control + EPOCH) + 1
    tl.store(control + EPOCH, done)
    tl.store(control + NEXT, done + 1)
    tl.store(control + AGE, tl.minimum(tl.load(control + AGE) + 1, OLDEST))


@triton.jit
def retire(control, PROGRAMS: tl.constexpr):
    """End a program of a persistent launch; the last one ends the launch."""
    tl.debug_barrier()
    if tl.atomic_add(control + ENDED, 1, sem="acq_rel", scope="gpu") == PROGRAMS - 1:
        tl.store(control + ENDED, 0)
        advance(control)
