"""CPU time of rank processes, as Linux counts it: what a launch costs, whoever else is running."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def rank_pids() -> list[int]:
    """Processes that this process's children have started: the ranks that a zygote forks."""
    parent = {int(p.name): _parent(p) for p in Path("/proc").iterdir() if p.name.isdigit()}
    children = {pid for pid, of in parent.items() if of == os.getpid()}
    return sorted(pid for pid, of in parent.items() if of in children)


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return -1


def core_seconds(pids: Iterable[int]) -> float:
    """CPU seconds that processes have used so far."""
    return sum(int(Path(f"/proc/{p}/schedstat").read_text().split()[0]) for p in pids) * 1e-9
