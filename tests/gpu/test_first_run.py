"""The sections of `benchmarks/gpu_first_run.py`, each asserted; by hand, where a GPU is.

python -m pytest -m gpu tests/gpu
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECTIONS = (
    "gemm", "ranks:1", "ranks:2", "ranks:4", "ranks:8", "copy:2", "nvshmem:2", "nvshmem:8",
    "local:2", "hang", "wrap",
)  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("section", SECTIONS)
def test_section(section: str) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu_first_run", section]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAIL" not in done.stdout
