"""Runs emitted kernels on the CPU under Triton's interpreter, all ranks' programs interleaved.

Every program of every rank is a greenlet; each atomic may switch to another one, picked by a seed.
A rank's two streams run their kernels in order, a launch after the other; ranks run freely. It
finds wrong code, orders and thresholds, not weak-memory faults; the proofs judge those on the plan.
Needs `greenlet` and `ml_dtypes`, and changes Triton for good: use it in a process of its own.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import greenlet
import torch

from ditron.backends.triton import interpreter_patch as patch
from ditron.errors import DeadlockError
from ditron.plan.tables import Plan, Role
from ditron.runtime.gpu_layout import GpuLayout
from ditron.runtime.gpu_memory import RankMemory
from ditron.runtime.gpu_program import Launch, TritonProgram
from ditron.runtime.gpu_source import load_source

Feed = Callable[[str, int, int], torch.Tensor | None]
Outputs = dict[tuple[int, str, int], torch.Tensor]


@dataclass(eq=False)
class _Program:
    """One program of a kernel in flight."""

    name: str
    let: Any
    index: int
    count: int
    polled: tuple[bytes, int] | None = None
    blocked: int = -1


@dataclass
class _Stream:
    """Kernels of one rank that run one after another."""

    kernels: Iterator[Launch]
    running: list[_Program] = field(default_factory=list[_Program])


class Scheduler:
    """Interleaves programs; see the module's docstring."""

    def __init__(
        self, plan: Plan, program: TritonProgram, source: Path, seed: int, epoch: int
    ) -> None:
        self.plan, self.program = plan, program
        total = GpuLayout.of(plan).total
        parts = [torch.zeros(total, dtype=torch.uint8) for _ in range(plan.ranks)]
        bases = [part.data_ptr() for part in parts]
        self.memory = [RankMemory(plan, program, r, part, bases) for r, part in enumerate(parts)]
        for memory in self.memory:
            memory.poison()
            memory.start(epoch)
        self.module = load_source(source)
        self.advance = importlib.import_module("ditron.backends.triton.library.common").advance
        self.rng = random.Random(seed)
        self.version = 0
        self.switches = 0
        self.current: _Program | None = None
        self.hub = greenlet.getcurrent()

    def run(self, feed: Feed, launches: int) -> Outputs:
        """Run launches; returns outputs by (launch, buffer, rank)."""
        patch.after_atomic[:] = [self._after_atomic]
        outputs: Outputs = {}
        ranks = [self._rank(rank, feed, launches, outputs) for rank in range(self.plan.ranks)]
        streams = {rank: next(r) for rank, r in enumerate(ranks)}
        while streams:
            for rank in list(streams):
                left = [self._refill(rank, stream) for stream in streams[rank]]
                if not any(left):
                    following = next(ranks[rank], None)
                    if following is None:
                        del streams[rank]
                    else:
                        streams[rank] = following
                    self.version += 1
            live = [(s, p) for ss in streams.values() for s in ss for p in s.running]
            if live:
                self._step(live)
        return outputs

    def _rank(
        self, rank: int, feed: Feed, launches: int, outputs: Outputs
    ) -> Iterator[list[_Stream]]:
        """The streams of each launch of a rank; what the host does lies between."""
        for launch in range(launches):
            for buffer in self.plan.buffers:
                known = buffer.role in (Role.INPUT, Role.WEIGHT)
                if known or (buffer.role is Role.STATE and launch == 0):
                    given = feed(buffer.name, rank, launch if known else launches - 1)
                    self.memory[rank].buffer(buffer.name).copy_(0 if given is None else given)
            kernels = self.program.launches
            yield [_Stream(iter([k for k in kernels if k.copies == s])) for s in (True, False)]
            if not self.program.persistent:
                self.advance[(1,)](self.memory[rank].control())
            for buffer in self.plan.buffers:
                view = self.memory[rank].buffer(buffer.name)
                if buffer.role in (Role.OUTPUT, Role.STATE):
                    outputs[launch, buffer.name, rank] = view.clone()
                if buffer.role in (Role.INPUT, Role.OUTPUT):
                    view.view(torch.uint8).fill_(0xFF) if view.numel() else None

    def _refill(self, rank: int, stream: _Stream) -> bool:
        """Start the next kernel where the last one has ended; whether anything is left."""
        while not stream.running:
            kernel = next(stream.kernels, None)
            if kernel is None:
                return False
            stream.running = self._programs(rank, kernel)
        return True

    def _programs(self, rank: int, kernel: Launch) -> list[_Program]:
        fn = getattr(self.module, kernel.kernel)
        body = fn.rewrite()
        patch.interpreter._patch_lang(body)
        args = [
            patch.interpreter._implicit_cvt(self.memory[rank].argument(a)) for a in kernel.arguments
        ]
        return [
            _Program(
                f"@{kernel.kernel} on rank {rank}, program {index}",
                greenlet.greenlet(lambda: body(*args), self.hub),
                index,
                kernel.programs,
            )
            for index in range(kernel.programs)
        ]

    def _step(self, live: list[tuple[_Stream, _Program]]) -> None:
        able = [(s, p) for s, p in live if p.blocked != self.version]
        if not able:
            waiting = "; ".join(p.name for _, p in live)
            raise DeadlockError(f"{self.plan.name}: nothing can run; waiting: {waiting}")
        stream, program = self.rng.choice(able)
        self.current = program
        builder = patch.interpreter.interpreter_builder
        builder.set_grid_dim(program.count, 1, 1)
        builder.set_grid_idx(program.index, 0, 0)
        self.switches += 1
        program.let.switch()
        self.current = None
        if program.let.dead:
            stream.running.remove(program)
            self.version += 1

    def _after_atomic(self, changed: bool, address: bytes) -> None:
        """A program that polls the same word twice, nothing having changed, is set aside."""
        program = self.current
        if program is None:
            return
        if changed:
            self.version += 1
            program.polled = None
        else:
            if program.polled == (address, self.version):
                program.blocked = self.version
            program.polled = (address, self.version)
        self.hub.switch()


def run_interpreted(
    plan: Plan,
    program: TritonProgram,
    source: Path,
    feed: Feed,
    *,
    seed: int = 0,
    launches: int = 1,
    epoch: int = 0,
) -> tuple[Outputs, list[torch.Tensor]]:
    """Run a program whose source was written to a file.

    Args:
        plan: what the program was emitted from.
        program: emitted code.
        source: the file.
        feed: the local shard of (buffer, rank, launch).
        seed: picks the order.
        launches: how many launches.
        epoch: launches that count as done before the first.

    Returns:
        Outputs by (launch, buffer, rank); of each rank, when its tasks began and ended last.

    Raises:
        DeadlockError: no program can go on.
    """
    scheduler = Scheduler(plan, program, source, seed, epoch)
    outputs = scheduler.run(feed, launches)
    return outputs, [memory.stamps.view(-1, 2) for memory in scheduler.memory]
