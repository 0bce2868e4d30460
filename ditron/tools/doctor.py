"""`ditron doctor`: what this machine can run, and what is missing for the rest."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version

from ditron.tools.show import columns, console

PACKAGES = ("xdsl", "torch", "numpy", "llvmlite", "triton", "cuda-bindings", "nvshmem4py-cu13")
TESTED_XDSL = "0.75.0"
_TRITON_REMEDY = _NVSHMEM_REMEDY = "pip install 'ditron[nvidia]'"
LLVMLITE_HINT = "pip install llvmlite"
MIN_SHARED_BYTES = 64 << 20


@dataclass(frozen=True)
class Finding:
    """One thing that a target needs. `remedy`: what to do where it is missing."""

    target: str
    need: str
    found: bool
    detail: str
    remedy: str = ""


def examine() -> list[Finding]:
    """Everything that some target needs, present or not."""
    return [*_cpu(), *_cuda(), *_nvshmem(), *_rocm()]


def can_run(findings: list[Finding], target: str) -> bool:
    """Whether a target has all it needs."""
    return all(f.found for f in findings if f.target == target)


def targets(findings: list[Finding]) -> list[str]:
    """The targets, in the order in which they were examined."""
    return list(dict.fromkeys(f.target for f in findings))


def machine() -> dict[str, str]:
    """What this machine is, in words."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "system": f"{platform.system()} {platform.release()} on {platform.machine()}",
        "python": platform.python_version(),
        "cores": str(cores),
        "memory": f"{_memory_bytes() / 2**30:.1f} GiB",
        **{name: installed(name) or "not installed" for name in PACKAGES},
    }


def installed(package: str) -> str | None:
    """A package's version, if it is installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _cpu() -> Iterator[Finding]:
    xdsl = installed("xdsl") or "none"
    right = xdsl == TESTED_XDSL
    yield Finding("cpu", "xdsl", right, xdsl, f"pip install xdsl=={TESTED_XDSL}")
    torch = installed("torch")
    yield Finding("cpu", "torch", torch is not None, torch or "none", "pip install torch")
    llvm = installed("llvmlite")
    yield Finding("cpu", "atomics", llvm is not None, f"llvmlite {llvm}", LLVMLITE_HINT)
    fork = hasattr(os, "fork")
    remedy = "run on Linux or macOS"
    yield Finding("cpu", "a process a rank", fork, "fork" if fork else "no fork", remedy)
    anonymous = hasattr(os, "memfd_create")
    free = shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else 0
    detail = "memfd" if anonymous else f"/dev/shm, {free >> 20} MiB free"
    enough = anonymous or free >= MIN_SHARED_BYTES
    yield Finding("cpu", "shared memory", enough, detail, "enlarge /dev/shm")


def _cuda() -> Iterator[Finding]:
    devices = _cuda_devices()
    remedy = "an NVIDIA GPU and its driver; without one, compile for sm_90 and run on the CPU"
    yield Finding("cuda", "GPUs", devices > 0, f"{devices} found", remedy)
    build = installed("torch") or "none"
    cuda = "+cpu" not in build and build != "none"
    yield Finding("cuda", "torch for CUDA", cuda, build, "pip install torch, without +cpu")
    triton = installed("triton")
    found = triton is not None
    yield Finding("cuda", "triton", found, triton or "none", _TRITON_REMEDY)


def _nvshmem() -> Iterator[Finding]:
    """What `Options(heap="nvshmem")` needs besides."""
    target = "cuda, heap nvshmem"
    for name in ("nvshmem4py", "nvidia-nvshmem"):
        packages = [f"{name}-cu{major}" for major in (13, 12)]
        found = next((f"{p} {installed(p)}" for p in packages if installed(p)), "")
        yield Finding(target, name, bool(found), found or "none", _NVSHMEM_REMEDY)
    core = installed("cuda-core")
    yield Finding(target, "cuda.core", core is not None, core or "none", _NVSHMEM_REMEDY)


def _cuda_devices() -> int:
    """GPUs that the driver sees; 0 without one."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def _rocm() -> Iterator[Finding]:
    later = "compile for gfx942 here, run on target cpu"
    yield Finding("rocm", "a runtime", False, "compiles, does not run yet", later)
    there = os.path.exists("/dev/kfd")
    remedy = "an AMD GPU and its driver; without one, compile for gfx942"
    yield Finding("rocm", "GPUs", there, "/dev/kfd" if there else "no /dev/kfd", remedy)
    triton = installed("triton")
    yield Finding("rocm", "triton", triton is not None, triton or "none", _TRITON_REMEDY)


def print_doctor(findings: list[Finding]) -> None:
    """What this machine is, then each target with what it has and lacks."""
    out = console()
    out.print(columns(machine().items()), markup=False)
    for target in targets(findings):
        ready = "ready" if can_run(findings, target) else "cannot run here"
        out.print(f"\n[bold]{target}[/bold]: {ready}")
        rows = [f for f in findings if f.target == target]
        out.print(
            columns(
                ("ok" if f.found else "--", f.need, f.detail, "" if f.found else f.remedy)
                for f in rows
            ),
            markup=False,
        )


def doctor_data(findings: list[Finding]) -> dict[str, object]:
    """The same as data."""
    return {
        "machine": machine(),
        "targets": {
            target: {
                "ready": can_run(findings, target),
                "needs": [asdict(f) for f in findings if f.target == target],
            }
            for target in targets(findings)
        },
    }
