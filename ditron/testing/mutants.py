"""Plans with one thing broken, of about twenty kinds.

Not every mutant is wrong: a wait may repeat what another says, a box may be moved to bytes that
nobody needs. What is wrong with one, if anything, shows in `interleavings`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import TypeVar

import numpy as np

from ditron.plan.tables import (
    Accesses,
    After,
    Bools,
    Longs,
    Notifies,
    NotifyOp,
    OpKind,
    Plan,
    Waits,
)

Rows = TypeVar("Rows", Waits, Notifies)
TRANSFERS = (OpKind.PUT, OpKind.GET, OpKind.COPY)


@dataclass(frozen=True)
class Mutant:
    """A plan with one thing broken: of which kind, and what exactly."""

    kind: str
    what: str
    plan: Plan


def mutants(plan: Plan) -> Iterator[Mutant]:
    """Every mutant of a plan: a few for each wait, notify, access, lane and slot."""
    for row in range(len(plan.waits)):
        yield from _wait_mutants(plan, row)
    for row in range(len(plan.notifies)):
        yield from _notify_mutants(plan, row)
    for task in range(len(plan.tasks)):
        yield from _task_mutants(plan, task)
    yield from _memory_mutants(plan)


def _wait_mutants(plan: Plan, row: int) -> Iterator[Mutant]:
    waits = plan.waits
    slot = int(waits.slot[row])
    name = f"the wait of {plan.describe_task(int(waits.task[row]))} for {plan.describe_slot(slot)}"

    def changed(kind: str, column: str, value: int) -> Mutant:
        return Mutant(kind, f"{name}: {kind}", replace(plan, waits=_set(waits, column, row, value)))

    yield Mutant("wait dropped", f"{name} dropped", replace(plan, waits=_without(waits, row)))
    value, lag = int(waits.value[row]), int(waits.lag[row])
    if value > 1:
        yield changed("value lowered", "value", value - 1)
        yield changed("one increment for all", "value", 1)
    yield changed("value raised", "value", value + 1)
    yield changed("one launch late", "lag", lag + 1)
    if lag:
        yield changed("one launch early", "lag", lag - 1)
    for other in _other_slots(plan, slot):
        yield changed("wrong slot waited for", "slot", other)


def _notify_mutants(plan: Plan, row: int) -> Iterator[Mutant]:
    notifies = plan.notifies
    slot, after = int(notifies.slot[row]), After(int(notifies.after[row]))
    by = plan.describe_task(int(notifies.task[row]))
    name = f"the notify of {plan.describe_slot(slot)} by {by}"

    def changed(kind: str, column: str, value: int) -> Mutant:
        table = _set(notifies, column, row, value)
        return Mutant(kind, f"{name}: {kind}", replace(plan, notifies=table))

    less = replace(plan, notifies=_without(notifies, row))
    yield Mutant("notify dropped", f"{name} dropped", less)
    yield Mutant("notify forgotten", f"{name} dropped, not counted either", _uncounted(plan, row))
    for other in _other_slots(plan, slot):
        yield changed("notify misdirected", "slot", other)
    if after is not After.END:
        yield changed("notify before the data", "after", After.END)
    yield changed("counted twice", "amount", 2 * int(notifies.amount[row]))
    is_set = notifies.op[row] == NotifyOp.SET
    yield changed("set and add swapped", "op", NotifyOp.ADD if is_set else NotifyOp.SET)


def _task_mutants(plan: Plan, task: int) -> Iterator[Mutant]:
    tasks, name = plan.tasks, plan.describe_task(task)
    following = np.flatnonzero(
        (tasks.lane == tasks.lane[task]) & (tasks.seq == tasks.seq[task] + 1)
    )
    for other in following.tolist():
        seq = tasks.seq.copy()
        seq[[task, other]] = seq[[other, task]]
        swapped = replace(plan, tasks=replace(tasks, seq=seq))
        yield Mutant("order swapped", f"{name} and {plan.describe_task(other)} swapped", swapped)
    rows = list(plan.accesses_of(task))
    if plan.ops[int(tasks.op[task])].kind not in TRANSFERS or len(rows) != 2:
        return
    size = plan.accesses.hi[rows[0]] - plan.accesses.lo[rows[0]]
    for dim in np.flatnonzero(size > 1).tolist():
        accesses = _moved(plan.accesses, rows, "hi", dim, -1)
        yield Mutant("box shrunk", f"{name} without the last of dim {dim}", _with(plan, accesses))
        break
    yield from _box_mutants(plan, rows, name)


def _box_mutants(plan: Plan, rows: list[int], name: str) -> Iterator[Mutant]:
    """A transfer from or to another place, or another rank."""
    for row, what in zip(rows, ("source", "target"), strict=True):
        accesses = plan.accesses
        buffer, rank = int(accesses.buffer[row]), int(accesses.rank[row])
        size = accesses.hi[row, 0] - accesses.lo[row, 0]
        extent = int(plan.buffers[buffer].extent[rank, 0]) if plan.buffers[buffer].capacity else 0
        by = int(size) if accesses.hi[row, 0] + size <= extent else -int(size)
        if size and accesses.lo[row, 0] + by >= 0 and extent:
            moved = _moved(_moved(accesses, [row], "lo", 0, by), [row], "hi", 0, by)
            yield Mutant(f"wrong {what}", f"{name}: {what} one box on", _with(plan, moved))
        other = (rank + 1) % plan.ranks
        fits = (accesses.hi[row, : len(plan.buffers[buffer].capacity)]
                <= plan.buffers[buffer].extent[other]).all()  # fmt: skip
        if other != rank and fits and size:
            ranks = accesses.rank.copy()
            ranks[row] = other
            wrong = _with(plan, replace(accesses, rank=ranks))
            yield Mutant(f"wrong peer as {what}", f"{name}: {what} on rank {other}", wrong)


def _memory_mutants(plan: Plan) -> Iterator[Mutant]:
    buffers = plan.buffers
    for i, buffer in enumerate(buffers):
        if buffer.copies > 1:
            once = (*buffers[:i], replace(buffer, copies=1), *buffers[i + 1 :])
            what = f"%{buffer.name} not doubled"
            yield Mutant("buffer not doubled", what, replace(plan, buffers=once))
        for other in buffers[:i]:
            if min(buffer.offset_bytes, other.offset_bytes) < 0 or not buffer.size_bytes:
                continue
            over = replace(buffer, offset_bytes=other.offset_bytes)
            both = (*buffers[:i], over, *buffers[i + 1 :])
            what = f"%{buffer.name} over %{other.name}"
            if over.offset_bytes + buffer.copies * buffer.size_bytes <= plan.heap_bytes:
                yield Mutant("buffers overlap", what, replace(plan, buffers=both))
    for slot in np.flatnonzero(plan.slots.copies > 1).tolist():
        copies = plan.slots.copies.copy()
        copies[slot] = 1
        single = replace(plan, slots=replace(plan.slots, copies=copies))
        yield Mutant("slot not doubled", f"{plan.describe_slot(slot)} not doubled", single)


def _other_slots(plan: Plan, slot: int) -> Iterator[int]:
    """A slot beside it at its rank, and its own at another rank."""
    slots = plan.slots
    same = slots.signals == slots.signals[slot]
    near = np.flatnonzero(same & (slots.rank == slots.rank[slot]))
    far = np.flatnonzero(same & (slots.index == slots.index[slot]))
    for group in (near, far):
        others = group[group != slot]
        yield from others[:1].tolist()


def _set(table: Rows, column: str, row: int, value: int) -> Rows:
    values = getattr(table, column).copy()
    values[row] = value
    return replace(table, **{column: values})


def _without(table: Rows, row: int) -> Rows:
    return _select(table, np.delete(np.arange(len(table)), row))


def _select(table: Rows, rows: Longs | Bools) -> Rows:
    return replace(table, **{f.name: getattr(table, f.name)[rows] for f in fields(table)})


def _uncounted(plan: Plan, row: int) -> Plan:
    """As if one who notifies had been forgotten: slot and waits count without it."""
    slot, amount = plan.notifies.slot[row], plan.notifies.amount[row]
    count, value = plan.slots.count.copy(), plan.waits.value.copy()
    count[slot] -= amount
    value[plan.waits.slot == slot] -= amount
    waits = _select(replace(plan.waits, value=value), (plan.waits.slot != slot) | (value > 0))
    slots = replace(plan.slots, count=count)
    return replace(plan, slots=slots, waits=waits, notifies=_without(plan.notifies, row))


def _moved(accesses: Accesses, rows: list[int], edge: str, dim: int, by: int) -> Accesses:
    edges = getattr(accesses, edge).copy()
    edges[rows, dim] += by
    return replace(accesses, **{edge: edges})


def _with(plan: Plan, accesses: Accesses) -> Plan:
    return replace(plan, accesses=accesses)
