"""Each verifier refuses a program with one thing broken, and says which task, slot and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from ditron.tools import opt

GOOD = Path(__file__).resolve().parents[1] / "filecheck" / "passes" / "verify_all.mlir"
WAIT = "    device.wait %ready[%p, 1] ge 1 : !device.signals<2>\n"


def verify(tmp_path: Path, old: str, new: str, proof: str) -> int:
    text = GOOD.read_text()
    assert old in text
    (tmp_path / "p.mlir").write_text(text.replace(old, new))
    return opt.main([str(tmp_path / "p.mlir"), "-p", f"verify-{proof}"])


@pytest.mark.parametrize("proof", ["delivery", "race-free", "deadlock-free"])
def test_the_program_is_right_before_it_is_broken(tmp_path: Path, proof: str):
    assert verify(tmp_path, "@push", "@push", proof) == 0


@pytest.mark.parametrize(
    ("proof", "old", "new", "message"),
    [
        ("race-free", "after put", "after end", "a notify from @push[0] on rank 0"),
        ("race-free", WAIT, "", "@tiles[0] on rank 0 (sm lane 0, task 0) reads %g[0:64]"),
        ("deadlock-free", "ready[%p, 1] ge 1", "ready[%p, 1] ge 2", "%ready[0] at rank 0 >= 2"),
        ("deadlock-free", "%ready[%me] at %p", "%ready[%p] at %p", "no task notifies it"),
        ("deadlock-free", " lag 1 ", " ", "2 tasks wait for each other"),
        ("delivery", "%g[%p * 64] [64] :", "%g[0] [64] :", "output 'y'[64:65] on rank 0"),
        ("delivery", "%g[%me * 64] [64]", "%g[0] [64]", "an uninitialised read"),
        ("delivery", "%y[%p * 64] [64]", "%y[%p * 32] [64]", "output 'y'"),
        (
            "delivery",
            "engine sm in (%p = 2)",
            "engine sm in (%p = 1)",
            "nobody has written %y[64:65]",
        ),
    ],
)
def test_a_broken_program_is_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    proof: str,
    old: str,
    new: str,
    message: str,
):
    assert verify(tmp_path, old, new, proof) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"{tmp_path}/p.mlir:")
    assert ": error: " in err
    assert message in err
