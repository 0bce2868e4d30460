"""Examples on one GPU with 1, 2 and 4 ranks, checked against torch; emitted GEMM beside cuBLAS.

    python -m benchmarks.gpu_first_run              # all sections
    python -m benchmarks.gpu_first_run gemm         # or some: ranks:2, copy:2, nvshmem:2, local:2

Several ranks on a GPU run under CUDA MPS, whose daemon is started for them, with directories of its
own, and ended after them. Every section is a process; one that fails does not stop the others. Exit
status 1 if any failed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch

import ditron as dt
from ditron.errors import DitronError, HangError
from ditron.executable import Executable
from ditron.plan.tables import Role
from ditron.runtime.cuda import CudaExecutor
from ditron.runtime.cuda_driver import sm_count
from ditron.runtime.gpu_processes import rank_environment
from ditron.runtime.gpu_program import TritonProgram

ROOT = Path(__file__).resolve().parents[1]
SECTIONS = (
    "gemm", "ranks:1", "ranks:2", "ranks:4", "copy:2", "nvshmem:2", "local:2", "hang", "wrap",
)  # fmt: skip
COPY_LANES = 4
SPARE_SMS = 4  # of a rank's share: MPS may round it
SECTION_S = 420

# (example, sizes, algorithm); sizes that do not divide by the ranks come last.
CASES = (
    ("01_ag_gemm", {"m": 2048, "n": 2048, "k": 1024}, "mesh-push"),
    ("01_ag_gemm", {"m": 2048, "n": 2048, "k": 1024}, "mesh-in-place"),
    ("02_gemm_rs", {"m": 2048, "n": 1024, "k": 2048}, "mesh-push"),
    ("03_gemm_ar", {"m": 64, "n": 1024, "k": 2048}, "one-shot"),
    ("04_mlp", {"tokens": 512, "hidden": 512, "inner": 1024}, "mesh-push"),
    ("01_ag_gemm", {"m": 997, "n": 1376, "k": 520}, "mesh-push"),
)

# The same by copy engines.
COPY_CASES = (
    ("01_ag_gemm", {"m": 2048, "n": 2048, "k": 1024}, "mesh-pull"),
    ("01_ag_gemm", {"m": 2048, "n": 2048, "k": 1024}, "mesh-push"),
    ("02_gemm_rs", {"m": 2048, "n": 1024, "k": 2048}, "mesh-push"),
    ("03_gemm_ar", {"m": 64, "n": 1024, "k": 2048}, "one-shot-push"),
    ("01_ag_gemm", {"m": 997, "n": 1376, "k": 520}, "mesh-pull"),
)

# (M, N, K), a rank of eight of published shapes, and squares.
GEMMS = ((8192, 8192, 8192), (8192, 1376, 4096), (8192, 3584, 8192), (8192, 4096, 1376))


def example(name: str, **sizes: int) -> dt.Program:
    """The program of an example."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.program(**sizes)


