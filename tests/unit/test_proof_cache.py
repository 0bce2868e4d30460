"""Proofs found again: in the process, on disk, and not when anything differs."""

from dataclasses import replace
from pathlib import Path

import pytest

from ditron.analysis import report
from ditron.analysis.proof_cache import FOLDER
from ditron.analysis.report import PROVED, prove
from ditron.errors import RaceError
from ditron.plan.tables import Plan
from tests.unit.plan_builder import PlanBuilder


@pytest.fixture(autouse=True)
def empty() -> None:
    PROVED.clear()


def plan(*, right: bool = True) -> Plan:
    b = PlanBuilder()
    x, ready, free = b.buffer("x", (4,)), b.slot(), b.slot()
    b.task("a", b.lane(0), b.write(x, 0, (0, 4)), notify=[ready])
    b.task("b", b.lane(0), b.read(x, 0, (0, 4)), wait=[ready] if right else [], notify=[free])
    return b.plan()


def found(p: Plan) -> bool:
    return prove(p, {}, None).cache_seconds is not None


def test_the_same_plan_is_proved_once():
    assert [found(plan()), found(plan())] == [False, True]
    assert not found(replace(plan(), name="other"))
    first, again = prove(replace(plan(), name="x"), {}, None), prove(plan(), {}, None)
    assert first.seconds > 0 < again.seconds
    assert "proved before" in str(again)
    assert "proved before" not in str(first)


def test_a_failed_proof_is_made_again():
    for _ in range(2):
        with pytest.raises(RaceError):
            prove(plan(right=False), {}, None)


def entry(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(FOLDER, str(tmp_path / "new"))
    assert not found(plan())
    PROVED.clear()
    assert found(plan())
    assert entry(tmp_path / "new").suffix == ".proof"


@pytest.mark.parametrize("damage", ["", "x", "[]", "cut", "flip", "folder"])
def test_a_damaged_entry_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    prove(plan(), {}, None)
    path = entry(tmp_path)
    data = path.read_bytes()
    if damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        bad = {"cut": data[:-9], "flip": data.replace(b'"tasks":2', b'"tasks":3')}
        path.write_bytes(bad.get(damage, damage.encode()))
    PROVED.clear()
    assert not found(plan())


def test_a_folder_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(FOLDER, str(tmp_path / "file" / "x"))
    assert not found(plan())


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ditron.analysis.proof_cache.KEPT", 2)
    for i in range(4):
        found(replace(plan(), name=f"p{i}"))
    assert [found(replace(plan(), name=f"p{i}")) for i in (3, 2, 0)] == [True, True, False]
    assert report.PROVED is PROVED
