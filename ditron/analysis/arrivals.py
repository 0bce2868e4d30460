"""Which increments a wait waits for, and whether it waits for exactly those.

A wait of value v on a slot becomes an edge from an *arrival*: either all increments of one launch
(v is the slot's count), or the first increments, in order, of the one static lane that makes all
of them. Any other wait may pass after different sets of increments in different runs, so it orders
nothing; it is inexact, and refused by the race proof.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ditron.analysis.arrays import changes, last_of_run, longs, offsets, spans
from ditron.errors import PlanError
from ditron.plan.tables import After, Bools, LaneOrder, Longs, NotifyOp, OpKind, Plan


class Columns:
    """A plan's columns that every proof needs, as int64 and gathered per task once."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        tasks, lanes = plan.tasks, plan.lanes
        self.lane = longs(tasks.lane)
        self.seq = longs(tasks.seq)
        self.rank = longs(tasks.rank)
        self.lane_size = np.bincount(self.lane, minlength=len(lanes))
        self.static = np.array([o is LaneOrder.STATIC for o in lanes.order], np.bool_)
        # A transfer that lands at some time after the task's end.
        self.deferred = np.array([o.deferred for o in plan.ops], np.bool_)[tasks.op]
        self.is_put = np.array([o.kind is OpKind.PUT for o in plan.ops], np.bool_)[tasks.op]
        # In a fifo lane a task begins after its predecessor has landed.
        self.loose = self.deferred & ~lanes.fifo[self.lane] & self.static[self.lane]
        self.queued = ~self.static[self.lane]

    @cached_property
    def acquires(self) -> Bools:
        """Tasks by which the host hands over a buffer: it is done before the launch begins."""
        return self._of_kind(OpKind.ACQUIRE)

    @cached_property
    def releases(self) -> Bools:
        """Tasks by which the host gets a buffer back, once the launch has ended."""
        return self._of_kind(OpKind.RELEASE)

    def _of_kind(self, kind: OpKind) -> Bools:
        return np.array([o.kind is kind for o in self.plan.ops], np.bool_)[self.plan.tasks.op]

    @cached_property
    def put_rank(self) -> Longs:
        """The rank that each task's last access touches: a put's destination."""
        rank = np.zeros(len(self.lane), np.int64)
        rank[self.plan.accesses.task] = self.plan.accesses.rank
        return rank

    @cached_property
    def after(self) -> Longs:
        """Each notify's `After`, as END where a fence leaves out the task's own transfer."""
        notifies = self.plan.notifies
        task, after = longs(notifies.task), longs(notifies.after)
        to = self.plan.slots.rank[notifies.slot]
        fenced = self.is_put[task] & (self.put_rank[task] == to)
        bare = (after == After.FENCE) & self.deferred[task] & ~fenced & ~self.loose[task]
        return np.where(bare, int(After.END), after)

    @cached_property
    def lane_order(self) -> Longs:
        """All tasks sorted by (lane, seq)."""
        return np.lexsort((self.seq, self.lane)).astype(np.int64)

    @cached_property
    def lane_start(self) -> Longs:
        """Where each lane starts in `lane_order`."""
        return offsets(self.lane[self.lane_order], len(self.lane_size))


@dataclass(frozen=True)
class Arrivals:
    """The arrivals of one launch: a row each of `slot`, in no particular order.

    `wait_arrival` [W] is the arrival that each wait waits for. `edge_arrival`, `edge_notify` [E]
    list the notifies that must have come. `total` [S] is what one launch's increments add up to,
    `ordered` [S] whether one static lane makes them all in order, `inexact` [W] which waits may
    pass after other increments than those.
    """

    slot: Longs
    wait_arrival: Longs
    edge_arrival: Longs
    edge_notify: Longs
    total: Longs
    ordered: Bools
    inexact: Bools

    def __len__(self) -> int:
        return len(self.slot)


def find_arrivals(columns: Columns) -> Arrivals:
    """Decide for each wait which notifies it waits for.

    Raises:
        PlanError: a table that means nothing, such as a wait of value 0.
    """
    plan = columns.plan
    _check_tables(plan)
    waits, notifies, slots = plan.waits, plan.notifies, plan.slots
    order = np.lexsort((columns.after, columns.seq[notifies.task], notifies.slot))
    slot = longs(notifies.slot)[order]
    start = offsets(slot, len(slots))
    amount = longs(notifies.amount)[order]
    is_set = notifies.op[order] == NotifyOp.SET
    level = _running_level(slot, amount, is_set, start)
    total = np.zeros(len(slots), np.int64)
    np.maximum.at(total, slot, level)
    ordered, sound = _emission(columns, order, slot, is_set, amount)

    target, value = longs(waits.slot), longs(waits.value)
    count = longs(slots.count)
    whole = ~ordered[target]
    exact = sound[target] & (total[target] == count[target])
    exact &= np.where(whole, value == count[target], (value >= 1) & (value <= count[target]))
    # An ordered slot's arrival is the one notify whose increment reaches the value.
    span = int(level.max(initial=0)) + int(value.max(initial=0)) + 2
    reach = np.searchsorted(slot * span + level, target * span + value)
    reach = np.minimum(reach, start[target + 1] - 1)
    key = np.where(whole | (reach < start[target]), target, len(slots) + reach)
    keys, wait_arrival = np.unique(key, return_inverse=True)
    full = keys < len(slots)
    arrival_slot = keys.copy()
    arrival_slot[~full] = slot[keys[~full] - len(slots)]
    first = np.where(full, start[arrival_slot], keys - len(slots))
    many = np.where(full, start[arrival_slot + 1] - first, 1)
    return Arrivals(
        slot=arrival_slot,
        wait_arrival=longs(wait_arrival),
        edge_arrival=np.repeat(np.arange(len(keys)), many),
        edge_notify=longs(order)[spans(first, many)],
        total=total,
        ordered=ordered,
        inexact=~exact,
    )


