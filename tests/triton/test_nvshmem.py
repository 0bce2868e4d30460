"""Heaps by NVSHMEM, with what stands for nvshmem4py: the order of calls, and what is refused."""

from __future__ import annotations

import atexit
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import fake_nvshmem
import pytest
import torch
from test_cuda_runtime import OPTIONS, SIZES, fake_gpus
from test_run_local import ranks as local_ranks
from triton_support import example, random_inputs, run

import ditron as dt
from ditron.errors import LaunchError, OptionError
from ditron.runtime import nvshmem
from ditron.runtime.nvshmem import NvshmemHeap, Process

assert fake_gpus  # a fixture

BYTES = 4096
BY_NVSHMEM = replace(OPTIONS, heap="nvshmem")


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where fake PEs of other processes meet."""
    monkeypatch.setenv(fake_nvshmem.FOLDER, str(tmp_path))
    return tmp_path


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> fake_nvshmem.FakeNvshmem:
    """The fake library in this process, not initialised."""
    found = fake_nvshmem.modules(tmp_path)
    for name, module in found.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(nvshmem, "PROCESS", Process())
    monkeypatch.setattr(nvshmem, "as_tensor", fake_nvshmem.as_tensor)
    monkeypatch.setattr(atexit, "register", id)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    for name in ("NVSHMEM_SYMMETRIC_SIZE", "NVSHMEM_DISABLE_NVLS"):
        monkeypatch.setenv(name, "")  # so that what is set meanwhile is undone
        monkeypatch.delenv(name)
    return found["nvshmem.core"]


def calls(folder: Path, pe: int) -> list[str]:
    return (folder / f"calls-{pe}").read_text().splitlines()


@pytest.mark.usefixtures("fake_gpus")
def test_a_pool_of_ranks_runs_on_it(folder: Path) -> None:
    program = example("01_ag_gemm", **SIZES)
    with dt.compile(program, target="cuda", options=BY_NVSHMEM) as exe:
        for seed in range(2):
            inputs = random_inputs(exe, seed)
            want = program.reference(inputs)["y"]
            torch.testing.assert_close(run(exe, inputs)["y"], want, rtol=0.02, atol=0.02)
    for pe in range(2):
        expected = [f"init {pe} of 2", "buffer", f"peer {1 - pe}", "free", "finalize"]
        assert calls(folder, pe) == expected


def test_ranks_in_processes_of_a_group_run_on_it(folder: Path) -> None:
    for status, _, errors in local_ranks(folder / "store", (16, 16), heap="nvshmem"):
        assert status == 0, errors
    for pe in range(2):
        expected = [f"init {pe} of 2", "buffer", f"peer {1 - pe}", "free", "finalize"]
        assert calls(folder, pe) == expected


@pytest.mark.usefixtures("fake_gpus")
def test_without_nvshmem4py_the_message_says_what_to_install() -> None:
    assert fake_nvshmem.FOLDER not in os.environ
    with (
        dt.compile(example("01_ag_gemm", **SIZES), target="cuda", options=BY_NVSHMEM) as exe,
        pytest.raises(LaunchError, match=r"rank [01] failed: heap nvshmem needs nvshmem4py"),
    ):
        run(exe, random_inputs(exe, 0))


@pytest.mark.usefixtures("fake_gpus")
def test_a_rank_that_no_pointer_reaches_is_named(folder: Path) -> None:
    (folder / "far-1").touch()
    with (
        dt.compile(example("01_ag_gemm", **SIZES), target="cuda", options=BY_NVSHMEM) as exe,
        pytest.raises(LaunchError, match="rank 0 has no pointer to the memory of rank 1"),
    ):
        run(exe, random_inputs(exe, 0))
    assert "finalize" not in calls(folder, 0)


def test_one_initialisation_serves_all_heaps(
    library: fake_nvshmem.FakeNvshmem, tmp_path: Path
) -> None:
    first, second = NvshmemHeap(BYTES, 0), NvshmemHeap(BYTES, 0)
    assert first.join([first.offer()]) == [first.address]
    assert second.offer() is None
    second.join([None])
    assert not second.tensor.any()
    assert first.address != second.address
    assert os.environ["NVSHMEM_DISABLE_NVLS"] == "1"
    first.close()
    nvshmem.PROCESS.finish()  # a heap is held: whatever went wrong, no peer is waited for
    assert library.world == (0, 1)
    second.close()
    nvshmem.PROCESS.finish()
    expected = ["init 0 of 1", "buffer", "buffer", "free", "free", "finalize"]
    assert calls(tmp_path, 0) == expected


@pytest.mark.usefixtures("library")
def test_other_ranks_than_those_of_the_first_program_are_refused() -> None:
    first, second = NvshmemHeap(BYTES, 0), NvshmemHeap(BYTES, 0)
    first.join([first.offer()])
    with pytest.raises(LaunchError, match=r"initialised here as rank 0 of 1.* runs as 0 of 2"):
        second.join([None, None])


@pytest.mark.usefixtures("library")
def test_an_id_that_nobody_offers_is_refused() -> None:
    late = NvshmemHeap(BYTES, 1)
    assert late.offer() is None
    with pytest.raises(LaunchError, match="is not initialised on rank 1 of 2, but is on rank 0"):
        late.join([None, None])


@pytest.mark.usefixtures("library")
def test_what_nvshmem_refuses_is_told() -> None:
    heap = NvshmemHeap(BYTES, 0)
    with pytest.raises(LaunchError, match=r"does not start on rank 0 of 1 .*: Status code 7"):
        heap.join(["no id"])


def test_a_library_that_counts_other_ranks_is_refused(
    library: fake_nvshmem.FakeNvshmem, monkeypatch: pytest.MonkeyPatch
) -> None:
    heap = NvshmemHeap(BYTES, 0)
    monkeypatch.setattr(library, "n_pes", lambda: 4)
    with pytest.raises(LaunchError, match="NVSHMEM calls rank 0 of 1 PE 0 of 4"):
        heap.join([heap.offer()])


def test_a_heap_has_room_for_the_first_program_at_least(
    library: fake_nvshmem.FakeNvshmem, monkeypatch: pytest.MonkeyPatch
) -> None:
    NvshmemHeap(3 << 30, 0)
    assert int(os.environ["NVSHMEM_SYMMETRIC_SIZE"]) > 3 << 30
    monkeypatch.setenv("NVSHMEM_SYMMETRIC_SIZE", "100")
    heap = NvshmemHeap(BYTES, 0)
    with pytest.raises(LaunchError, match=r"no room for 4096 bytes on rank 0 \(.*SIZE=100\)"):
        heap.join([heap.offer()])
    assert library.held == 0


def test_the_option_is_checked() -> None:
    wrong: Any = {"heap": "posix"}
    with pytest.raises(OptionError, match="heap is one of ipc, nvshmem, got 'posix'"):
        dt.Options(**wrong)
    with pytest.raises(OptionError, match="heap nvshmem is for target cuda, not cpu"):
        dt.compile(example("01_ag_gemm", **SIZES), options=dt.Options(heap="nvshmem"))
