"""What a transfer copies: lines of bytes, as the copy engines of a GPU take them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ditron.plan.tables import DTYPE_BYTES, Plan


@dataclass(frozen=True)
class Strip:
    """Lines of a box, in bytes: `height` lines of `width`, one line every `pitch`.

    `source` and `target` are where the first one begins in the buffers' memory at their ranks.
    """

    source: int
    target: int
    width: int
    height: int
    source_pitch: int
    target_pitch: int


def strips(plan: Plan, task: int) -> list[Strip]:
    """What a transfer copies, as few pieces of at most two dimensions; offsets within buffers."""
    source, target = plan.accesses_of(task)
    one, other = _Side.of(plan, source), _Side.of(plan, target)
    width, lines = one.element, list[_Line]()
    for line in reversed([*map(_Line, one.sizes, one.strides, other.strides)]):
        if line.count == 1:
            continue
        if not lines and line.source == line.target == width:
            width *= line.count
        elif lines and line.goes_on(lines[-1]):
            lines[-1] = replace(lines[-1], count=lines[-1].count * line.count)
        else:
            lines.append(line)
    inner = lines[0] if lines else _Line(1, width, width)
    starts = [(one.start, other.start)]
    for line in lines[1:]:
        starts = [
            (s + i * line.source, t + i * line.target) for i in range(line.count) for s, t in starts
        ]
    return [Strip(s, t, width, inner.count, inner.source, inner.target) for s, t in starts]


@dataclass(frozen=True)
class _Line:
    """`count` equal pieces, with the bytes from one to the next at either end."""

    count: int
    source: int
    target: int

    def goes_on(self, inner: _Line) -> bool:
        """Whether this goes on where the inner one ends, at both ends."""
        ends = (inner.count * inner.source, inner.count * inner.target)
        return (self.source, self.target) == ends


@dataclass(frozen=True)
class _Side:
    """One end of a transfer: where its box begins, and strides of its dimensions, in bytes."""

    start: int
    element: int
    sizes: list[int]
    strides: list[int]

    @staticmethod
    def of(plan: Plan, access: int) -> _Side:
        buffer = plan.buffers[int(plan.accesses.buffer[access])]
        dims = len(buffer.capacity)
        lo = plan.accesses.lo[access, :dims].tolist()
        hi = plan.accesses.hi[access, :dims].tolist()
        element = DTYPE_BYTES[buffer.dtype]
        strides = [
            element * int(np.prod(buffer.capacity[d + 1 :], dtype=np.int64)) for d in range(dims)
        ]
        start = sum(at * stride for at, stride in zip(lo, strides, strict=True))
        return _Side(start, element, [b - a for a, b in zip(lo, hi, strict=True)], strides)
