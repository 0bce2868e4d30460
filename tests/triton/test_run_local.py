"""Ranks that live in the processes of a group, as under torchrun; without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import ditron as dt
from ditron.errors import LaunchError, OptionError
from ditron.runtime.cuda_local import check_agreement

HERE = Path(__file__).parent


def ranks(store: Path, rows: Sequence[int], heap: str = "ipc") -> list[tuple[int, str, str]]:
    """Exit status, output and errors of a process a rank."""
    path = f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    environment = {**os.environ, "PYTHONPATH": path, "TRITON_INTERPRET": "1"}
    started = [
        subprocess.Popen(
            [
                sys.executable,
                HERE / "fake_local_rank.py",
                str(rank),
                str(len(rows)),
                store,
                str(r),
                heap,
            ],
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank, r in enumerate(rows)
    ]
    done = [process.communicate(timeout=240) for process in started]
    return [(p.returncode, *text) for p, text in zip(started, done, strict=True)]


def test_each_process_runs_its_rank(tmp_path: Path) -> None:
    for status, output, errors in ranks(tmp_path / "store", (16, 16)):
        assert status == 0, errors
        assert output.startswith("input x of rank "), output


def test_ranks_that_compiled_something_else_are_named(tmp_path: Path) -> None:
    for status, _, errors in ranks(tmp_path / "store", (16, 8)):
        assert status == 1, errors
        assert "ranks 1 have other plan than rank 0" in errors


def test_agreement_names_all_that_differ() -> None:
    same = {"versions": "ditron 1", "plan": "a"}
    check_agreement([same, same])
    with pytest.raises(LaunchError, match="ranks 1, 3 have other versions than rank 0: ditron 2"):
        check_agreement([same, {**same, "versions": "ditron 2"}] * 2)


def test_targets_that_run_no_rank_here_say_so() -> None:
    with dt.Program("id", dt.Mesh(tp=1)) as p:
        p.output("y", dt.silu(p.input("x", (4, 4), dt.f32, dt.Replicate())))
    with (
        dt.compile(p) as exe,
        pytest.raises(OptionError, match="run_local is for target cuda"),
    ):
        exe.run_local({})
