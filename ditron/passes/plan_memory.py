"""plan-memory: give every buffer its place in the heap.

    %h = device.buffer "h" scratch[512, 64] : !device.buffer<512x64xf32, local>
    ->
    %h = device.buffer "h" scratch[512, 64] offset 131072 : !device.buffer<512x64xf32, local>

Needs: decomposed collectives, so that all grids are there. Ensures: an offset on every buffer, the
same on all ranks; buffers share bytes only if both are scratch that no peer touches, and no grid
lies in both lifetimes. The first access of the later one then follows the last of the earlier one
like any overwrite, by `insert-signals`. The largest are placed first, each at the lowest offset
that fits: Source: greedy by size, as in Pisarchyk and Lee, "Efficient Memory Management for Deep
Neural Net Inference" (2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.passes import ModulePass

from ditron.analysis.liveness import Lifetime, lifetimes
from ditron.analysis.symbols import device_program
from ditron.errors import OptionError
from ditron.ir import device
from ditron.plan.tables import DTYPE_BYTES


@dataclass(frozen=True)
class PlanMemoryPass(ModulePass):
    """See the module's docstring; `align` is in bytes."""

    name = "plan-memory"

    reuse: bool = True
    align: int = 256

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.align < 1:
            raise OptionError(f"plan-memory aligns to at least 1 byte, got {self.align}")
        program = device_program(op)
        buffers = lifetimes(program)
        sizes = [self._rounded(_bytes(b.buffer)) for b in buffers]
        offsets = place(buffers, sizes, reuse=self.reuse)
        for lifetime, offset in zip(buffers, offsets, strict=True):
            lifetime.buffer.offset = IntegerAttr(offset, i64)
        total = max((o + s for o, s in zip(offsets, sizes, strict=True)), default=0)
        program.heap_bytes = IntegerAttr(total, i64)

    def _rounded(self, size: int) -> int:
        return -(-size // self.align) * self.align


def place(buffers: Sequence[Lifetime], sizes: Sequence[int], *, reuse: bool) -> list[int]:
    """An offset in bytes for each buffer: those the host touches first, then the largest."""
    order = sorted(range(len(buffers)), key=lambda i: (buffers[i].private, -sizes[i], i))
    offsets: dict[int, int] = {}
    for i in order:
        others = [j for j in offsets if not reuse or buffers[i].meets(buffers[j])]
        at = 0
        for start, end in sorted((offsets[j], offsets[j] + sizes[j]) for j in others):
            if at + sizes[i] <= start:
                break
            at = max(at, end)
        offsets[i] = at
    return [offsets[i] for i in range(len(buffers))]


def _bytes(buffer: device.BufferOp) -> int:
    type_ = buffer.result.type
    size = DTYPE_BYTES[type_.dtype]
    for dim in type_.dims:
        size *= dim
    return size
