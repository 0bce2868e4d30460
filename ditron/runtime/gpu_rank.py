"""One rank on the current GPU: its memory, its kernels, its host program. Talks to nobody."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ditron.errors import LaunchError
from ditron.plan.launches import Launches, LaunchKind
from ditron.plan.tables import Plan
from ditron.runtime.cuda_driver import StreamCalls, sm_count
from ditron.runtime.gpu_fit import check_beside
from ditron.runtime.gpu_heap import make_heap
from ditron.runtime.gpu_host import Calls, HostProgram, Span, StreamWait
from ditron.runtime.gpu_layout import GpuLayout
from ditron.runtime.gpu_library import bind
from ditron.runtime.gpu_memory import RankMemory
from ditron.runtime.gpu_program import Launch, TritonProgram
from ditron.runtime.gpu_source import load_source
from ditron.runtime.gpu_trace import Ran

# Of a layer above this one, and with Triton in it: by name, when a GPU needs them.
LIBRARY = "ditron.backends.triton.library.common"
COMPILER = "ditron.backends.triton.compile"
CLOCK = "ditron.backends.triton.library.cuda"
STREAM_KERNELS = "ditron.backends.copy_engine.kernels"
# Polls a second of a wait on a device, at most: a bound that the host's clock always beats.
POLLS_S = 5_000_000
# About two milliseconds of a GPU.
HEAD_START_CYCLES = 4_000_000
# Between two looks at a launch that runs, and how long kernels may take to end after a stop.
LOOK_S, DRAIN_S = 20e-6, 20.0


class GpuRank:
    """One rank's memory, streams and kernels.

    Args:
        plan: what runs.
        program: its code.
        rank: which rank this is.
        wait_bound_s: how long a launch may take.
        heap: what makes its memory, as `Options.heap`.
    """

    def __init__(
        self,
        plan: Plan,
        program: TritonProgram,
        rank: int,
        wait_bound_s: float,
        heap: str = "ipc",
    ) -> None:
        self.plan, self.program, self.rank, self.bound_s = plan, program, rank, wait_bound_s
        self.heap = make_heap(heap, GpuLayout.of(plan).total, rank)
        self.main = torch.cuda.Stream()
        self.rescue = torch.cuda.Stream(priority=-1)
        # Launches before the next one; None once a captured graph may have launched by itself.
        self.done: int | None = 0
        self.gave_up: list[int] | None = None

    def connect(
        self, source: Path, bases: Sequence[int], launches: Launches | None = None, epoch: int = 0
    ) -> dict[str, Any]:
        """Load every kernel and bind the launches; returns what the kernels take.

        Args:
            source: the file with the kernels.
            bases: the address of every rank's memory, as this rank sees it: `heap.join`.
            launches: what the host enqueues; by default what the plan says of this rank.
            epoch: launches that count as done.
        """
        self.source = source
        self.memory = RankMemory(self.plan, self.program, self.rank, self.heap.tensor, bases)
        self.reset(epoch)
        if launches is None:
            launches = self.program.host.of_rank(self.rank)
        self.launches = tuple(map(self._with_room, self.program.launches))
        self.host = HostProgram(
            self.plan,
            launches,
            self.memory,
            {launch.op: self.kernel(launch) for launch in self.launches},
            self.calls(),
            self._wait_kernel,
            self._library_call,
        )
        waits = list(self.host.waits.values())
        # Copied to words by copy engines: a kernel might find no SM that is free.
        pinned = torch.cuda.is_available()
        self.one = torch.ones(1, dtype=torch.int32, pin_memory=pinned)
        self.release = torch.zeros(max(len(waits), 1), dtype=torch.int32, pin_memory=pinned)
        return self.load()

    def calls(self) -> Calls:
        """What is put on streams besides kernels."""
        return StreamCalls()

    def kernel(self, launch: Launch) -> Callable[[], object]:
        """What launches a kernel on the current stream."""
        kernel = getattr(load_source(self.source), launch.kernel)[(launch.programs,)]
        arguments = [self.memory.argument(a) for a in launch.arguments]
        options = _options(launch)
        return lambda: kernel(*arguments, **options)

    def load(self) -> dict[str, Any]:
        """Compile and load all kernels, so that no launch has to: that may wait for the GPU."""
        control = self.memory.control()
        self.advance = importlib.import_module(LIBRARY).advance
        self.advance.warmup(control, grid=(1,))._init_handles()
        self.hold = importlib.import_module(STREAM_KERNELS).stream_wait
        word = control[:1]
        self.hold.warmup(control, word, 1, 1, 0, 0, 0, grid=(1,), num_warps=1)._init_handles()
        self.read_clock = importlib.import_module(CLOCK).read_clock
        self.read_clock.warmup(self.memory.stamps, grid=(1,))._init_handles()
        self.host.call_once()
        kernels = {launch.kernel: launch for launch in self.launches}
        found = {name: self._load(launch) for name, launch in kernels.items()}
        check_beside(self.launches, found, sm_count(torch.cuda.current_device()))
        return found

    def _with_room(self, launch: Launch) -> Launch:
        """A launch with as many warps as its kernel wants."""
        if not launch.cooperative:
            return launch
        made = self._made(launch)
        wider = importlib.import_module(COMPILER).with_room(launch, made.n_spills)
        return launch if wider is None else self._with_room(wider)

    def _made(self, launch: Launch) -> Any:  # noqa: ANN401 - Triton's compiled kernel
        kernel = getattr(load_source(self.source), launch.kernel)
        arguments = [self.memory.argument(a) for a in launch.arguments]
        made = kernel.warmup(*arguments, grid=(launch.programs,), **_options(launch))
        made._init_handles()
        return made

    def _load(self, launch: Launch) -> dict[str, int]:
        made = self._made(launch)
        importlib.import_module(COMPILER).check_loaded(launch, made, self.program)
        return {
            "programs": launch.programs,
            "registers": made.n_regs,
            "spills": made.n_spills,
            "shared_bytes": made.metadata.shared,
        }

    def _library_call(self, task: int) -> Callable[[], object]:
        what = self.program.library[int(self.plan.tasks.op[task])]
        views = [self.memory.view(access) for access in self.plan.accesses_of(task)]
        return bind(what, views)

    def _wait_kernel(self, wait: StreamWait) -> object:
        row = wait.row
        word = self.memory.slot_words(row.slot)
        site, task = self._site(wait)
        control = self.memory.control()
        return self.hold[(1,)](
            control, word, wait.count, row.value, row.lag, site, task, num_warps=1
        )

    def _site(self, wait: StreamWait) -> tuple[int, int]:
        """The number of a stream's wait in reports, and its task's within the op on this rank."""
        array = self.plan.signals[int(self.plan.slots.signals[wait.row.slot])]
        site = next(
            i
            for i, s in enumerate(self.program.sites)
            if s.waits and (s.op, s.signals) == (wait.row.op, array)
        )
        mine = (self.plan.tasks.op == wait.row.op) & (self.plan.tasks.rank == self.rank)
        return site, wait.row.task - int(mine.argmax())

    def reset(self, epoch: int = 0) -> None:
        """Back to before the first launch, or to after some."""
        self.memory.poison()
        self.memory.start(epoch, min(int(self.bound_s * POLLS_S), (1 << 31) - 1))
        torch.cuda.synchronize()
        self.done = epoch

    def traced(self, meet: Callable[[], object]) -> list[Ran]:
        """What ran when in a launch of all ranks, which call this together.

        Args:
            meet: waits for all ranks: their clocks are the host's, read right after it.
        """
        spans: list[Span] = []
        torch.cuda.synchronize()
        meet()
        origin, at = torch.cuda.Event(enable_timing=True), time.monotonic_ns()
        clock = torch.zeros(1, dtype=torch.int64, device=self.memory.stamps.device)
        self.memory.stamps.zero_()
        mark = torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(self.main):
            origin.record()
            keep_busy()
            mark.record()
            self.read_clock[(1,)](clock)
        self.enqueue(spans=spans)
        self.finish(lambda: False)
        torch.cuda.synchronize()

        def ns(event: torch.cuda.Event) -> int:
            return at + round(origin.elapsed_time(event) * 1e6)

        found = [(row.op, row.task, ns(begin), ns(end)) for row, begin, end in spans]
        return [*found, *self._stamped(ns(mark) - int(clock))]

    def _stamped(self, ahead: int) -> list[Ran]:
        """What tasks wrote down of themselves; the host's clock is `ahead` of the GPU's, in ns."""
        if not self.program.stamps:
            return []
        stamps = self.memory.stamps.view(-1, 2).cpu().numpy()
        ops = self.plan.tasks.op
        return [
            (int(ops[task]), task, int(stamps[task, 0]) + ahead, int(stamps[task, 1]) + ahead)
            for task in np.flatnonzero(stamps[:, 1]).tolist()
        ]

    def enqueue(
        self, main: torch.cuda.Stream | None = None, spans: list[Span] | None = None
    ) -> None:
        """Put a launch on the streams, behind what `main` has been given. Waits for nothing.

        Raises:
            LaunchError: it is being captured, and its streams' waits would find no SM to wait on.
        """
        main = main or self.main
        if torch.cuda.is_current_stream_capturing():
            self._check_room()
            self.done = None
        self.host.enqueue(main, self.done, spans)
        if not self.program.persistent:
            with torch.cuda.stream(main):
                self.advance[(1,)](self.memory.control())
        if self.done is not None:
            self.done += 1

    def _check_room(self) -> None:
        waits = [w for w in self.host.waits.values() if w.row.stream > 0]
        widest = max([x.programs for x in self.program.launches if x.waits], default=0)
        sms = sm_count(torch.cuda.current_device())
        if waits and widest >= sms:
            task = self.plan.describe_task(waits[0].row.task)
            raise LaunchError(
                f"in a captured launch {task} waits by a kernel of one warp, which finds no room"
                f" beside {widest} programs on {sms} SMs: compile with Options(workers={sms - 1})"
            )

    def finish(self, interrupted: Callable[[], bool]) -> None:
        """Wait for the launches so far, with a bound; on its end, or if interrupted, stop them.

        Raises:
            TimeoutError: they were stopped.
        """
        done = torch.cuda.Event()
        done.record(self.main)
        self.gave_up = None
        start = time.monotonic()
        while not done.query():
            time.sleep(LOOK_S)
            if time.monotonic() - start > self.bound_s or interrupted():
                self.stop(done)
                break
        if self.memory.stop_word().item():
            raise TimeoutError

    def stop(self, done: torch.cuda.Event) -> None:
        """Have every wait give up: kernels by the stop word, streams by what they wait for."""
        with torch.cuda.stream(self.rescue):
            self.memory.stop_word().copy_(self.one, non_blocking=True)
            if self.done is not None:
                self._let_streams_go(self.done - 1)
        until = time.monotonic() + DRAIN_S
        while not done.query():
            if time.monotonic() > until:
                raise LaunchError(f"rank {self.rank}: kernels do not end after a stop")
            time.sleep(LOOK_S)

    def _let_streams_go(self, done: int) -> None:
        for at, wait in enumerate(self.host.waits.values()):
            wanted = wait.wanted(done)
            if wanted is None:
                continue
            seen = int(self.memory.slot_words(wait.row.slot)[0].cpu())
            missing = (wanted - seen + (1 << 31)) % (1 << 32) - (1 << 31)
            if missing <= 0:
                continue
            if self.gave_up is None:
                self.gave_up = [*self._site(wait), seen, wanted]
            self.release[at] = seen + missing
            self.host.calls.copy(
                wait.word, self.release.data_ptr() + 4 * at, 4, self.rescue.cuda_stream
            )

    def record(self) -> list[int] | None:
        """(site, task, seen, wanted) of the first wait that gave up, a kernel's or a stream's."""
        return self.memory.record() or self.gave_up

    def slots(self) -> list[tuple[str, int, int]]:
        """(array, index, word) of every slot of this rank."""
        slots = self.plan.slots
        rows = [int(r) for r in (slots.rank == self.rank).nonzero()[0]]
        found = [(self.plan.signals[int(slots.signals[r])], int(slots.index[r])) for r in rows]
        return [(name, index, self.memory.slot(name, index)) for name, index in found]

    @property
    def waits_on_streams(self) -> bool:
        """Whether a stream beside the main one waits."""
        rows = self.host.rows
        return any(r.kind is LaunchKind.STREAM_WAIT and r.stream > 0 for r in rows)


def keep_busy(cycles: int = HEAD_START_CYCLES) -> None:
    """Keep the current stream busy, so that the host can enqueue a launch meanwhile."""
    sleep: Callable[[int], None] = getattr(torch.cuda, "_sleep")  # noqa: B009 - torch has no other
    sleep(cycles)


def _options(launch: Launch) -> dict[str, Any]:
    return {
        "num_warps": launch.warps,
        "num_stages": launch.stages,
        "enable_fp_fusion": True,
        "launch_cooperative_grid": launch.cooperative,
    }
