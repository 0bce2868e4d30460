from dataclasses import replace

import numpy as np
import pytest

from ditron.analysis import touches
from ditron.analysis.races import check_races
from ditron.analysis.separation import happens_before
from ditron.errors import RaceError
from ditron.plan.tables import After, Boundary, OpKind, Plan
from tests.unit.plan_builder import Notify, PlanBuilder, Touch, Wait


def pipeline(**changes: dict[str, object]) -> PlanBuilder:
    """Rank 0 puts into rank 1's buffer, which uses it and gives credit back.

    `changes` are of the tasks `put` and `use`.
    """
    b = PlanBuilder(ranks=2)
    x = b.buffer("x", (8, 4))
    ready, free = b.slot(1), b.slot(0)
    box = (0, 8), (0, 4)
    b.task(
        "put",
        b.lane(0, "copy"),
        b.read(x, 0, *box),
        b.write(x, 1, *box),
        wait=[Wait(free, lag=1)],
        notify=[Notify(ready, after=After.PUT)],
        deferred=True,
        kind=OpKind.PUT,
    )
    b.task("use", b.lane(1), b.read(x, 1, *box), wait=[ready], notify=[free])
    b.task("idle", b.lane(1))
    for name, value in changes.items():
        b.replace(("put", "use").index(name), **value)
    return b


def refused(plan: Plan) -> str:
    with pytest.raises(RaceError) as error:
        check_races(plan)
    return str(error.value)


def test_a_pipeline_with_credits_is_free_of_races():
    report = check_races(pipeline().plan())
    assert (report.tasks, report.accesses, report.waits, report.launches) == (3, 3, 2, 2)
    assert report.pairs == 2  # write before read, read before the next launch's write


def test_the_message_names_both_accesses_and_the_missing_edge():
    text = refused(pipeline(use={"waits": ()}).plan())
    assert text.splitlines() == [
        "user.py:2: nothing orders two accesses to the same bytes:",
        "  @put[0] on rank 0 (copy lane 0, task 0) writes %x[0:8, 0:4] at rank 1 [user.py:1]",
        "  @use[0] on rank 1 (sm lane 0, task 0) reads %x[0:8, 0:4] at rank 1 in the same launch"
        " [user.py:2]",
        "a notify from @put[0] on rank 0 (copy lane 0, task 0) after put and a wait for it in"
        " @use[0] on rank 1 (sm lane 0, task 0) would",
    ]


def test_a_missing_credit_races_with_the_next_launch():
    text = refused(pipeline(put={"waits": ()}).plan())
    assert "@use[0] on rank 1 (sm lane 0, task 0) reads %x[0:8, 0:4] at rank 1 [" in text
    assert "writes %x[0:8, 0:4] at rank 1 in the next launch" in text
    assert "a wait of lag 1 for it in @put[0]" in text


def test_a_signal_before_the_transfer_has_landed():
    early = (Notify(0, after=After.END),)
    assert "after put" in refused(pipeline(put={"notifies": early}).plan())


def two_tasks(first: Touch, second: Touch, b: PlanBuilder) -> Plan:
    b.task("a", b.lane(0), first)
    b.task("b", b.lane(0), second)
    return b.plan()


@pytest.mark.parametrize(
    ("modes", "boxes", "races"),
    [
        ("rr", ((0, 4), (0, 4)), False),
        ("aa", ((0, 4), (0, 4)), False),
        ("ra", ((0, 4), (3, 6)), True),
        ("wa", ((0, 4), (3, 6)), True),
        ("ww", ((0, 4), (3, 6)), True),
        ("wr", ((0, 4), (4, 6)), False),
        ("wr", ((0, 4), (2, 2)), False),
        ("rw", ((0, 1), (0, 6)), True),
    ],
)
def test_which_accesses_conflict(modes: str, boxes: tuple[tuple[int, int], ...], races: bool):
    b = PlanBuilder(boundary=Boundary.STREAM)
    x = b.buffer("x", (6,))
    kinds = {"r": b.read, "w": b.write, "a": b.add}
    first, second = (kinds[m](x, 0, box) for m, box in zip(modes, boxes, strict=True))
    plan = two_tasks(first, second, b)
    if races:
        assert "nothing orders two" in refused(plan)
    else:
        check_races(plan)


