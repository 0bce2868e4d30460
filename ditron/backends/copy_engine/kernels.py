"""A wait of a stream as a kernel of one warp: what a captured launch waits with.

A captured wait of the driver has one value for ever, a kernel reads the launch's number. While it
polls it takes room on one SM.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ditron.backends.triton.library.common import AGE, EPOCH, hold


@triton.jit(do_not_specialize=["count", "value", "lag", "site", "task"])
def stream_wait(control, word, count, value, lag, site, task):
    """Poll a slot until it has reached `value` of the launch `lag` before this one."""
    if tl.load(control + AGE) >= lag:
        want = (tl.load(control + EPOCH) - lag) * count + value
        hold(control, word, want, site, task, "sys")
