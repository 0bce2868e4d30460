"""Every example runs as its reader would run it, and agrees with float64.

Sizes that do not divide by the ranks are used too: examples promise no more than the compiler.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("[0-9][0-9]_*.py"))

SMALL = {
    "00_matmul": ["m=65", "n=96", "k=48", "tp=2"],
    "01_ag_gemm": ["m=130", "n=95", "k=64", "tp=3"],
    "02_gemm_rs": ["m=66", "n=40", "k=70", "tp=3"],
    "03_gemm_ar": ["m=7", "n=64", "k=96", "tp=3"],
    "04_mlp": ["tokens=33", "hidden=48", "inner=80", "tp=2"],
    "05_two_axes": ["m=67", "n=40", "k=33", "dp=3", "tp=2"],
    "06_ulysses": ["tokens=9", "heads=6", "width=8", "tp=3"],
    "07_kv_cache": ["ctx=11", "heads=6", "groups=3", "width=4", "tp=3"],
    "08_transformer_layer": ["tokens=7", "heads=6", "width=4", "inner=40", "tp=3"],
    "09_bias_gelu_kernel": ["m=67", "n=130", "k=33", "tp=3"],
    "10_ring_all_gather": ["m=67", "k=33", "tp=3"],
    "12_vocabulary": ["tokens=7", "vocab=50", "hidden=24", "tp=3"],
    "11_double_buffered_reduce_scatter": ["m=66", "n=40", "k=70", "tp=5"],
    "20_qwen3_decode": ["layers=1", "heads=6", "kv_heads=3", "hidden=48", "vocab=99", "tp=3"],
}


def run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ditron.tools.cli", "run", str(path), "--check", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, cwd=ROOT
    )


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_at_a_small_uneven_size(path: Path):
    settings = [word for setting in SMALL[path.stem] for word in ("--set", setting)]
    done = run(path, "--json", "--repeats", "1", *settings)
    assert done.returncode == 0, done.stderr + done.stdout
    data = json.loads(done.stdout)
    assert data["agrees"] is True
    assert data["check"]
    assert all(check["replicas_equal"] for check in data["check"])
    assert len(data["seconds"]) == 1


def test_the_demo_as_it_stands():
    done = run(ROOT / "examples" / "01_ag_gemm.py")
    assert done.returncode == 0, done.stderr + done.stdout
    for part in ("decisions", "proofs", "time", "outputs", "agreement"):
        assert re.search(rf"^{part}$", done.stdout, re.MULTILINE), done.stdout
    assert "agrees with float64" in done.stdout


def test_every_example_says_what_to_look_at():
    assert [path.stem for path in EXAMPLES] == sorted(SMALL)
    for path in EXAMPLES:
        assert "\nLook at: " in path.read_text(), path
