"""What every backend offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
import torch.distributed as dist
from xdsl.dialects.builtin import ModuleOp

from ditron.passes.lower_to_shmem import TransportName
from ditron.plan.launches import Launches
from ditron.plan.options import Options
from ditron.plan.tables import Plan


class Executor(Protocol):
    """Runs one plan. Buffers are addressed by name and rank and hold local shards."""

    def write(self, buffer: str, rank: int, tensor: torch.Tensor) -> None:
        """Put a rank's shard of an input or weight in place."""
        ...

    def read(self, buffer: str, rank: int) -> torch.Tensor:
        """A copy of what a rank holds of a buffer after the last launch."""
        ...

    def launch(self) -> None:
        """Run one launch on all ranks."""
        ...

    def measure(self, repeats: int) -> list[float]:
        """Seconds of each of some launches, slowest rank."""
        ...

    def trace(self, path: str | Path) -> None:
        """Run one launch and write what ran when as a Chrome trace."""
        ...

    def reset(self) -> None:
        """Make it usable after a launch that did not finish."""
        ...

    def close(self) -> None:
        """Let go of processes and memory."""
        ...


@runtime_checkable
class Assembly(Protocol):
    """An executor that can show what its kernels were compiled to."""

    def assembly(self) -> str:
        """The assembly of all kernels."""
        ...


@runtime_checkable
class Local(Protocol):
    """An executor that can run one rank in the process that it is in."""

    def run_local(
        self,
        inputs: Mapping[str, torch.Tensor],
        out: Mapping[str, torch.Tensor] | None,
        stream: torch.cuda.Stream | None,
        group: dist.ProcessGroup | None,
    ) -> dict[str, torch.Tensor]:
        """Enqueue a launch of this process's rank."""
        ...


@dataclass(frozen=True)
class Built:
    """What a backend makes of a module: readable source, what runs it, what hosts enqueue."""

    source: str
    executor: Executor
    host: Launches | None = None


@dataclass(frozen=True)
class Backend:
    """A target.

    Attributes:
        name: as users say it.
        family: what a machine's `target` has to be.
        machine: the machine that is meant when none is named.
        transports: ways to carry out transfers and signals, the usual one first.
        build: emits the kernels of a module that was lowered to a transport, with its plan (same
            IR, same text), and loads them.
    """

    name: str
    family: str
    machine: str
    transports: tuple[TransportName, ...]
    build: Callable[[ModuleOp, Plan, TransportName, Options], Built]
