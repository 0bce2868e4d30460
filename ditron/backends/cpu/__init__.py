"""The CPU: kernels as torch code, a process a rank."""

from __future__ import annotations

from ditron.backends.base import Backend, Executor
from ditron.backends.cpu.emit import emit_kernels
from ditron.plan.tables import Plan
from ditron.runtime.posix import CpuExecutor


def _load(plan: Plan, source: str, wait_bound_s: float) -> Executor:
    return CpuExecutor(plan, source, wait_bound_s=wait_bound_s)


CPU = Backend("cpu", emit_kernels, _load)
