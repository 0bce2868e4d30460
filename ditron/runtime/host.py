"""The host's part in an interleaved run: it hands inputs over and takes outputs away."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch

from ditron.plan.tables import Boundary, OpKind, Plan, Role
from ditron.runtime.heap import Heap

HAND_OVERS = (OpKind.ACQUIRE, OpKind.RELEASE)

Feed = Callable[[str, int, int], torch.Tensor | None]
"""The local shard of (buffer, rank) for a launch 1, 2, ...; None leaves the memory alone."""


def as_feed(feed: Feed | Mapping[tuple[str, int], torch.Tensor]) -> Feed:
    """A feed that gives the same shards to every launch, from a mapping."""
    if callable(feed):
        return feed
    return lambda buffer, rank, _launch: feed.get((buffer, rank))


class Host:
    """Writes and reads buffers when the execution model says that the host does.

    Under a `stream` boundary that is between two launches of a rank: the host writes the rank's
    inputs before one begins and takes its outputs (and spoils both) after it has ended. It keeps
    away from a buffer that peers touch, unless tasks acquire and release it. Under `persistent`
    there is no such time: the ACQUIRE and RELEASE tasks themselves stand for it.

    A buffer that is never handed over is written once, before all launches, in all its copies.
    """

    def __init__(self, plan: Plan, heap: Heap, feed: Feed) -> None:
        self.outputs: dict[tuple[int, str, int], torch.Tensor] = {}
        self._plan = plan
        self._heap = heap
        self._feed = feed
        self._stream = plan.boundary is Boundary.STREAM
        a = plan.accesses
        kinds = [plan.ops[int(op)].kind for op in plan.tasks.op[a.task]]
        touched = {k: {self._place(i) for i, x in enumerate(kinds) if x is k} for k in HAND_OVERS}
        foreign = plan.tasks.rank[a.task] != a.rank
        shared = {self._place(int(i)) for i in np.flatnonzero(foreign)}
        everything = {(b, r) for b in range(len(plan.buffers)) for r in range(plan.ranks)}
        own = everything - shared if self._stream else set[tuple[int, int]]()
        self._filled = touched[OpKind.ACQUIRE] | own
        self._taken = touched[OpKind.RELEASE] | own

    def _place(self, access: int) -> tuple[int, int]:
        a = self._plan.accesses
        return int(a.buffer[access]), int(a.rank[access])

    def begin(self) -> None:
        """Before all launches: fill what is never handed over."""
        for row, buffer in enumerate(self._plan.buffers):
            for rank in range(self._plan.ranks):
                if buffer.role is Role.STATE:
                    self._begin_state(row, rank)
                elif (row, rank) not in self._filled:
                    for copy in range(buffer.copies):
                        self._write(row, rank, copy, launch=1)

    def _begin_state(self, row: int, rank: int) -> None:
        """Zeros, or what it is fed; nothing later, since it lives on."""
        self._heap.local(row, rank, 0).zero_()
        self._write(row, rank, 0, launch=1)

    def begin_launch(self, rank: int, launch: int) -> None:
        """A rank is about to begin a launch under a `stream` boundary."""
        for row in range(len(self._plan.buffers)):
            if (row, rank) in self._filled:
                self._fill(row, rank, launch)

    def end_launch(self, rank: int, launch: int) -> None:
        """A rank has ended a launch under a `stream` boundary."""
        for row in range(len(self._plan.buffers)):
            self._take(row, rank, launch)

    def end(self, launches: int) -> None:
        """After all launches: take the outputs that no task has released."""
        if not self._stream:
            for row in range(len(self._plan.buffers)):
                for rank in range(self._plan.ranks):
                    if (row, rank) not in self._taken:
                        self._take(row, rank, launches)

    def touch(self, kind: OpKind, accesses: range, launch: int) -> None:
        """An ACQUIRE or RELEASE task of a launch runs."""
        for access in accesses if not self._stream else ():
            row, rank = self._place(access)
            if kind is OpKind.ACQUIRE:
                self._fill(row, rank, launch)
            else:
                self._take(row, rank, launch)

    def _fill(self, row: int, rank: int, launch: int) -> None:
        fed = self._write(row, rank, launch - 1, launch)
        if not fed and self._plan.buffers[row].role is Role.OUTPUT:
            poison(self._local(row, rank, launch))

    def _take(self, row: int, rank: int, launch: int) -> None:
        buffer, view = self._plan.buffers[row], self._local(row, rank, launch)
        if buffer.role in (Role.OUTPUT, Role.STATE):
            self.outputs[launch, buffer.name, rank] = view.clone()
        both = (row, rank) in self._filled & self._taken
        if both and buffer.role in (Role.INPUT, Role.OUTPUT):
            poison(view)

    def _local(self, row: int, rank: int, launch: int) -> torch.Tensor:
        return self._heap.local(row, rank, launch - 1)

    def _write(self, row: int, rank: int, copy: int, launch: int) -> bool:
        if self._plan.buffers[row].role is Role.STATE and launch > 1:
            return False
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
