"""Compile emitted kernels for an architecture, with or without a GPU of it."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ditron.backends.triton.targets import Target
from ditron.errors import OptionError
from ditron.runtime.gpu_program import Launch
from ditron.runtime.gpu_source import load_source


@dataclass(frozen=True)
class Compiled:
    """A compiled kernel: texts by form ("ttgir", "ptx", "amdgcn"), and bytes of shared memory."""

    launch: Launch
    asm: Mapping[str, Any]
    shared_bytes: int

    @property
    def text(self) -> str:
        """The assembly: PTX or GCN."""
        return self.asm["ptx"] if "ptx" in self.asm else self.asm["amdgcn"]


def compile_kernels(path: Path, launches: Iterable[Launch], target: Target) -> list[Compiled]:
    """Compile the kernels in a file, each as its launch says.

    Raises:
        OptionError: Triton is not installed.
    """
    try:
        triton: Any = importlib.import_module("triton")
        backends: Any = importlib.import_module("triton.backends.compiler")
        compiler: Any = importlib.import_module("triton.compiler")
    except ImportError as error:
        raise OptionError(
            f"compiling for {target.name} needs Triton: pip install triton"
        ) from error
    module = load_source(path)
    compiled: list[Compiled] = []
    for launch in launches:
        kernel = getattr(module, launch.kernel)
        signature = {a.name: a.type for a in launch.arguments}
        aligned = {
            (i,): [["tt.divisibility", 16]]
            for i, a in enumerate(launch.arguments)
            if a.type.startswith("*")
        }
        source = compiler.ASTSource(fn=kernel, signature=signature, constexprs={}, attrs=aligned)
        made = triton.compile(
            source,
            target=backends.GPUTarget(target.backend, target.arch, target.warp),
            options={
                "num_warps": launch.warps,
                "num_stages": launch.stages,
                "enable_fp_fusion": True,
            },
        )
        compiled.append(Compiled(launch, made.asm, made.metadata.shared))
    return compiled
