"""This process's rank of an executable, among the processes of a group: for use under torchrun."""

from __future__ import annotations

import hashlib
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ditron.errors import HangError, InputError, LaunchError
from ditron.plan.storage import plan_hash
from ditron.plan.tables import Plan, Role
from ditron.runtime.gpu_program import TritonProgram
from ditron.runtime.gpu_rank import GpuRank
from ditron.runtime.gpu_report import hang_report
from ditron.runtime.gpu_source import write_source
from ditron.runtime.gpu_trace import Ran

LOOK_S = 0.2
PACKAGES = ("ditron", "torch", "triton")

Tensors = Mapping[str, torch.Tensor]


class LocalRank:
    """One rank, launched by the process that it lives in. Launches allocate and wait for nothing.

    Args:
        plan: what runs; its ranks are those of the group.
        program: its code.
        wait_bound_s: how long a launch may take before it counts as a hang.
        group: the processes, None for all of them; each on its current device.
        heap: what makes the memory, as `Options.heap`.

    Raises:
        LaunchError: the group is of another size, or its processes did not compile the same.
    """

    def __init__(
        self,
        plan: Plan,
        program: TritonProgram,
        wait_bound_s: float,
        group: dist.ProcessGroup | None,
        heap: str = "ipc",
    ) -> None:
        self.plan, self.program, self.group = plan, program, group
        self.rank, size = dist.get_rank(group), dist.get_world_size(group)
        if size != plan.ranks:
            raise LaunchError(f"{plan.name} is for {plan.ranks} ranks, the group has {size}")
        world = dist.get_world_size()
        if heap == "nvshmem" and size != world:
            raise LaunchError(
                f"NVSHMEM's heap is of all {world} processes, {plan.name} runs in a group of"
                f' {size}: compile with Options(heap="ipc")'
            )
        check_agreement(self._all({**fingerprint(plan, program), "heap": heap}))
        self.gpu = GpuRank(plan, program, self.rank, wait_bound_s, heap)
        bases = self.gpu.heap.join(self._all(self.gpu.heap.offer()))
        self._folder = tempfile.TemporaryDirectory(prefix="ditron-")
        source = write_source(program.source, Path(self._folder.name))
        self.kernels = self.gpu.connect(source, bases)
        self._all(None)  # nobody launches before all words are set
        self.buffers = {b.name: self.gpu.memory.buffer(b.name) for b in plan.buffers}
        of = {role: [b.name for b in plan.buffers if b.role is role] for role in Role}
        self.inputs, self.outputs = of[Role.INPUT], of[Role.OUTPUT]
        self._weights, self._unbound = set(of[Role.WEIGHT]), set(of[Role.WEIGHT])
        self._watch = Watch(self.gpu, wait_bound_s)

    def _all(self, value: Any) -> list[Any]:  # noqa: ANN401 - whatever ranks tell each other
        found: list[Any] = [None] * self.plan.ranks
        tell: Any = getattr(dist, "all_gather_object")  # noqa: B009 - its types are not known
        tell(found, value, group=self.group)
        return found

    def run(
        self, inputs: Tensors, out: Tensors | None = None, stream: torch.cuda.Stream | None = None
    ) -> dict[str, torch.Tensor]:
        """Enqueue one launch.

        Args:
            inputs: this rank's shards, and weights where they are new.
            out: where its outputs go; without it, they are returned where they lie, until the
                next launch.
            stream: behind which to run, the current one by default.

        Raises:
            InputError: a tensor of another name, shape or dtype.
            HangError: an earlier launch was stopped.
        """
        weights = self._unbound | (self._weights & inputs.keys())
        self._check(inputs, [*self.inputs, *sorted(weights)], "input")
        self._check(out or {}, self.outputs if out is not None else [], "output")
        if self._watch.stopped:
            text, where = hang_report(
                self.plan, self.program, {self.rank: (self.gpu.record(), self.gpu.slots())}
            )
            raise HangError(text, where)
        main = stream or torch.cuda.current_stream()
        with torch.cuda.stream(main):
            for name, tensor in inputs.items():
                if tensor.data_ptr() != self.buffers[name].data_ptr():
                    self.buffers[name].copy_(tensor, non_blocking=True)
            self._unbound.clear()
            self.gpu.enqueue(main)
            for name, tensor in (out or {}).items():
                tensor.copy_(self.buffers[name], non_blocking=True)
            if not torch.cuda.is_current_stream_capturing():
                self._watch.launched(main)
        return dict(out) if out is not None else {n: self.buffers[n] for n in self.outputs}

    def traced(self) -> list[list[Ran]]:
        """What ran when in one launch more on the inputs in place, of every rank."""
        return self._all(self.gpu.traced(lambda: self._all(None)))

    def _check(self, given: Tensors, wanted: Sequence[str], what: str) -> None:
        if set(given) != set(wanted):
            names = ", ".join(wanted) or "none"
            raise InputError(f"rank {self.rank} takes {what}s {names}, got {', '.join(given)}")
        for name, tensor in given.items():
            have = self.buffers[name]
            if (tensor.shape, tensor.dtype) != (have.shape, have.dtype):
                raise InputError(
                    f"{what} {name} of rank {self.rank} is {tuple(have.shape)} {have.dtype}, got"
                    f" {tuple(tensor.shape)} {tensor.dtype}"
                )

    def close(self) -> None:
        """Stop watching and let go of the memory; of a heap by NVSHMEM all processes do so."""
        self._watch.close()
        torch.cuda.synchronize()
        self.gpu.heap.close()
        self._folder.cleanup()


