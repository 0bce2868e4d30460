"""No input makes a traceback, a hang or a leak: a few hundred here, 100,000 in `exhaustive`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.property import fuzz

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# How many inputs: here, and exhaustively.
COUNTS = {
    "ir_text": (60, 25_000),
    "plan_file": (60, 20_000),
    "machine_file": (150, 25_000),
    "arguments": (25, 5_000),
    "calls": (150, 25_000),
}


def target(name: str, folder: Path) -> Callable[[int], None]:
    match name:
        case "ir_text":
            return lambda seed: fuzz.ir_text(seed, folder)
        case "machine_file":
            return lambda seed: fuzz.machine_file(seed, folder)
        case "arguments":
            broken = folder / "broken.mlir"
            broken.write_text("task.program @p {")
            files = [str(EXAMPLES / f"{n}.py") for n in ("01_ag_gemm", "10_ring_all_gather")]
            return lambda seed: fuzz.arguments(seed, [*files, str(broken), "none.py", ""])
        case "plan_file":
            return fuzz.plan_file
        case _:
            return fuzz.calls


def check(name: str, seeds: range, folder: Path) -> None:
    one = target(name, folder)
    one(seeds[0])
    before = fuzz.handles()
    for seed in seeds:
        try:
            with fuzz.bounded():
                one(seed)
        except BaseException as error:
            error.add_note(f"{name} of seed {seed}")
            raise
    assert len(fuzz.handles() - before) < 3, fuzz.handles() - before


@pytest.mark.parametrize("name", COUNTS)
def test_some_inputs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    check(name, range(COUNTS[name][0]), tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", COUNTS)
def test_100_000_inputs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    check(name, range(COUNTS[name][1]), tmp_path)


def test_that_makes_100_000():
    assert sum(many for _, many in COUNTS.values()) == 100_000