def options_for(
    ranks: int,
    algorithm: str | None = None,
    transport: str | None = None,
    heap: str | None = None,
    share: int = 0,
    sms: int = 0,
) -> dt.Options:
    """Options with as many workers as fit when `ranks` ranks share the GPUs that are there.

    Or when `share` ranks have one GPU, not all of them of the program. `sms` is its number of SMs,
    which a client of MPS that has a part of them cannot ask for.
    """
    share = share or -(-ranks // torch.cuda.device_count())
    copies = COPY_LANES if ranks > 1 else 0
    workers = (sms or sm_count(0)) // share - (copies + SPARE_SMS if ranks > 1 else 0)
    lanes = max(copies, 1)
    return dt.Options(
        algorithm,
        workers=workers,
        copy_lanes=lanes,
        transport=transport,
        heap=heap,
        wait_bound_s=20,
    )


def random_inputs(exe: Executable, seed: int) -> dict[str, torch.Tensor]:
    """Seeded normals scaled by 1 / sqrt(rows)."""
    generator = torch.Generator().manual_seed(seed)
    specs = {**exe.tensors(Role.INPUT), **exe.tensors(Role.WEIGHT)}
    return {
        name: (torch.randn(spec.shape, generator=generator) * spec.shape[0] ** -0.5).bfloat16()
        for name, spec in specs.items()
    }


def run(exe: Executable, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Bind what is a weight, run with the rest."""
    weights = exe.tensors(Role.WEIGHT)
    exe.bind({n: t for n, t in inputs.items() if n in weights})
    return exe.run({n: t for n, t in inputs.items() if n not in weights})


def executor_of(exe: Executable) -> CudaExecutor:
    """What runs an executable."""
    executor = exe._executor  # pyright: ignore[reportPrivateUsage]
    assert isinstance(executor, CudaExecutor)
    return executor


def say(text: str) -> None:
    """Print at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def check(program: dt.Program, exe: Executable, launches: int = 3) -> float:
    """Run some launches, each with other inputs; returns the largest error."""
    worst = 0.0
    for seed in range(launches):
        inputs = random_inputs(exe, seed)
        outputs = run(exe, inputs)
        for name, want in program.reference(inputs).items():
            error = (outputs[name].float() - want.float()).abs().max().item()
            scale = want.float().abs().max().item()
            if not error <= 0.02 * scale:
                raise AssertionError(f"{name} of launch {seed}: error {error} of {scale}")
            worst = max(worst, error / scale)
    return worst


def ranks_section(ranks: int, transport: str | None = None, heap: str | None = None) -> bool:
    """All examples on so many ranks."""
    fine = True
    for name, sizes, algorithm in COPY_CASES if transport else CASES:
        start = time.perf_counter()
        label = f"{name} {sizes} tp={ranks} {algorithm} {transport or ''} {heap or ''}"
        try:
            program = example(name, **sizes, tp=ranks)
            options = options_for(ranks, algorithm, transport, heap)
            with dt.compile(program, target="cuda", options=options) as exe:
                worst = check(program, exe)
                inputs = random_inputs(exe, 0)
                kept = {n: t for n, t in inputs.items() if n in exe.tensors(Role.INPUT)}
                times = exe.measure(kept, 20)
                again = run(exe, inputs)
                for key, want in program.reference(inputs).items():
                    torch.testing.assert_close(again[key], want, rtol=0.02, atol=0.02)
                kernels = executor_of(exe).kernels()
            took = time.perf_counter() - start
            say(f"ok   {label}: error {worst:.1e}, {median(times) * 1e3:.3f} ms ({took:.0f} s)")
            for kernel, facts in kernels.items():
                say(f"       {kernel}: {facts}")
        except (DitronError, AssertionError) as error:
            fine = False
            say(f"FAIL {label}: {str(error)[-3000:]}")
    return fine


def gemm_section() -> bool:
    """The emitted GEMM beside cuBLAS, on one rank."""
    fine = True
    for m, n, k in GEMMS:
        try:
            program = example("00_matmul", m=m, n=n, k=k, tp=1)
            with dt.compile(program, target="cuda", options=options_for(1)) as exe:
                inputs = random_inputs(exe, 0)
                out = run(exe, inputs)["y"]
                ours = median(exe.measure(inputs, 30))
                kernels = executor_of(exe).kernels()
            x, w = inputs["x"].cuda(), inputs["w"].cuda()
            error = ((x @ w).float().cpu() - out.float()).abs().max().item()
            theirs = cublas_seconds(x, w)
            del x, w
            torch.cuda.empty_cache()
            rate = 2e-12 * m * n * k
            say(
                f"gemm {m}x{n}x{k}: ditron {ours * 1e3:.3f} ms ({rate / ours:.0f} TFLOP/s), cuBLAS"
                f" {theirs * 1e3:.3f} ms ({rate / theirs:.0f}), ratio {theirs / ours:.3f}, largest"
                f" difference {error:.1e}; {kernels}"
            )
        except (DitronError, AssertionError) as error:
            fine = False
            say(f"FAIL gemm {m}x{n}x{k}: {str(error)[-3000:]}")
    return fine


def cublas_seconds(x: torch.Tensor, w: torch.Tensor, repeats: int = 30) -> float:
    """The median of single multiplications in a captured graph, as ditron's are measured."""
    out = x @ w
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.mm(x, w, out=out)
    times: list[float] = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3)
    return median(times)


def local_section(ranks: int) -> bool:
    """Ranks in processes of their own, as torchrun would start them."""
    share = -(-ranks // torch.cuda.device_count())
    environment = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29541",
        "WORLD_SIZE": str(ranks),
        **rank_environment(share),
    }
    command = [sys.executable, "-m", "benchmarks.gpu_local"]
    started = [
        subprocess.Popen(command, env={**environment, "RANK": str(rank)}, cwd=ROOT)
        for rank in range(ranks)
    ]
    ended = [process.wait(120) for process in started]
    return not any(ended)


def hang_section() -> bool:
    """A signal taken away: the launch must end with a report, and run after reset."""
    kernels = hangs("mesh-in-place", None, mute_notify)
    return hangs("mesh-pull", "copy-engine", mute_flags) and kernels


def mute_notify(good: TritonProgram) -> TritonProgram:
    """Kernels that do not tell the product that a shard is there."""
    source = re.sub(r"notify(_set)?\(tl.load\(matmul_ready_at.*", "pass", good.source)
    assert source != good.source
    # Nor may the check of the compiled kernels look for it: that would refuse them.
    launches = tuple(replace(launch, notifies=()) for launch in good.launches)
    return replace(good, source=source, launches=launches)


def mute_flags(good: TritonProgram) -> TritonProgram:
    """Hosts that do not tell each other's copies that a shard is there."""
    acquires = good.host.op == 0
    assert acquires.any()
    return replace(good, host=good.host.only(~acquires))


def hangs(
    algorithm: str, transport: str | None, broken: Callable[[TritonProgram], TritonProgram]
) -> bool:
    """Whether a launch of a broken program is stopped and told of, and the right one runs then."""
    program = example("01_ag_gemm", m=512, n=512, k=256, tp=2)
    options = replace(options_for(2, algorithm, transport), wait_bound_s=3)
    with dt.compile(program, target="cuda", options=options) as exe:
        executor = executor_of(exe)
        good = executor._program  # pyright: ignore[reportPrivateUsage]
        executor._program = broken(good)  # pyright: ignore[reportPrivateUsage]
        start = time.perf_counter()
        try:
            run(exe, random_inputs(exe, 0))
        except HangError as error:
            say(f"ok   hang reported after {time.perf_counter() - start:.1f} s:\n{error}")
        else:
            say("FAIL no hang was noticed")
            return False
        executor._program = good  # pyright: ignore[reportPrivateUsage]
        exe.reset()
        say(f"ok   after reset: error {check(program, exe):.1e}")
    return True


def wrap_section() -> bool:
    """Counters that pass 2^31, and many launches and replays."""
    program = example("01_ag_gemm", m=512, n=512, k=256, tp=2)
    options = options_for(2, "mesh-push")
    with dt.compile(program, target="cuda", options=options) as exe:
        inputs = random_inputs(exe, 0)
        run(exe, inputs)
        executor_of(exe).start_at((1 << 31) - 20)
        say(f"ok   launches across 2^31: error {check(program, exe, 30):.1e}")
        executor_of(exe).start_at((1 << 31) - 500)
        times = exe.measure(inputs, 1000)
        out = run(exe, inputs)["y"]
        torch.testing.assert_close(out, program.reference(inputs)["y"], rtol=0.02, atol=0.02)
        say(f"ok   1000 replays across 2^31: median {median(times) * 1e6:.0f} us")
    return True


def section(name: str) -> bool:
    """Run one section here; whether it went well."""
    try:
        if name.startswith("ranks:"):
            return ranks_section(int(name.removeprefix("ranks:")))
        if name.startswith("local:"):
            return local_section(int(name.removeprefix("local:")))
        if name.startswith("nvshmem:"):
            return ranks_section(int(name.removeprefix("nvshmem:")), heap="nvshmem")
        if name.startswith("copy:"):
            return ranks_section(int(name.removeprefix("copy:")), "copy-engine")
        return {"gemm": gemm_section, "hang": hang_section, "wrap": wrap_section}[name]()
    except (DitronError, AssertionError):
        say(traceback.format_exc())
        return False


@contextlib.contextmanager
def mps() -> Generator[dict[str, str]]:
    """An MPS daemon of our own; yields the environment of its clients.

    Where the environment names one (CUDA_MPS_PIPE_DIRECTORY), that one serves.
    """
    if "CUDA_MPS_PIPE_DIRECTORY" in os.environ:
        yield dict(os.environ)
        return
    with tempfile.TemporaryDirectory(prefix="ditron-mps-") as folder:
        environment = {
            **os.environ,
            "CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe",
            "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log",
        }
        for key in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"):
            Path(environment[key]).mkdir()
        control = "nvidia-cuda-mps-control"
        subprocess.run([control, "-d"], env=environment, check=True, timeout=60)
        try:
            yield environment
        finally:
            # A process that has only asked for the number of SMs is a client, too.
            quit_ = b"quit -t 10\n"
            subprocess.run([control], input=quit_, env=environment, check=False, timeout=60)


def main(names: list[str]) -> int:
    """Run sections, each in a process."""
    failed: list[str] = []
    for name in names or SECTIONS:
        alone = name in ("gemm", "ranks:1")
        say(f"=== {name}{'' if alone else ' (MPS)'}")
        with contextlib.nullcontext(dict(os.environ)) if alone else mps() as environment:
            command = [sys.executable, "-m", "benchmarks.gpu_first_run", "--here", name]
            try:
                done = subprocess.run(
                    command, env=environment, cwd=ROOT, check=False, timeout=SECTION_S
                )
                failed += [name] * (done.returncode != 0)
            except subprocess.TimeoutExpired:
                say(f"FAIL {name} took longer than {SECTION_S} s")
                failed.append(name)
    say(f"=== {'all fine' if not failed else 'failed: ' + ', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--here"]:
        sys.exit(0 if section(sys.argv[2]) else 1)
    sys.exit(main(sys.argv[1:]))
