"""The GPU executor's processes, messages and bounds, with ranks that have no GPU."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from triton_support import example, random_inputs, run

import ditron as dt
from ditron.errors import HangError, LaunchError
from ditron.executable import Executable
from ditron.runtime import cuda, gpu_processes

SIZES = {"m": 40, "n": 32, "k": 32, "tp": 2}
OPTIONS = dt.Options(algorithm="mesh-push", workers=2, tile=(16, 32), wait_bound_s=5)


def _sms(_: int) -> int:
    return 132


@pytest.fixture
def fake_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gpu_processes, "RANK_MODULE", "fake_cuda_rank")
    monkeypatch.setattr(cuda, "_devices", lambda: 1)
    monkeypatch.setattr(cuda, "sm_count", _sms)
    path = f"{Path(__file__).parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.mark.usefixtures("fake_gpus")
def test_launches_and_outputs() -> None:
    program = example("01_ag_gemm", **SIZES)
    with dt.compile(program, target="cuda", options=OPTIONS) as exe:
        for seed in range(2):
            inputs = random_inputs(exe, seed)
            want = program.reference(inputs)["y"]
            torch.testing.assert_close(run(exe, inputs)["y"], want, rtol=0.02, atol=0.02)
        assert exe.measure(random_inputs(exe, 0), 2) == [1e-3, 1e-3]


@pytest.mark.usefixtures("fake_gpus")
@pytest.mark.parametrize(
    ("name", "algorithm"),
    [
        ("01_ag_gemm", "mesh-pull"),
        ("01_ag_gemm", "mesh-push"),
        ("01_ag_gemm", "ring"),
        ("02_gemm_rs", "mesh-push"),
    ],
)
def test_the_host_copies_sets_flags_and_waits(name: str, algorithm: str) -> None:
    program = example(name, **SIZES)
    options = replace(OPTIONS, algorithm=algorithm, transport="copy-engine", chunk_bytes=640)
    with dt.compile(program, target="cuda", options=options) as exe:
        for seed in range(3):
            inputs = random_inputs(exe, seed)
            want = program.reference(inputs)["y"]
            torch.testing.assert_close(run(exe, inputs)["y"], want, rtol=0.02, atol=0.02)


@pytest.mark.usefixtures("fake_gpus")
@pytest.mark.parametrize(
    ("name", "algorithm", "ranks", "transport"),
    [
        ("01_ag_gemm", "mesh-pull", 3, "copy-engine"),
        ("02_gemm_rs", "mesh-push", 2, "peer"),
        ("03_gemm_ar", "two-shot-push", 2, "copy-engine"),
    ],
)
def test_a_library_multiplies(name: str, algorithm: str, ranks: int, transport: str) -> None:
    program = example(name, **{**SIZES, "m": 41, "tp": ranks})
    options = replace(OPTIONS, algorithm=algorithm, transport=transport, tile=None, library=True)
    with dt.compile(program, target="cuda", options=options) as exe:
        assert "tl.dot" not in exe.kernels
        for seed in range(3):
            inputs = random_inputs(exe, seed)
            want = program.reference(inputs)["y"]
            torch.testing.assert_close(run(exe, inputs)["y"], want, rtol=0.02, atol=0.02)


@pytest.mark.usefixtures("fake_gpus")
def test_a_missing_notify_is_a_hang_with_a_report() -> None:
    program = example("01_ag_gemm", **SIZES)
    with dt.compile(program, target="cuda", options=OPTIONS) as exe:
        _change(exe, lambda s: re.sub(r"notify(_set)?\(tl.load\(matmul_ready_at.*", "pass", s))
        executor = exe._executor
        assert isinstance(executor, cuda.CudaExecutor)
        inputs = random_inputs(exe, 0)
        with pytest.raises(HangError, match=r"@matmul\[.*waits for %matmul_ready: seen 0, wanted"):
            run(exe, inputs)
        with pytest.raises(LaunchError, match=r"call reset\(\) first"):
            run(exe, inputs)


def _change(exe: Executable, edit: Callable[[str], str]) -> None:
    executor = exe._executor
    assert isinstance(executor, cuda.CudaExecutor)
    program = executor._program
    source = edit(program.source)
    assert source != program.source
    executor._program = replace(program, source=source)


@pytest.mark.usefixtures("fake_gpus")
def test_a_rank_that_dies_is_named() -> None:
    program = example("01_ag_gemm", **SIZES)
    with dt.compile(program, target="cuda", options=OPTIONS) as exe:
        _change(
            exe,
            lambda source: source.replace("    done =", "    import os; os._exit(3)\n    done ="),
        )
        with pytest.raises(LaunchError, match=r"rank [01] (died|failed)"):
            run(exe, random_inputs(exe, 0))
