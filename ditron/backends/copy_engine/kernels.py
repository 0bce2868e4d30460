"""Kernels of host programs: a wait of a stream, and a sum of boxes.

A captured launch waits with a kernel of one warp: a captured wait of the driver has one value for
ever, a kernel reads the launch's number. While it polls it takes room on one SM.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl

from ditron.backends.triton.library.common import AGE, EPOCH, hold

ADD_BLOCK = 4096


@triton.jit(do_not_specialize=["count", "value", "lag", "site", "task"])
def stream_wait(control, word, count, value, lag, site, task):
    """Poll a slot until it has reached `value` of the launch `lag` before this one."""
    if tl.load(control + AGE) >= lag:
        want = (tl.load(control + EPOCH) - lag) * count + value
        hold(control, word, want, site, task, "sys")


@triton.jit
def add_in_order(target, parts, size, many: tl.constexpr, block: tl.constexpr):
    """`many` tensors, added in float32 from first to last and rounded once."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < size
    total = tl.zeros((block,), tl.float32)
    for i in tl.static_range(many):
        part = tl.multiple_of(tl.load(parts + i).to(target.dtype), 16)
        total += tl.load(part + at, inside).to(tl.float32)
    tl.store(target + at, total.to(target.dtype.element_ty), inside)


def adder(parts: list[torch.Tensor], target: torch.Tensor) -> Callable[[], object]:
    """A call that adds contiguous tensors of one type on the current stream."""
    assert all(tensor.is_contiguous() for tensor in (*parts, target))
    addresses = torch.tensor([part.data_ptr() for part in parts], device=target.device)
    grid = (triton.cdiv(target.numel(), ADD_BLOCK),)
    return lambda: add_in_order[grid](
        target, addresses, target.numel(), len(parts), ADD_BLOCK, num_warps=8
    )
