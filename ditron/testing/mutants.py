"""Plans with one thing broken, of some thirty kinds.

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
    Mode,
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
        yield from _order_mutants(plan, task)
        yield from _data_mutants(plan, task)
    for row in range(len(plan.arguments)):
        yield from _argument_mutants(plan, row)
    yield from _memory_mutants(plan)
    yield from _epoch_mutants(plan)


def _wait_mutants(plan: Plan, row: int) -> Iterator[Mutant]:
    waits = plan.waits
    slot = int(waits.slot[row])
    name = f"the wait of {plan.describe_task(int(waits.task[row]))} for {plan.describe_slot(slot)}"

    def changed(kind: str, column: str, value: int) -> Mutant:
        return Mutant(kind, f"{name}: {kind}", replace(plan, waits=_set(waits, column, row, value)))

    value, lag = int(waits.value[row]), int(waits.lag[row])
    dropped = "credit missing" if lag else "wait dropped"
    yield Mutant(dropped, f"{name} dropped", replace(plan, waits=_without(waits, row)))
    if value > 1:
        yield changed("value lowered", "value", value - 1)
        yield changed("one increment for all", "value", 1)
    yield changed("value raised", "value", value + 1)
    tiles = _unmade_increments(plan, slot)
    if tiles:
        yield changed("a lane's increment taken for a tile's", "value", value + tiles)
    if lag:
        yield changed("credit too shallow", "lag", lag + 1)
        yield changed("credit too deep", "lag", lag - 1)
    else:
        yield changed("one launch late", "lag", 1)
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
    if after in (After.FENCE, After.QUIET):
        yield changed("fence left out", "after", After.PUT)
    yield changed("counted twice", "amount", 2 * int(notifies.amount[row]))
    is_set = notifies.op[row] == NotifyOp.SET
    yield changed("set and add swapped", "op", NotifyOp.ADD if is_set else NotifyOp.SET)


def _order_mutants(plan: Plan, task: int) -> Iterator[Mutant]:
    tasks, name = plan.tasks, plan.describe_task(task)
    following = np.flatnonzero(
        (tasks.lane == tasks.lane[task]) & (tasks.seq == tasks.seq[task] + 1)
    )
    for other in following.tolist():
        seq = tasks.seq.copy()
        seq[[task, other]] = seq[[other, task]]
        swapped = replace(plan, tasks=replace(tasks, seq=seq))
        yield Mutant("order swapped", f"{name} and {plan.describe_task(other)} swapped", swapped)


def _data_mutants(plan: Plan, task: int) -> Iterator[Mutant]:
    """A transfer of too little or to elsewhere, a kernel on what is not meant for it."""
    accesses, name = plan.accesses, plan.describe_task(task)
    rows = [row for row in plan.accesses_of(task) if not accesses.empty[row]]
    if plan.ops[int(plan.tasks.op[task])].kind is OpKind.CALL:
        yield from _operand_mutants(plan, rows, name)
    elif plan.ops[int(plan.tasks.op[task])].kind in TRANSFERS and len(rows) == 2:
        size = accesses.hi[rows[0]] - accesses.lo[rows[0]]
        nothing = _moved(accesses, rows, "hi", 0, -int(size[0]))
        yield Mutant("contribution missing", f"{name} moves nothing", _with(plan, nothing))
        for dim in np.flatnonzero(size > 1).tolist()[:1]:
            less = _moved(accesses, rows, "hi", dim, -1)
            yield Mutant("box shrunk", f"{name} without the last of dim {dim}", _with(plan, less))
        for row, what in zip(rows, ("source", "target"), strict=True):
            yield from _box_mutants(plan, row, what, name)


def _operand_mutants(plan: Plan, rows: list[int], name: str) -> Iterator[Mutant]:
    """A kernel that reads one of its contributions twice, or another's."""
    accesses = plan.accesses
    size = accesses.hi - accesses.lo
    reads = [row for row in rows if accesses.mode[row] == Mode.READ]
    for row in reads:
        yield from _box_mutants(plan, row, "operand", name)
        alike = [
            other
            for other in reads
            if other != row
            and accesses.buffer[other] == accesses.buffer[row]
            and (size[other] == size[row]).all()
        ]
        for other in alike[:1]:
            same = {c: getattr(accesses, c).copy() for c in ("rank", "lo", "hi")}
            for column in same.values():
                column[row] = column[other]
            twice = _with(plan, replace(accesses, **same))
            yield Mutant("contribution doubled", f"{name} reads one operand twice", twice)


def _box_mutants(plan: Plan, row: int, what: str, name: str) -> Iterator[Mutant]:
    """An access of another place of its buffer, or of another rank's."""
    accesses = plan.accesses
    buffer, rank = plan.buffers[int(accesses.buffer[row])], int(accesses.rank[row])
    dims = len(buffer.capacity)
    for dim in range(dims):
        lo, hi = int(accesses.lo[row, dim]), int(accesses.hi[row, dim])
        by = hi - lo if 2 * hi - lo <= buffer.extent[rank, dim] else lo - hi
        if lo + by >= 0:
            moved = _moved(_moved(accesses, [row], "lo", dim, by), [row], "hi", dim, by)
            yield Mutant(f"wrong {what}", f"{name}: {what} one box on", _with(plan, moved))
            break
    other = (rank + 1) % plan.ranks
    if other != rank and (accesses.hi[row, :dims] <= buffer.extent[other]).all():
        ranks = accesses.rank.copy()
        ranks[row] = other
        wrong = _with(plan, replace(accesses, rank=ranks))
        yield Mutant(f"wrong peer as {what}", f"{name}: {what} on rank {other}", wrong)


def _argument_mutants(plan: Plan, row: int) -> Iterator[Mutant]:
    """A kernel that takes its tile, or its rank's part of a table, for another."""
    arguments = plan.arguments
    name = plan.describe_task(int(arguments.task[row]))
    for by in (1, -1):
        value = arguments.value.copy()
        value[row] += by
        off = replace(plan, arguments=replace(arguments, value=value))
        yield Mutant("wrong number", f"{name} is given {value[row]}", off)


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


def _epoch_mutants(plan: Plan) -> Iterator[Mutant]:
    """A lane or a rank that waits as if its epoch had not advanced."""
    waits, tasks = plan.waits, plan.tasks
    for column, what in ((tasks.lane, "lane"), (tasks.rank, "rank")):
        of = column[waits.task]
        for value in np.unique(of).tolist():
            lag = waits.lag + np.where(of == value, plan.slots.copies[waits.slot], 0)
            late = replace(plan, waits=replace(waits, lag=lag.astype(np.int32)))
            yield Mutant("epoch not advanced", f"{what} {value} is an epoch behind", late)


def _unmade_increments(plan: Plan, slot: int) -> int:
    """How many more tasks the lanes that notify a slot have of the same ops."""
    tasks, notifies = plan.tasks, plan.notifies
    makers = notifies.task[notifies.slot == slot]
    places = set(zip(tasks.op[makers].tolist(), tasks.lane[makers].tolist(), strict=True))
    many = sum(int(((tasks.op == op) & (tasks.lane == lane)).sum()) for op, lane in places)
    return many - len(np.unique(makers))


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
