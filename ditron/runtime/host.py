"""The host's part in an interleaved run: it hands inputs over and takes outputs away."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from ditron.plan.tables import Boundary, OpKind, Plan, Role
from ditron.runtime.heap import Heap

Feed = Callable[[str, int, int], torch.Tensor | None]
"""The local shard of (buffer, rank) for a launch 1, 2, ...; None leaves the memory alone."""


def as_feed(feed: Feed | Mapping[tuple[str, int], torch.Tensor]) -> Feed:
    """A feed that gives the same shards to every launch, from a mapping."""
    if callable(feed):
        return feed
    return lambda buffer, rank, _launch: feed.get((buffer, rank))


class Host:
    """Writes and reads buffers where the plan's ACQUIRE and RELEASE tasks say it may.

    A buffer that no task acquires is written once, before the first launch, in all its copies; an
    output that no task releases is read at the end of each launch of its rank (`stream`), or of
    the run (`persistent`).
    """

    def __init__(self, plan: Plan, heap: Heap, feed: Feed) -> None:
        self.outputs: dict[tuple[int, str, int], torch.Tensor] = {}
        self._plan = plan
        self._heap = heap
        self._feed = feed
        self._acquired = self._touched(OpKind.ACQUIRE)
        self._released = self._touched(OpKind.RELEASE)

    def _touched(self, kind: OpKind) -> set[tuple[int, int]]:
        a = self._plan.accesses
        kinds = [op.kind is kind for op in self._plan.ops]
        ops = self._plan.tasks.op[a.task]
        return {(int(a.buffer[i]), int(a.rank[i])) for i in range(len(a)) if kinds[int(ops[i])]}

    def begin(self) -> None:
        """Fill what nobody acquires."""
        for row, buffer in enumerate(self._plan.buffers):
            for rank in range(self._plan.ranks):
                if (row, rank) not in self._acquired:
                    for copy in range(buffer.copies):
                        self._write(row, rank, copy, launch=1)

    def finish_launch(self, rank: int, launch: int) -> None:
        """A rank has ended a launch under a `stream` boundary: read what nobody releases."""
        for row, buffer in enumerate(self._plan.buffers):
            key = (launch, buffer.name, rank)
            if buffer.role is Role.OUTPUT and (row, rank) not in self._released:
                self.outputs[key] = self._local(row, rank, launch).clone()

    def end(self, launches: int) -> None:
        """The run is over."""
        if self._plan.boundary is Boundary.PERSISTENT:
            for rank in range(self._plan.ranks):
                self.finish_launch(rank, launches)

    def touch(self, kind: OpKind, accesses: range, launch: int) -> None:
        """An ACQUIRE or RELEASE task of a launch runs."""
        a = self._plan.accesses
        for access in accesses:
            row, rank = int(a.buffer[access]), int(a.rank[access])
            buffer, view = self._plan.buffers[row], self._local(row, rank, launch)
            if kind is OpKind.ACQUIRE:
                if not self._write(row, rank, launch - 1, launch) and buffer.role is Role.OUTPUT:
                    poison(view)
                continue
            if buffer.role is Role.OUTPUT:
                self.outputs[launch, buffer.name, rank] = view.clone()
            if buffer.role is Role.OUTPUT or (row, rank) in self._acquired:
                poison(view)

    def _local(self, row: int, rank: int, launch: int) -> torch.Tensor:
        return self._heap.local(row, rank, launch - 1)

    def _write(self, row: int, rank: int, copy: int, launch: int) -> bool:
        shard = self._feed(self._plan.buffers[row].name, rank, launch)
        if shard is not None:
            self._heap.local(row, rank, copy).copy_(shard)
        return shard is not None


def poison(view: torch.Tensor) -> None:
    """Overwrite with NaN, or -1 in integers."""
    if view.dtype.is_floating_point:
        view.fill_(float("nan"))
    else:
        view.fill_(-1)