class Watch:
    """Stops launches that make no progress; looks from a thread, so that no launch has to wait."""

    def __init__(self, gpu: GpuRank, bound_s: float) -> None:
        self.stopped = False
        self._pending: deque[torch.cuda.Event] = deque()
        self._since = time.monotonic()
        self._over = threading.Event()
        device = torch.cuda.current_device() if torch.cuda.is_available() else 0
        self.close = weakref.finalize(self, self._over.set)
        threading.Thread(
            target=_look, args=(weakref.ref(self), self._over, gpu, bound_s, device), daemon=True
        ).start()

    def launched(self, stream: torch.cuda.Stream) -> None:
        """A launch has been enqueued."""
        event = torch.cuda.Event()
        event.record(stream)
        if not self._pending:
            self._since = time.monotonic()
        self._pending.append(event)

    def late(self, bound_s: float) -> torch.cuda.Event | None:
        """The last launch, if the first that is not done has run for too long."""
        while self._pending and self._pending[0].query():
            self._pending.popleft()
            self._since = time.monotonic()
        if self._pending and time.monotonic() - self._since > bound_s:
            return self._pending[-1]
        return None


def _look(
    watch: weakref.ref[Watch], over: threading.Event, gpu: GpuRank, bound_s: float, device: int
) -> None:
    if torch.cuda.is_available():
        torch.cuda.set_device(device)
    while not over.wait(LOOK_S):
        mine = watch()
        if mine is None:
            return
        event = mine.late(bound_s)
        if event is not None:
            mine.stopped = True
            gpu.stop(event)
            return


def fingerprint(plan: Plan, program: TritonProgram) -> dict[str, str]:
    """What all ranks must have in common, part by part."""
    placeless = replace(plan, ops=tuple(replace(op, location="") for op in plan.ops))
    return {
        "versions": ", ".join(f"{name} {_version(name)}" for name in PACKAGES),
        "plan": plan_hash(placeless),
        "kernels": hashlib.sha256(program.source.encode()).hexdigest(),
    }


def check_agreement(found: Sequence[Mapping[str, str]]) -> None:
    """Refuse ranks that differ.

    Raises:
        LaunchError: some do; the message names them and the first part that differs.
    """
    for part, first in found[0].items():
        others = {rank: own[part] for rank, own in enumerate(found) if own[part] != first}
        if others:
            ranks = ", ".join(map(str, others))
            (other, *_) = others.values()
            raise LaunchError(
                f"ranks {ranks} have other {part} than rank 0: {other[:64]}, not {first[:64]};"
                " compile the same program with the same options on all of them"
            )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