def _check_tables(plan: Plan) -> None:
    waits, copies = plan.waits, plan.copies
    if copies < 1 or (plan.slots.copies > copies).any() or (plan.slots.copies < 1).any():
        message = f"slots of plan {plan.name} have more copies than the plan's {copies}"
        raise PlanError(message)
    if any(not 1 <= b.copies <= copies for b in plan.buffers):
        message = f"buffers of plan {plan.name} have more copies than the plan's {copies}"
        raise PlanError(message)
    if (waits.lag < 0).any() or (waits.value < 1).any():
        row = int(np.flatnonzero((waits.lag < 0) | (waits.value < 1))[0])
        message = (
            f"{plan.describe_task(int(waits.task[row]))} waits for value {waits.value[row]} with"
            f" lag {waits.lag[row]}; a value is at least 1 and a lag at least 0"
        )
        raise PlanError(message)
    sets = np.zeros(len(plan.slots), np.bool_)
    sets[plan.notifies.slot[plan.notifies.op == NotifyOp.SET]] = True
    mixed = sets[plan.notifies.slot] & (plan.notifies.op == NotifyOp.ADD)
    if mixed.any():
        row = int(np.flatnonzero(mixed)[0])
        message = (
            f"{plan.describe_task(int(plan.notifies.task[row]))} adds to"
            f" {plan.describe_slot(int(plan.notifies.slot[row]))}, which others set"
        )
        raise PlanError(message)
    if (plan.notifies.amount < 1).any():
        row = int(np.flatnonzero(plan.notifies.amount < 1)[0])
        message = f"{plan.describe_task(int(plan.notifies.task[row]))} notifies by less than 1"
        raise PlanError(message)


def _running_level(slot: Longs, amount: Longs, is_set: Bools, start: Longs) -> Longs:
    """What a slot holds after each of its increments, in emission order."""
    running = np.cumsum(amount)
    before = np.concatenate([[0], running])[start[slot]]
    added = running - before
    if not is_set.any():
        return added
    # The highest value set so far; amounts that fall are refused as unsound.
    span = int(amount.max()) + 1
    highest = np.maximum.accumulate(slot * span + amount) - slot * span
    return np.where(is_set, highest, added)


def _emission(
    columns: Columns, order: Longs, slot: Longs, is_set: Bools, amount: Longs
) -> tuple[Bools, Bools]:
    """Per slot: one static lane makes all increments in order; no set takes back another.

    In order means that a later increment promises all that an earlier one does: transfers that
    land in any order promise only themselves.
    """
    plan, size = columns.plan, len(columns.plan.slots)
    task = longs(plan.notifies.task)[order]
    after = columns.after[order]
    lane = columns.lane[task]
    loose_lane = np.zeros(len(plan.lanes), np.bool_)
    loose_lane[columns.lane[columns.loose]] = True
    kind = np.where(loose_lane[lane], after, 0)
    kind = np.where((kind == After.PUT) & ~columns.loose[task], 0, kind)
    ordered = np.ones(size, np.bool_)
    sound = np.ones(size, np.bool_)
    ordered[slot[columns.queued[task] | (kind == After.PUT)]] = False
    same = ~changes(slot)
    mixed = same & (np.append(-1, lane[:-1]) != lane) if len(lane) else same
    ordered[slot[mixed]] = False
    ordered[slot[same & (np.append(-1, kind[:-1]) != kind)] if len(kind) else slot] = False
    if is_set.any():
        previous = np.append(0, amount[:-1])
        sound[slot[same & is_set & (previous >= amount)]] = False
        late = kind != 0
        late |= columns.deferred[task] & (after == After.END)
        sound[slot[same & is_set & (late | ~ordered[slot])]] = False
        start = np.flatnonzero(changes(slot))
        several = ~last_of_run(changes(slot))[start]
        sound[slot[start][several & is_set[start] & late[start]]] = False
    return ordered, sound
