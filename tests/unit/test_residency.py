"""What fits in resident workers ends in every order of dispatch; what may not is refused."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import ditron as dt
from ditron.analysis.residency import HOST, NotResident, check_residency
from ditron.errors import DeadlockError
from ditron.plan.tables import Plan
from tests.property.mutant_table import ag_gemm, gemm_ar
from tests.unit.plan_builder import PlanBuilder

PROGRAMS = {"ag_gemm": ag_gemm, "gemm_ar": gemm_ar}


Stream = tuple[int, bool]  # a rank's transfers, or what else it does


class Dispatch:
    """One launch in an order drawn at random: lanes of a grid take free places and keep them.

    A rank's grids run one after another in two streams, and a lane leaves when it has ended.
    """

    def __init__(self, plan: Plan, resident: int, seed: int) -> None:
        self.plan, self.resident, self.rng = plan, resident, random.Random(seed)
        self.level = [0] * len(plan.slots)
        self.waiting: dict[Stream, list[list[list[int]]]] = {}
        self.running: dict[Stream, list[list[int]]] = {}
        for op, made in enumerate(plan.ops):
            for rank in range(plan.ranks):
                lanes = list(self._lanes(op, rank))
                if made.kind in HOST:
                    notify_all(plan, [t for lane in lanes for t in lane], self.level)
                    continue
                stream = (rank, made.engine == "copy")
                self.running[stream] = []
                launches = self.waiting.setdefault(stream, [])
                launches.append(self.rng.sample(lanes, len(lanes)))

    def _lanes(self, op: int, rank: int) -> Iterator[list[int]]:
        for tasks in self.plan.lane_tasks():
            mine = tasks[(self.plan.tasks.op[tasks] == op) & (self.plan.tasks.rank[tasks] == rank)]
            if len(mine):
                yield mine.tolist()

    def ends(self) -> bool:
        """Whether all lanes have ended once nothing moves."""
        streams = list(self.waiting)
        while any(self._step(stream) for stream in self.rng.sample(streams, len(streams))):
            pass
        return not any(map(any, self.waiting.values())) and not any(self.running.values())

    def _step(self, stream: Stream) -> bool:
        launches, lanes = self.waiting[stream], self.running[stream]
        while launches and not launches[0] and not lanes:
            launches.pop(0)
        beside = len(self.running.get((stream[0], not stream[1]), []))
        free = max(self.resident - beside - len(lanes), 0)
        taken = launches[0][:free] if launches else []
        if launches:
            del launches[0][:free]
        lanes += taken
        moved = bool(taken)
        for lane in list(lanes):
            while lane and satisfied(self.plan, lane[0], self.level):
                notify_all(self.plan, [lane.pop(0)], self.level)
                moved = True
            if not lane:
                lanes.remove(lane)
        return moved


def notify_all(plan: Plan, tasks: list[int], level: list[int]) -> None:
    for task in tasks:
        for row in plan.notifies_of(task):
            level[plan.notifies.slot[row]] += int(plan.notifies.amount[row])


def satisfied(plan: Plan, task: int, level: list[int]) -> bool:
    waits = plan.waits
    rows = [w for w in plan.waits_of(task) if waits.lag[w] == 0]
    return all(level[int(waits.slot[w])] >= int(waits.value[w]) for w in rows)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("algorithm", ["mesh-push", "one-shot-push", "ring", None])
def test_what_fits_ends_in_any_order_of_dispatch(name: str, algorithm: str | None):
    options = dt.Options(algorithm=algorithm, workers=3, copy_lanes=2, tile=(2, 2))
    try:
        executable = dt.compile(PROGRAMS[name](3), options=options)
    except dt.errors.OptionError:
        return
    with executable:
        plan = executable.plan
    needed = check_residency(plan, 100)
    assert check_residency(plan, needed) == needed
    assert all(Dispatch(plan, needed, seed).ends() for seed in range(30))
    if needed > 2:
        with pytest.raises(DeadlockError, match="workers are resident at once"):
            check_residency(plan, needed - 1)


def crowd(waiting: int) -> Plan:
    """Lanes of one grid that wait for the last of them."""
    b = PlanBuilder()
    slot = b.slot()
    for i in range(waiting + 1):
        b.task(
            "work", b.lane(0), wait=[] if i == waiting else [slot], notify=[slot] * (i == waiting)
        )
    return b.plan()


def test_too_many_lanes_that_wait():
    plan = crowd(4)
    assert check_residency(plan, 5) == 5
    assert not all(Dispatch(plan, 4, seed).ends() for seed in range(30))
    with pytest.raises(DeadlockError, match="4 of @work's 5 lanes wait on rank 0") as caught:
        check_residency(plan, 4)
    assert caught.value.where == "user.py:1"
    assert isinstance(caught.value.counterexample, NotResident)


def test_lanes_that_do_not_wait_take_turns():
    b = PlanBuilder()
    for _ in range(9):
        b.task("work", b.lane(0))
    assert check_residency(b.plan(), 1) == 1
    assert Dispatch(b.plan(), 1, seed=0).ends()


def test_a_gpu_target_refuses_more_workers_than_it_holds():
    with dt.Program("big", dt.Mesh(tp=2)) as p:
        x = p.input("x", (4096, 64), dt.bf16, dt.Shard(0))
        w = p.input("w", (64, 2048), dt.bf16, dt.Shard(1))
        p.output("y", dt.matmul(dt.all_gather(x, dim=0), w))
    many = dt.Options(algorithm="mesh-push", workers=500, tile=(64, 64))
    with pytest.raises(DeadlockError, match=r"@matmul's 500 lanes .*132 workers are resident"):
        dt.compile(p, target="sm_90", options=many)
    with dt.compile(p, target="sm_90", options=dt.Options(tile=(64, 64))) as exe:
        assert check_residency(exe.plan, 132) <= 132


def test_copies_that_the_host_drives_take_no_worker():
    options = dt.Options(algorithm="mesh-push", workers=3, copy_lanes=2, tile=(2, 2))
    with dt.compile(ag_gemm(3), options=options) as exe:
        plan = exe.plan
    assert check_residency(plan, 100) - check_residency(plan, 100, copies=False) == 2
