import numpy as np
import pytest

from ditron.analysis import clocks
from ditron.analysis.separation import happens_before
from ditron.errors import DeadlockError, PlanError, RaceError
from ditron.plan.tables import After, Boundary, LaneOrder, NotifyOp, OpKind
from tests.unit.plan_builder import Notify, PlanBuilder, Wait


def ordered(b: PlanBuilder, first: int, second: int, gap: int = 0) -> bool:
    return bool(happens_before(b.plan()).ordered(first, 0, second, gap)[0])


def put(b: PlanBuilder, lane: int, x: int, after: After, slot: int, *, rank: int = 1) -> int:
    """A deferred put to a rank that notifies a slot."""
    touches = b.read(x, 0, (0, 4)), b.write(x, rank, (0, 4))
    notify = [Notify(slot, after=after)]
    return b.task("put", lane, *touches, notify=notify, deferred=True, kind=OpKind.PUT)


def test_a_static_lane_orders_its_tasks_and_launches():
    b = PlanBuilder(boundary=Boundary.PERSISTENT)
    lane = b.lane(0)
    first, second = b.task("a", lane), b.task("b", lane)
    other = b.task("c", b.lane(0))
    assert ordered(b, first, second)
    assert not ordered(b, second, first)
    assert ordered(b, second, first, 1)
    assert not ordered(b, first, other)
    assert not ordered(b, first, other, 1)


def test_stream_launches_are_ordered_rank_by_rank():
    b = PlanBuilder(ranks=2, boundary=Boundary.STREAM)
    here, beside, there = (b.task(n, b.lane(r)) for n, r in (("a", 0), ("b", 0), ("c", 1)))
    assert ordered(b, here, beside, 1)
    assert not ordered(b, here, there, 1)


def test_signals_order_through_lanes():
    b = PlanBuilder(ranks=3)
    one, two, lane = b.slot(1), b.slot(2), b.lane(1)
    a = b.task("a", b.lane(0), notify=[one])
    b.task("w", lane, wait=[one])
    b.task("n", lane, notify=[two])
    last = b.lane(2)
    early = b.task("early", last)
    b.task("w2", last, wait=[two])
    c = b.task("c", last)
    assert ordered(b, a, c)
    assert not ordered(b, a, early)
    assert not ordered(b, c, a)


def test_all_increments_of_a_shared_slot_come_before_a_wait_for_the_count():
    b = PlanBuilder(ranks=3)
    slot, back = b.slot(2), b.slot(0)
    makers = [b.task("m", b.lane(r), wait=[Wait(back, lag=1)], notify=[slot]) for r in (0, 1)]
    waiter = b.task("w", b.lane(2), wait=[slot], notify=[back])
    assert all(ordered(b, m, waiter) for m in makers)


def test_a_value_below_the_count_names_the_prefix_of_one_lane():
    b = PlanBuilder(ranks=2)
    slot, lane = b.slot(1), b.lane(0)
    tasks = [b.task("m", lane, notify=[Notify(slot, n)]) for n in (1, 2, 1)]
    waiter = b.task("w", b.lane(1), wait=[Wait(slot, 2)])
    assert [ordered(b, t, waiter) for t in tasks] == [True, True, False]


def test_a_value_below_the_count_from_two_lanes_is_refused():
    b = PlanBuilder(ranks=2)
    slot = b.slot(1)
    for rank in (0, 1):
        b.task("m", b.lane(rank), notify=[slot])
    b.task("w", b.lane(1), wait=[Wait(slot, 1)])
    with pytest.raises(RaceError) as error:
        happens_before(b.plan())
    assert str(error.value) == (
        "user.py:2: @w[0] on rank 1 (sm lane 1, task 0) waits for %slot[0] at rank 1 >= 1, which"
        " does not say which increments have come: its 2 increments come from sm lane 0 of rank 0,"
        " sm lane 0 of rank 1 in any order; wait for all 2, or give each producer lane a slot of"
        " its own"
    )


def test_epochs_must_be_separated_where_lanes_share_a_slot():
    b = PlanBuilder(ranks=2, boundary=Boundary.PERSISTENT)
    slot = b.slot(1)
    for rank in (0, 1):
        b.task("m", b.lane(rank), notify=[slot])
    b.task("w", b.lane(1), wait=[slot])
    with pytest.raises(RaceError, match=r"@m\[0\].* increments the slot for its next use in the"):
        happens_before(b.plan())


def test_a_slot_doubled_for_credits_two_launches_deep():
    def plan(copies: int) -> PlanBuilder:
        b = PlanBuilder(ranks=2, boundary=Boundary.PERSISTENT, copies=2)
        slot, free = b.slot(1, copies=copies), b.slot(0, copies=2)
        for rank in (0, 1):
            b.task("m", b.lane(rank), wait=[Wait(free, lag=2)], notify=[slot])
        b.task("w", b.lane(1), wait=[slot], notify=[free])
        return b

    happens_before(plan(2).plan())
    with pytest.raises(RaceError, match="next use"):
        happens_before(plan(1).plan())


def test_a_lag_beyond_the_slots_copies_is_refused():
    b = PlanBuilder(ranks=2)
    slot = b.slot(1)
    for rank in (0, 1):
        b.task("m", b.lane(rank), notify=[slot])
    b.task("w", b.lane(1), wait=[Wait(slot, lag=2)])
    with pytest.raises(RaceError, match="of 2 launches ago, but the slot is used again after 1"):
        happens_before(b.plan())


