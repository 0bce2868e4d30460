"""What every backend offers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from ditron.ir.core import FuncOp
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


@dataclass(frozen=True)
class Backend:
    """A target: `emit` makes source of core kernels (same IR, same text), `load` runs a plan."""

    name: str
    emit: Callable[[Iterable[FuncOp]], str]
    load: Callable[[Plan, str, float], Executor]  # plan, kernel source, bound of waits in s