def test_boxes_that_share_rows_but_not_columns():
    b = PlanBuilder()
    x = b.buffer("x", (4, 8))
    check_races(two_tasks(b.write(x, 0, (0, 4), (0, 3)), b.write(x, 0, (0, 4), (3, 8)), b))


def test_ranks_have_memories_of_their_own():
    b = PlanBuilder(ranks=2)
    x = b.buffer("x", (4,))
    check_races(two_tasks(b.write(x, 0, (0, 4)), b.write(x, 1, (0, 4)), b))


def test_a_read_between_edges_of_writes_meets_both():
    b = PlanBuilder()
    x, lane, done = b.buffer("x", (8,)), b.lane(0), b.slot()
    b.task("w", lane, b.write(x, 0, (0, 4)))
    b.task("w", lane, b.write(x, 0, (4, 8)), notify=[done])
    b.task("r", b.lane(0), b.read(x, 0, (3, 5)), wait=[done])
    check_races(b.plan())
    b.replace(0, notifies=(Notify(done),))
    b.replace(1, notifies=())
    assert "%x[4:8]" in refused(b.plan())


def test_in_place_tasks_do_not_race_with_themselves():
    b = PlanBuilder()
    x, lane = b.buffer("x", (4,)), b.lane(0)
    for _ in range(3):
        b.task("scale", lane, b.read(x, 0, (0, 4)), b.write(x, 0, (0, 4)))
    check_races(b.plan())


def test_a_task_that_lands_late_races_with_itself():
    b = PlanBuilder(boundary=Boundary.PERSISTENT)
    x = b.buffer("x", (4,))
    b.task("put", b.lane(0), b.write(x, 0, (0, 4)), deferred=True, kind=OpKind.PUT)
    assert "at rank 0 in the next launch" in refused(b.plan())
    fifo = PlanBuilder(boundary=Boundary.PERSISTENT, buffers=b.buffers)
    write = b.write(x, 0, (0, 4))
    fifo.task("put", fifo.lane(0, fifo=True), write, deferred=True, kind=OpKind.PUT)
    check_races(fifo.plan())


def test_a_group_of_reads_with_a_write_in_its_midst():
    """Reads of one op and lane are judged together where they can be, and one by one else."""
    b = PlanBuilder()
    x, y = b.buffer("x", (4,)), b.buffer("y", (4,))
    there, back, lane = b.slot(), b.slot(), b.lane(0)
    b.task("r", lane, b.read(x, 0, (0, 4)), notify=[there])
    b.task("w", b.lane(0), b.write(x, 0, (0, 4)), wait=[there], notify=[back])
    b.task("r", lane, b.read(x, 0, (0, 4)), wait=[back])
    b.task("other", lane, b.write(y, 0, (0, 4)))
    check_races(b.plan())
    b.replace(2, waits=())
    assert "@r[1]" in refused(b.plan())


def aliased(offset: int, *, ordered: bool) -> Plan:
    """Two buffers of 16 bytes; one is used up before the other is filled, if ordered."""
    b = PlanBuilder(ranks=1)
    x, y = b.buffer("x", (4,), offset=0), b.buffer("y", (4,), offset=offset)
    done, again, one, two = b.slot(), b.slot(), b.lane(0), b.lane(0)
    b.task("wx", one, b.write(x, 0, (0, 4)))
    b.task("rx", one, b.read(x, 0, (0, 4)), notify=[done])
    b.task("wy", two, b.write(y, 0, (0, 4)), wait=[done] if ordered else [])
    b.task("ry", two, b.read(y, 0, (0, 4)), notify=[again])
    return b.plan()


def test_buffers_that_share_bytes():
    check_races(aliased(0, ordered=True))
    check_races(aliased(8, ordered=True))
    check_races(aliased(16, ordered=False))
    text = refused(aliased(8, ordered=False))
    assert "%x[" in text
    assert "%y[" in text


