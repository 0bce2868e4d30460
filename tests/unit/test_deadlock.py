import pytest

from ditron.analysis.deadlock import check_deadlock
from ditron.errors import DeadlockError, PlanError
from ditron.plan.tables import LaneOrder, NotifyOp
from tests.unit.plan_builder import Notify, PlanBuilder, Wait


def test_counts_of_a_plan_that_finishes():
    b = PlanBuilder()
    done = b.slot()
    b.task("a", b.lane(0), notify=[done])
    b.task("b", b.lane(0), wait=[done])
    report = check_deadlock(b.plan())
    assert (report.tasks, report.lanes, report.waits, report.notifies) == (2, 2, 1, 1)


def test_two_tasks_that_wait_for_each_other():
    b = PlanBuilder(ranks=2)
    ping, pong = b.slot(rank=0), b.slot(rank=1)
    b.task("a", b.lane(0), wait=[ping], notify=[pong])
    b.task("b", b.lane(1), wait=[pong], notify=[ping])
    with pytest.raises(DeadlockError) as error:
        check_deadlock(b.plan())
    assert str(error.value).splitlines() == [
        "user.py:1: 2 tasks wait for each other; let one of them go on without its wait, or"
        " notify before it waits:",
        "  @a[0] on rank 0 (sm lane 0, task 0) waits for %slot[0] at rank 0 >= 1 (it is 0), which"
        " needs @b[0] on rank 1 (sm lane 0, task 0) [user.py:1]",
        "  @b[0] on rank 1 (sm lane 0, task 0) waits for %slot[1] at rank 1 >= 1 (it is 0), which"
        " needs @a[0] on rank 0 (sm lane 0, task 0) [user.py:2]",
    ]


def test_a_producer_behind_its_waiter_on_one_lane():
    b = PlanBuilder()
    lane, done = b.lane(0), b.slot()
    b.task("wait", lane, wait=[done])
    b.task("tell", lane, notify=[done])
    with pytest.raises(DeadlockError, match="1 task waits for itself") as error:
        check_deadlock(b.plan())
    assert "needs @tell[0]" in str(error.value)
    assert "behind @wait[0]" in str(error.value)


def test_the_cycle_is_shown_without_what_leads_to_it():
    b = PlanBuilder()
    ping, pong, other = b.slot(), b.slot(), b.slot()
    b.task("outside", b.lane(0), wait=[other])
    b.task("a", b.lane(0), wait=[ping], notify=[pong, other])
    b.task("b", b.lane(0), wait=[pong], notify=[ping])
    with pytest.raises(DeadlockError, match="2 tasks wait") as error:
        check_deadlock(b.plan())
    assert "@outside" not in str(error.value)


def test_a_value_that_the_notifies_do_not_reach():
    b = PlanBuilder()
    done = b.slot()
    b.task("a", b.lane(0), notify=[done])
    b.task("b", b.lane(0), wait=[Wait(done, 3)])
    with pytest.raises(DeadlockError, match=r">= 3, which counts 1 .* 1 notifies bring it to 1"):
        check_deadlock(b.plan())


def test_a_slot_that_nobody_notifies():
    b = PlanBuilder()
    b.task("b", b.lane(0), wait=[Wait(b.slot(), 1)])
    with pytest.raises(DeadlockError, match="no task notifies it"):
        check_deadlock(b.plan())


def test_credits_of_earlier_launches_hold_nothing_back():
    b = PlanBuilder(ranks=2)
    ready, free = b.slot(rank=1), b.slot(rank=0)
    b.task("put", b.lane(0), wait=[Wait(free, lag=1)], notify=[ready])
    b.task("use", b.lane(1), wait=[ready], notify=[free])
    check_deadlock(b.plan())


def test_waits_below_the_count_are_run_as_they_are():
    """The second waiter's value is reached by one of two increments, and feeds the other one."""
    b = PlanBuilder()
    some, go = b.slot(), b.slot()
    b.task("first", b.lane(0), notify=[some])
    b.task("second", b.lane(0), wait=[go], notify=[some])
    b.task("early", b.lane(0), wait=[Wait(some, 1)], notify=[go])
    check_deadlock(b.plan())
    b.replace(2, waits=(Wait(some, 2),))
    with pytest.raises(DeadlockError, match="2 tasks"):
        check_deadlock(b.plan())


def test_a_set_slot_holds_what_was_set():
    b = PlanBuilder()
    flag, lane = b.slot(), b.lane(0)
    b.task("one", lane, notify=[Notify(flag, 1, NotifyOp.SET)])
    b.task("two", lane, notify=[Notify(flag, 2, NotifyOp.SET)])
    b.task("use", b.lane(0), wait=[Wait(flag, 2)])
    check_deadlock(b.plan())
    b.replace(2, waits=(Wait(flag, 3),))
    with pytest.raises(DeadlockError):
        check_deadlock(b.plan())


def test_a_slot_is_set_or_added_to():
    b = PlanBuilder()
    flag, lane = b.slot(), b.lane(0)
    b.task("one", lane, notify=[Notify(flag, 1, NotifyOp.SET)])
    b.task("two", lane, notify=[Notify(flag, 1)])
    with pytest.raises(PlanError, match="which others set"):
        check_deadlock(b.plan())


def test_a_queue_must_finish_with_one_worker():
    b = PlanBuilder()
    done, queue = b.slot(), b.lane(0, order=LaneOrder.QUEUE)
    b.task("wait", queue, wait=[done])
    b.task("tell", queue, notify=[done])
    with pytest.raises(DeadlockError):
        check_deadlock(b.plan())
