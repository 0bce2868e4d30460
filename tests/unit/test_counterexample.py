"""Counterexamples as data and as pictures."""

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ditron.analysis.counterexample import (
    Cycle,
    EpochNotSeparated,
    Found,
    InexactWait,
    NotHandedOver,
    Race,
    UnreachableWait,
    counterexample_data,
)
from ditron.analysis.report import prove
from ditron.errors import ProofError
from ditron.plan.tables import Boundary, OpKind, Plan, Role
from ditron.tools.picture import draw
from tests.unit.plan_builder import Notify, PlanBuilder, Wait

SVG = "{http://www.w3.org/2000/svg}"


def found_in(plan: Plan) -> Found:
    with pytest.raises(ProofError) as error:
        prove(plan, {}, None)
    found = error.value.counterexample
    assert isinstance(found, Found)
    assert (found.text, found.where) == (error.value.message, error.value.where)
    return found


def race() -> Plan:
    b = PlanBuilder(ranks=2)
    x, copy, work = b.buffer("x", (8, 4)), b.lane(0, "copy"), b.lane(1)
    b.task("put", copy, b.write(x, 1, (2, 6), (0, 4)), deferred=True)
    for i in range(5):
        b.task("other", work, b.read(x, 0, (i, i + 1), (0, 4)))
    b.task("use", work, b.read(x, 1, (0, 8), (0, 4)))
    return b.plan()


def cycle() -> Plan:
    b = PlanBuilder(ranks=2)
    one, two = b.slot(0), b.slot(1)
    b.task("a", b.lane(0), wait=[one], notify=[two])
    last = b.lane(1)
    b.task("b", last, wait=[two])
    b.task("c", last, notify=[one])
    return b.plan()


def unreachable() -> Plan:
    b = PlanBuilder()
    slot = b.slot()
    b.task("a", b.lane(0), notify=[slot])
    b.task("b", b.lane(0), wait=[Wait(slot, 3)])
    return b.plan()


def inexact() -> Plan:
    b = PlanBuilder()
    slot = b.slot()
    for _ in range(2):
        b.task("a", b.lane(0), notify=[slot])
    b.task("b", b.lane(0), wait=[Wait(slot, 1)])
    return b.plan()


def unseparated() -> Plan:
    b = PlanBuilder(ranks=3, boundary=Boundary.PERSISTENT)
    slot = b.slot(2)
    b.task("a", b.lane(0), notify=[Notify(slot)])
    b.task("b", b.lane(1), notify=[Notify(slot)])
    b.task("c", b.lane(2), wait=[slot])
    return b.plan()


KINDS = [
    (race, Race, 2, 1),
    (cycle, Cycle, 3, 0),
    (unreachable, UnreachableWait, 2, 0),
    (inexact, InexactWait, 3, 0),
    (unseparated, EpochNotSeparated, 2, 1),
]


@pytest.mark.parametrize(("plan", "kind", "marked", "missing"), KINDS)
def test_pictures_mark_the_tasks(
    plan: Callable[[], Plan], kind: type[Found], marked: int, missing: int
):
    found = found_in(plan())
    assert isinstance(found, kind)
    tree = ElementTree.fromstring(draw(found))
    groups = [g for g in tree.iter(f"{SVG}g") if g.get("class") == "task marked"]
    dashed = [p for p in tree.iter(f"{SVG}path") if "missing" in (p.get("class") or "")]
    assert (len(groups), len(dashed)) == (marked, missing)
    shown = {g.findtext(f"{SVG}title") for g in groups}
    assert shown == {f"{t} [{t.location}]" for t, _ in found.marks()}


@pytest.mark.parametrize(("plan", "kind", "marked", "missing"), KINDS)
def test_counterexamples_are_plain_data(
    plan: Callable[[], Plan], kind: type[Found], marked: int, missing: int
):
    data = json.loads(json.dumps(counterexample_data(found_in(plan()))))
    assert data["kind"] == kind.__name__
    assert data["lanes"][0]["tasks"][0]["location"].startswith("user.py:")


def test_what_a_race_holds():
    found = found_in(race())
    assert isinstance(found, Race)
    assert found.first.task.name == "@put[0]"
    assert str(found.first.box) == "%x[2:6, 0:4] at rank 1"
    assert (found.first.does, found.second.does, found.gap) == ("writes", "reads", 0)
    assert (found.missing.first, found.missing.second) == (found.first.task, found.second.task)
    assert found.missing.after == "put"
    around = found.lanes[1]
    assert (around.before, [t.name for t in around.tasks]) == (
        3,
        ["@other[3]", "@other[4]", "@use[0]"],
    )


def test_a_race_with_the_next_launch_has_a_row_of_its_own():
    b = PlanBuilder()
    x = b.buffer("x", (8,))
    b.task("put", b.lane(0), b.write(x, 0, (0, 8)), deferred=True)
    found = found_in(replace_boundary(b).plan())
    assert [lane.launch for lane in found.lanes] == [0, 1]
    assert "next launch" in draw(found)


def replace_boundary(b: PlanBuilder) -> PlanBuilder:
    b.boundary = Boundary.PERSISTENT
    return b


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    from ditron.tools.cli import app  # noqa: PLC0415

    good = Path(__file__).parents[1] / "filecheck" / "passes" / "verify_all.mlir"
    broken, picture = tmp_path / "p.mlir", tmp_path / "p.svg"
    broken.write_text(good.read_text().replace("after put", "after end"))
    with pytest.raises(SystemExit) as ended:
        app(["verify", str(broken), "--json", "--svg", str(picture)])
    assert ended.value.code == 1
    data = json.loads(capsys.readouterr().out)
    assert (data["proved"], data["error"]) == (False, "RaceError")
    assert data["where"].startswith(str(broken))
    assert data["counterexample"]["kind"] == "Race"
    assert "marked" in picture.read_text()
    with pytest.raises(SystemExit) as ended:
        app(["verify", str(good), "--json", "--svg", str(tmp_path / "none.svg")])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["proved"] is True
    assert not (tmp_path / "none.svg").exists()


def test_peers_and_the_host():
    b = PlanBuilder(ranks=2)
    x = b.buffer("x", (4,), role=Role.INPUT)
    pull = b.task("pull", b.lane(1), b.read(x, 0, (0, 4)))
    found = found_in(b.plan())
    assert isinstance(found, NotHandedOver)
    assert "the host of rank 0" in found.text
    ready, done, host = b.slot(1), b.slot(0), b.lane(0, "host")
    whole = b.write(x, 0, (0, 4))
    b.task("acquire", host, whole, notify=[ready], kind=OpKind.ACQUIRE)
    b.replace(pull, waits=(Wait(ready),), notifies=(Notify(done),))
    assert isinstance(found_in(b.plan()), Race)  # the next launch's acquire against the pull
    b.task("release", host, whole, wait=[done], kind=OpKind.RELEASE)
    assert prove(b.plan(), {}, None).tasks == 3
