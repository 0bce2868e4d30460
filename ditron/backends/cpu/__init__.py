"""The CPU: kernels as torch code, a process a rank."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from ditron.analysis.symbols import called_kernels
from ditron.backends.base import Backend, Built
from ditron.backends.cpu.emit import emit_kernels
from ditron.passes.lower_to_shmem import TransportName
from ditron.plan.options import Options
from ditron.plan.tables import Plan
from ditron.runtime.posix import CpuExecutor


def _build(module: ModuleOp, plan: Plan, _: TransportName, options: Options) -> Built:
    source = emit_kernels(called_kernels(module))
    return Built(source, CpuExecutor(plan, source, wait_bound_s=options.wait_bound_s))


CPU = Backend("cpu", "cpu", "cpu", ("posix",), _build)