@pytest.mark.parametrize(
    ("after", "landed"),
    [(After.END, False), (After.PUT, True), (After.FENCE, True), (After.QUIET, True)],
)
def test_what_a_notify_says_of_a_transfer(after: After, landed: bool):
    b = PlanBuilder(ranks=2)
    x, slot = b.buffer("x", (4,)), b.slot(1)
    task = put(b, b.lane(0), x, after, slot)
    waiter = b.task("w", b.lane(1), wait=[slot], notify=[b.slot(0)])
    b.replace(task, waits=(Wait(1, lag=1),))
    assert ordered(b, task, waiter) is landed


@pytest.mark.parametrize(
    ("after", "fifo", "earlier"),
    [
        (After.PUT, False, False),
        (After.PUT, True, True),
        (After.FENCE, False, True),
        (After.QUIET, False, True),
    ],
)
def test_earlier_transfers_of_a_lane(after: After, fifo: bool, earlier: bool):
    b = PlanBuilder(ranks=2)
    x, slot, unused, back = b.buffer("x", (4,)), b.slot(1), b.slot(1), b.slot(0)
    lane = b.lane(0, fifo=fifo)
    first = put(b, lane, x, After.PUT, unused)
    b.replace(first, waits=(Wait(back, lag=1),))
    put(b, lane, x, after, slot)
    waiter = b.task("w", b.lane(1), wait=[slot], notify=[back])
    assert ordered(b, first, waiter) is earlier


def test_a_fence_is_for_one_rank():
    b = PlanBuilder(ranks=3)
    x, slot, unused, back = b.buffer("x", (4,)), b.slot(1), b.slot(2), b.slot(0)
    lane = b.lane(0)
    elsewhere = put(b, lane, x, After.PUT, unused, rank=2)
    b.replace(elsewhere, waits=(Wait(back, lag=1),))
    put(b, lane, x, After.FENCE, slot)
    waiter = b.task("w", b.lane(1), wait=[slot], notify=[back])
    assert not ordered(b, elsewhere, waiter)


def test_a_transfer_does_not_hold_up_its_lane():
    b = PlanBuilder(ranks=2)
    x, slot, lane = b.buffer("x", (4,)), b.slot(1), b.lane(0)
    task = put(b, lane, x, After.END, slot)
    following = b.task("next", lane)
    assert not ordered(b, task, following)
    assert ordered(b, task, following, 1)  # the launch ends when it has landed
    assert happens_before(b.plan()).begun(task, 0, following, 0)[0]


def test_a_queue_orders_nothing():
    b = PlanBuilder()
    queue, slot = b.lane(0, order=LaneOrder.QUEUE), b.slot()
    a, c = b.task("a", queue, notify=[slot]), b.task("c", queue)
    waiter = b.task("w", b.lane(0), wait=[slot])
    assert not ordered(b, a, c)
    assert ordered(b, a, waiter)
    assert ordered(b, a, c, 1)


def test_sets_that_may_take_each_other_back_are_refused():
    b = PlanBuilder(ranks=2)
    flag = b.slot(1)
    for rank, value in ((0, 1), (1, 2)):
        b.task("m", b.lane(rank), notify=[Notify(flag, value, NotifyOp.SET)])
    b.task("w", b.lane(1), wait=[Wait(flag, 2)])
    with pytest.raises(RaceError, match="take back"):
        happens_before(b.plan())


def test_a_plan_that_hangs_has_no_order():
    b = PlanBuilder()
    slot, lane = b.slot(), b.lane(0)
    b.task("w", lane, wait=[slot], notify=[slot])
    with pytest.raises(DeadlockError):
        happens_before(b.plan())


def test_the_host_acts_between_launches():
    b = PlanBuilder(ranks=2)
    x, slot = b.buffer("x", (4,)), b.slot(1)
    host = b.lane(0, "host")
    acquire = b.task("take", host, b.write(x, 0, (0, 4)), notify=[slot], kind=OpKind.ACQUIRE)
    release = b.task("give", host, b.write(x, 0, (0, 4)), kind=OpKind.RELEASE)
    here = b.task("here", b.lane(0))
    there = b.task("there", b.lane(1), wait=[slot])
    assert ordered(b, acquire, here)
    assert ordered(b, here, release)
    assert ordered(b, acquire, there)
    assert not ordered(b, there, release)
    b.replace(acquire, waits=(Wait(slot, lag=1),))
    with pytest.raises(PlanError, match="cannot wait"):
        happens_before(b.plan())


def test_clocks_computed_in_blocks_agree(monkeypatch: pytest.MonkeyPatch):
    b = PlanBuilder(ranks=2, boundary=Boundary.PERSISTENT)
    slots = [b.slot(0) for _ in range(5)]
    lanes = [b.lane(i % 2) for i in range(6)]
    for i, lane in enumerate(lanes):
        b.task(f"t{i}", lane, wait=[slots[i - 1]] if i else [], notify=slots[i : i + 1])
    plan = b.plan()
    a, c = (i.ravel() for i in np.indices((6, 6)))
    whole = happens_before(plan).ordered(a, 0, c, 0)
    monkeypatch.setattr(clocks, "BLOCK_BYTES", 1)
    monkeypatch.setattr(clocks, "BLOCK_COLUMNS", 1)
    assert (happens_before(plan).ordered(a, 0, c, 0) == whole).all()
    assert (whole == (a < c)).all()
