"""Compile emitted kernels for an architecture, with or without a GPU of it."""

from __future__ import annotations

import importlib
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ditron.backends.triton.compiled import Compiled
from ditron.backends.triton.gate import check_compiled
from ditron.backends.triton.targets import Target, target_named
from ditron.errors import CompileError, OptionError
from ditron.runtime.gpu_program import Launch, TritonProgram
from ditron.runtime.gpu_source import load_source, write_source

MOST_WARPS = 8


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
                "launch_cooperative_grid": launch.cooperative,
            },
        )
        compiled.append(Compiled(launch, made.asm, made.metadata.shared, _spills(made.asm)))
    return compiled


def with_room(launch: Launch, spills: int) -> Launch | None:
    """A persistent launch with twice the warps, if it spills: all its task kinds share registers.

    None if it may stay as it is, or cannot be wider.
    """
    fits = launch.warps >= MOST_WARPS or not (launch.cooperative and spills)
    return None if fits else replace(launch, warps=2 * launch.warps)


def check_loaded(launch: Launch, made: Any, program: TritonProgram) -> None:  # noqa: ANN401
    """Check a kernel that Triton has compiled and loaded on the GPU at hand.

    Raises:
        CompileError: it does not do what its source says.
    """
    compiled = Compiled(launch, made.asm, made.metadata.shared, 4 * made.n_spills)
    check_compiled(compiled, program.sites, target_named(program.target))


def compile_program(program: TritonProgram) -> list[Compiled]:
    """Compile all kernels of a program for its target and check what came out.

    Raises:
        CompileError: a kernel does not do what its source says, or takes too much.
    """
    target = target_named(program.target)
    with tempfile.TemporaryDirectory(prefix="ditron-") as folder:
        path = write_source(program.source, Path(folder))
        kernels = {launch.kernel: launch for launch in reversed(program.launches)}
        compiled = compile_kernels(path, reversed(kernels.values()), target)
        while wider := [w for one in compiled if (w := with_room(one.launch, one.spills))]:
            compiled = compile_kernels(path, wider, target)
    for one in compiled:
        check_compiled(one, program.sites, target)
        if one.shared_bytes > target.shared_bytes:
            raise CompileError(
                f"@{one.launch.kernel} takes {one.shared_bytes} bytes of shared memory, where"
                f" {target.name} has {target.shared_bytes}: choose a smaller tile"
            )
    return compiled


def _spills(asm: Mapping[str, Any]) -> int:
    """Bytes of stack a thread, which is where registers are spilled to."""
    if "amdgcn" in asm:
        return 4 * sum(int(n) for n in re.findall(r"\.vgpr_spill_count:\s*(\d+)", asm["amdgcn"]))
    triton: Any = importlib.import_module("triton")
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(asm["cubin"])
        file.flush()
        command = [str(tool), "--dump-resource-usage", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return sum(int(n) for n in re.findall(r"STACK:(\d+)", done.stdout))
