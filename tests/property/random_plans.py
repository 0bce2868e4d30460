"""Small random plans: lanes, waits and notifies at random, and variations of sensible ones."""

from __future__ import annotations

import random

from ditron.plan.tables import After, Boundary, LaneOrder, NotifyOp, OpKind, Plan
from tests.unit.plan_builder import Notify, PlanBuilder, Touch, Wait


def random_plan(rng: random.Random, *, sensible: float = 0.7) -> Plan:
    """Two to five tasks on two or three lanes; with luck, correct.

    `sensible` is how often a wait is for the count of its slot.
    """
    copies = rng.choice([1, 1, 1, 2])
    ranks = rng.choice([1, 2, 2])
    boundary = rng.choice([Boundary.STREAM, Boundary.STREAM, Boundary.PERSISTENT])
    b = PlanBuilder(ranks, boundary, copies)
    shared = rng.random() < 0.2  # two buffers that share bytes of the heap
    for i in range(2 if shared else rng.choice([1, 1, 2])):
        offset = rng.choice([0, 4, 8, 16]) if shared else -1
        b.buffer(f"x{i}", (4,), copies=rng.choice([1, copies]), offset=offset)
    queue = boundary is Boundary.STREAM and rng.random() < 0.15
    for _ in range(rng.choice([2, 2, 3])):
        order = LaneOrder.QUEUE if queue and rng.random() < 0.5 else LaneOrder.STATIC
        b.lane(rng.randrange(ranks), order=order, fifo=rng.random() < 0.3)
    for _ in range(rng.choice([1, 2, 3])):
        b.slot(rng.randrange(ranks), copies=rng.choice([1, copies]))
    sets = rng.random() < 0.2
    for i in range(rng.randint(2, 5)):
        _random_task(rng, b, i, sets=sets)
    if boundary is Boundary.STREAM and rng.random() < 0.4:
        _random_host(rng, b, sets=sets)
    _random_waits(rng, b, sensible)
    return b.plan()


def _random_host(rng: random.Random, b: PlanBuilder, *, sets: bool) -> None:
    """The host of a rank hands a buffer over and gets it back."""
    rank = rng.randrange(b.ranks)
    lane, buffer = b.lane(rank, "host"), rng.randrange(len(b.buffers))
    whole = b.write(buffer, rank, (0, 4))
    if rng.random() < 0.7:
        slots = [rng.randrange(len(b.slots)) for _ in range(rng.choice([0, 1, 2]))]
        slots = [s for s in slots if s or not sets]
        b.task("acquire", lane, whole, notify=slots, kind=OpKind.ACQUIRE)
    if rng.random() < 0.7:
        b.task("release", lane, whole, kind=OpKind.RELEASE)


def _random_task(rng: random.Random, b: PlanBuilder, i: int, *, sets: bool) -> None:
    touches = [_random_touch(rng, b) for _ in range(rng.choice([0, 1, 1, 2]))]
    deferred = rng.random() < 0.3
    kind = OpKind.PUT if deferred and touches else OpKind.CALL
    after = [After.END, After.PUT, After.FENCE, After.QUIET] if deferred else list(After)
    notifies: list[Notify] = []
    for _ in range(rng.choice([0, 1, 1, 2])):
        slot, amount = rng.randrange(len(b.slots)), rng.choice([1, 1, 1, 2])
        op = NotifyOp.SET if slot == 0 and sets else NotifyOp.ADD
        notifies.append(Notify(slot, amount, op, rng.choice(after)))
    lane = rng.randrange(len(b.lanes))
    name = f"t{rng.choice([i, 0, 0])}"  # tasks of one op may be grouped
    b.task(name, lane, *touches, notify=notifies, deferred=deferred and bool(touches), kind=kind)


def _random_touch(rng: random.Random, b: PlanBuilder) -> Touch:
    lo = rng.randrange(3)
    box = rng.choice([(lo, rng.randint(lo + 1, 4)), (0, 2)])
    mode = rng.choice([b.read, b.read, b.write, b.write, b.add])
    return mode(rng.randrange(len(b.buffers)), rng.randrange(b.ranks), box)


def _random_waits(rng: random.Random, b: PlanBuilder, sensible: float) -> None:
    counts = [0] * len(b.slots)
    for task in b.tasks:
        for n in task.notifies:
            old = counts[n.slot]
            counts[n.slot] = max(old, n.amount) if n.op is NotifyOp.SET else old + n.amount
    used = [s for s, c in enumerate(counts) if c]
    for i, task in enumerate(b.tasks):
        waits: list[Wait] = []
        if task.kind is OpKind.ACQUIRE:
            continue
        while used and rng.random() < 0.55 and len(waits) < 3:
            slot = rng.choice(used)
            whole = rng.random() < sensible
            value = counts[slot] if whole else rng.randint(1, counts[slot])
            waits.append(Wait(slot, value, rng.choice([0, 0, 1, 1, b.slots[slot][1]])))
        b.replace(i, waits=tuple(waits))


def ring_plan(rng: random.Random) -> PlanBuilder:
    """A correct plan: producers fill buffers that consumers read, with credits back."""
    copies = rng.choice([1, 1, 2])
    ranks = rng.choice([1, 2])
    boundary = rng.choice([Boundary.STREAM, Boundary.PERSISTENT])
    b = PlanBuilder(ranks, boundary, copies)
    deferred, fifo = rng.random() < 0.5, rng.random() < 0.5
    producers = rng.choice([1, 2])
    many = rng.choice([1, 2]) if producers == 1 else 1
    x = b.buffer("x", (4,), copies=copies)
    home = rng.randrange(ranks)
    ready, free = b.slot(home, copies=copies), b.slot(0, copies=copies)
    lanes = [b.lane(rng.randrange(ranks), "copy", fifo=fifo) for _ in range(producers)]
    consumer = b.lane(home)
    after = After.PUT if deferred and rng.random() < 0.7 else After.QUIET
    for p, lane in enumerate(lanes):
        for i in range(many):
            box = (2 * (p + i), 2 * (p + i) + 2)
            b.task(
                f"put{p}",
                lane,
                b.write(x, home, box),
                wait=[Wait(free, lag=copies)],
                notify=[Notify(ready, after=after)],
                deferred=deferred,
                kind=OpKind.PUT,
            )
    b.task("use", consumer, b.read(x, home, (0, 4)), wait=[ready], notify=[free])
    return b


def batched_plan(rng: random.Random) -> PlanBuilder:
    """A correct plan: two transfers in flight at once, one signal behind a fence, credit back."""
    copies = rng.choice([1, 2])
    b = PlanBuilder(2, rng.choice([Boundary.STREAM, Boundary.PERSISTENT]), copies)
    x = b.buffer("x", (4,), copies=copies)
    ready, free = b.slot(1, copies=copies), b.slot(0, copies=copies)
    lane, consumer = b.lane(0, "copy"), b.lane(1)
    after = rng.choice([After.FENCE, After.QUIET])
    for i in range(2):
        b.task(
            "put",
            lane,
            b.write(x, 1, (2 * i, 2 * i + 2)),
            wait=[] if i else [Wait(free, lag=copies)],
            notify=[Notify(ready, after=after)] if i else [],
            deferred=True,
            kind=OpKind.PUT,
        )
    b.task("use", consumer, b.read(x, 1, (0, 4)), wait=[ready], notify=[free])
    return b