def test_one_task_on_two_buffers_that_share_bytes():
    b = PlanBuilder()
    x, y = b.buffer("x", (4,), offset=0), b.buffer("y", (4,), offset=4)
    b.task("t", b.lane(0), b.read(x, 0, (0, 4)), b.write(y, 0, (0, 4)))
    assert "@t[0]" in refused(b.plan())
    b.tasks.clear()
    b.task("t", 0, b.read(x, 0, (0, 1)), b.write(y, 0, (0, 4)))
    check_races(b.plan())


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touches, "MANY", 0)
    monkeypatch.setattr(touches, "MANY_AT_LEAST", -1)


def layers(*, waits: bool = True, last_box: tuple[int, int] = (6, 8)) -> Plan:
    """Four tasks write a part each, then four read the whole."""
    b = PlanBuilder()
    x, done = b.buffer("x", (8,)), b.slot()
    lanes = [b.lane(0) for _ in range(4)]
    for i, lane in enumerate(lanes):
        box = (2 * i, 2 * i + 2) if i < 3 else last_box
        b.task("write", lane, b.write(x, 0, box), notify=[done])
    for i, lane in enumerate(lanes):
        b.task("read", lane, b.read(x, 0, (0, 8)), wait=[done] if waits or i else [])
    return b.plan()


@pytest.mark.usefixtures("coarse")
def test_readers_of_the_whole_against_its_writers():
    report = check_races(layers())
    assert report.touches == 12  # each write in its cell, and eight in the one of the whole
    assert "@read[0]" in refused(layers(waits=False))
    assert "@write[3]" in refused(layers(last_box=(5, 8)))


@pytest.mark.usefixtures("coarse")
def test_coarse_cells_that_fail_are_looked_at_in_detail():
    """The reader of the one half runs beside the writer of the other."""
    b = PlanBuilder()
    x, lane, done = b.buffer("x", (4,)), b.lane(0), b.slot()
    b.task("w", lane, b.write(x, 0, (0, 2)), notify=[done])
    b.task("w", lane, b.write(x, 0, (2, 4)))
    b.task("r", b.lane(0), b.read(x, 0, (0, 2)), wait=[done])
    check_races(b.plan())


@pytest.mark.usefixtures("coarse")
def test_in_place_tasks_in_coarse_cells():
    b = PlanBuilder()
    x, lane, other = b.buffer("x", (4,)), b.lane(0), b.lane(0)
    b.task("scale", lane, b.read(x, 0, (0, 4)), b.write(x, 0, (0, 2)))
    b.task("write", lane, b.write(x, 0, (2, 4)))
    check_races(b.plan())
    b.replace(1, lane=other)
    assert "@write[0]" in refused(b.plan())


def test_copies_of_a_buffer_take_turns():
    def plan(lag: int, copies: int) -> Plan:
        b = PlanBuilder(ranks=2, boundary=Boundary.PERSISTENT, copies=2)
        x = b.buffer("x", (4,), copies=copies)
        ready, free = b.slot(1, copies=2), b.slot(0, copies=2)
        write = b.write(x, 1, (0, 4))
        b.task("put", b.lane(0), write, wait=[Wait(free, lag=lag)], notify=[ready])
        b.task("use", b.lane(1), b.read(x, 1, (0, 4)), wait=[ready], notify=[free])
        return b.plan()

    check_races(plan(lag=2, copies=2))
    check_races(plan(lag=1, copies=1))
    assert "in the next launch" in refused(plan(lag=2, copies=1))


def test_a_proved_order_can_be_passed():
    plan = pipeline().plan()
    assert check_races(plan, happens_before(plan)) == check_races(plan)


def test_buffers_without_dimensions():
    b = PlanBuilder()
    x, lane, done = b.buffer("x", (), extent=[()]), b.lane(0), b.slot()
    b.task("w", lane, b.write(x, 0), notify=[done])
    b.task("r", b.lane(0), b.read(x, 0), wait=[done])
    check_races(b.plan())
    b.replace(1, waits=())
    refused(b.plan())


def test_empty_boxes_touch_nothing():
    plan = pipeline(use={"waits": ()}).plan()
    accesses = replace(plan.accesses, hi=np.where([[False], [True], [False]], 0, plan.accesses.hi))
    check_races(replace(plan, accesses=accesses))
