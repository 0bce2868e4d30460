"""All programs of `benchmarks/ranks_programs.py` on 1 to 8 ranks, memory by IPC and by NVSHMEM.

997 rows a rank among them; fresh inputs, many launches, and replays of a captured graph whose
counters cross 2^31. More ranks than GPUs share them under MPS. By hand, where a GPU is:

python -m pytest -m gpu tests/gpu
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAPS = ("ipc", "nvshmem")
LAUNCHES = 200
# Kernels on streams run in program order; this one's grids wait for each other both ways.
REFUSED = "11_double_buffered_reduce_scatter"


@pytest.mark.gpu
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_all_programs(ranks: int, tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "benchmarks.gpu_ranks", "--ranks", str(ranks), "--sections", "check",
        "--heaps", ",".join(HEAPS), "--launches", str(LAUNCHES), "--out", str(tmp_path),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "gpu_ranks.json").read_text())["check"]
    assert "out of time" not in done.stdout
    refused = {row["what"] for row in rows if "refused" in row}
    assert refused == {f"{REFUSED} {heap}" for heap in HEAPS if ranks > 1}
    assert not [row for row in rows if "FAIL" in row]
