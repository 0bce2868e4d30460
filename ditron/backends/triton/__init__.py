"""GPUs: kernels as Triton code, for NVIDIA and AMD. Imports Triton only when it is used."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NoReturn

import torch
from xdsl.dialects.builtin import ModuleOp

from ditron.analysis.symbols import device_program
from ditron.backends.base import Backend, Built, Executor
from ditron.backends.megakernel.emit import emit_megakernel
from ditron.backends.triton.compile import compile_program
from ditron.backends.triton.emit import emit_module
from ditron.backends.triton.targets import TARGETS, target_named
from ditron.errors import LaunchError
from ditron.passes.lower_to_shmem import TRANSPORTS, TransportName
from ditron.plan.options import Options
from ditron.plan.tables import Plan
from ditron.runtime.cuda import CudaExecutor
from ditron.runtime.gpu_program import TritonProgram

MACHINES = {"cuda": "h200", "hip": "mi300x8"}
FAMILIES = {"cuda": "cuda", "hip": "rocm"}
TRANSPORTS_OF: dict[str, tuple[TransportName, ...]] = {
    "cuda": ("peer", "copy-engine"),
    "hip": ("peer",),
}


class CrossExecutor:
    """Stands where an executor would, for an architecture that is compiled for and not run on."""

    def __init__(self, plan: Plan, program: TritonProgram, target: str) -> None:
        self.plan, self.program, self.target = plan, program, target

    def assembly(self) -> str:
        """Every kernel's assembly (PTX or AMD's ISA), compiled and checked.

        Raises:
            CompileError: a kernel does not do what its source says, or takes too much.
        """
        return "\n".join(kernel.text for kernel in compile_program(self.program))

    def _refuse(self) -> NoReturn:
        raise LaunchError(
            f"{self.plan.name} was compiled for {self.target}, which is not run from here: compile"
            " for target cuda where the GPU is"
        )

    def write(self, buffer: str, rank: int, tensor: torch.Tensor) -> None:
        """Not here."""
        self._refuse()

    def read(self, buffer: str, rank: int) -> torch.Tensor:
        """Not here."""
        self._refuse()

    def launch(self) -> None:
        """Not here."""
        self._refuse()

    def measure(self, repeats: int) -> list[float]:
        """Not here."""
        self._refuse()

    def trace(self, path: str | Path) -> None:
        """Not here."""
        self._refuse()

    def reset(self) -> None:
        """Nothing to reset."""

    def close(self) -> None:
        """Nothing to close."""


def _build(
    arch: str, run: bool, module: ModuleOp, plan: Plan, transport: TransportName, options: Options
) -> Built:
    target = target_named(arch)
    if device_program(module).persistent is not None:
        program = emit_megakernel(module, plan, target, stamps=options.stamps)
    else:
        driven = TRANSPORTS[transport].driven
        program = emit_module(module, plan, target, driven, stamps=options.stamps)
    executor: Executor = CrossExecutor(plan, program, arch)
    if run:
        executor = CudaExecutor(plan, program, options.wait_bound_s, options.heap or "ipc")
    return Built(program.source, executor, program.host)


def _backend(name: str, arch: str, *, run: bool = False) -> Backend:
    vendor = TARGETS[arch].backend
    build = partial(_build, arch, run)
    return Backend(name, FAMILIES[vendor], MACHINES[vendor], TRANSPORTS_OF[vendor], build)


# "cuda" runs here; a named architecture is compiled for.
GPUS = {
    "cuda": _backend("cuda", "sm_90", run=True),
    "rocm": _backend("rocm", "gfx942"),
    **{arch: _backend(arch, arch) for arch in TARGETS},
}
