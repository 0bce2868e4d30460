"""Launches: what a rank's host enqueues, on which stream, in which order.

A row is one call of the host for one launch of the plan. Stream 0 is the one that computes; each
copy lane has a stream of its own, and another one for its flags, so that the next copy follows at
once; so have the buffers that are handed over at the start. Rows of one rank stand in program
order, so whoever is waited for is enqueued before the one that waits, on any number of hardware
queues. Streams fork from stream 0 at the start and join it at the end, so that launches of a rank
never overlap.

A library computes on stream 0 and on streams beside it, one a lane. No kernel starts before that is
done: kernels that wait might leave no SM to what they wait for.

Kinds:

* `kernel`: a grid, a program a lane;
* `library`: one task, by a library's kernel;
* `copy`: the box of one transfer, by a copy engine;
* `flag`: a slot is set to the number of this launch, by a copy of four bytes;
* `stream-wait`: the stream goes on once a slot has reached a value;
* `record`: an event is recorded for a slot that only this host raises and waits for: no flag is
  needed, which on a busy GPU may find no SM for tens of us, and no wait for an earlier launch;
* `event`: the stream goes on once all that stream `behind` was given is done, or, with a `slot`,
  once the event recorded for it has come.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np

from ditron.errors import PlanError
from ditron.plan.tables import LIBRARY, Bools, Ints, OpKind, Plan

NONE = -1


class LaunchKind(IntEnum):
    """See the module's docstring."""

    KERNEL = 0
    COPY = 1
    FLAG = 2
    STREAM_WAIT = 3
    EVENT = 4
    LIBRARY = 5
    RECORD = 6


@dataclass(frozen=True)
class Launches:
    """One row a call [N], sorted by rank and then in the order of the host; -1 is nothing.

    `op` is its row in `Plan.ops`, `task` the task of a transfer, flag or wait, `slot` what a flag
    sets or a wait looks at, `value` and `lag` those of the wait, `behind` the stream an event waits
    for, `programs` the size of a kernel's grid.
    """

    rank: Ints
    stream: Ints
    kind: Ints
    op: Ints
    task: Ints
    slot: Ints
    value: Ints
    lag: Ints
    behind: Ints
    programs: Ints

    def __len__(self) -> int:
        return len(self.rank)

    def only(self, keep: Bools) -> Launches:
        """Some of the rows."""
        return Launches(*(getattr(self, f.name)[keep] for f in fields(self)))

    def of_rank(self, rank: int) -> Launches:
        """The rows of one rank's host."""
        return self.only(self.rank == rank)

    def rows(self) -> Iterator[HostCall]:
        """One record a row."""
        columns = [getattr(self, f.name).tolist() for f in fields(self)]
        for rank, stream, kind, *rest in zip(*columns, strict=True):
            yield HostCall(rank, stream, LaunchKind(kind), *rest)


@dataclass(frozen=True)
class HostCall:
    """One row of `Launches`."""

    rank: int
    stream: int
    kind: LaunchKind
    op: int = NONE
    task: int = NONE
    slot: int = NONE
    value: int = NONE
    lag: int = NONE
    behind: int = NONE
    programs: int = NONE


def plan_launches(plan: Plan, driven: Collection[str] = ()) -> Launches:
    """The launches of a plan.

    Args:
        plan: what runs.
        driven: engines whose tasks the host carries out itself, by copies, flags and waits. The
            grids of all others are kernels; those that copy run on a stream beside the main one.
    """
    recorded = _recorded(plan, driven)
    found: list[HostCall] = []
    for rank in range(plan.ranks):
        found += (row for row in _of_rank(plan, rank, driven, recorded))
    return _table(found)


def _recorded(plan: Plan, driven: Collection[str]) -> Bools:
    """Slots [S] that one host alone raises and waits for."""
    host = np.array([op.engine in driven for op in plan.ops], np.bool_)
    inside = np.ones(len(plan.slots), np.bool_)
    for table in (plan.notifies, plan.waits):
        own = plan.tasks.rank[table.task] == plan.slots.rank[table.slot]
        inside[table.slot[~(own & host[plan.tasks.op[table.task]])]] = False
    return inside


def persistent_launches(plan: Plan, programs: int) -> Launches:
    """The launches of a plan whose ranks each run one kernel."""
    kernel = LaunchKind.KERNEL
    return _table([HostCall(rank, 0, kernel, programs=programs) for rank in range(plan.ranks)])


def beside_still_peers(plan: Plan, launches: Launches, rank: int) -> Launches:
    """One rank's launches among peers that compute nothing: their hosts do what reaches the rank.

    Their copies to the rank and their flags there are enqueued by the rank's own host, on a stream
    each for all peers, as if by one link; what their kernels would do is taken for done, so no
    stream waits for it. So one GPU stands for a rank of a larger machine, with peers behind a link
    of its own.

    Raises:
        PlanError: a kernel of the rank waits for a kernel of a peer.
    """
    mine = list(launches.of_rank(rank).rows())
    forks = [row for row in mine if _outer(row) and row.stream != 0]
    joins = [row for row in mine if _outer(row) and row.stream == 0]
    others = list(launches.only(launches.rank != rank).rows())
    sent = _sent(plan, others, rank, max(row.stream for row in mine) + 1)
    for side in sorted({row.stream for row in sent}):
        forks.append(HostCall(rank, side, LaunchKind.EVENT, behind=0))
        joins.append(HostCall(rank, 0, LaunchKind.EVENT, behind=side))
    flagged = {row.slot for row in (*mine, *others) if row.kind is LaunchKind.FLAG}
    own = plan.notifies.slot[plan.tasks.rank[plan.notifies.task] == rank]
    come = flagged.union(own.tolist())
    _check_come(plan, mine, rank, come)
    inner = [
        row
        for row in mine
        if not _outer(row)
        if row.kind is not LaunchKind.STREAM_WAIT or row.slot in come
    ]
    return _table([*forks, *sent, *inner, *joins])


def _sent(plan: Plan, others: list[HostCall], rank: int, copies: int) -> list[HostCall]:
    """What peers' hosts do to a rank: copies on stream `copies`, flags on the one behind it."""
    reaching = {at for at, row in enumerate(others) if _reaches(plan, row, rank)}
    copying = {
        (others[at].rank, others[at].stream)
        for at in reaching
        if others[at].kind is LaunchKind.COPY
    }
    found: list[HostCall] = []
    for at, row in enumerate(others):
        stream = copies + ((row.rank, row.stream) not in copying)
        if at in reaching:
            found.append(HostCall(rank, stream, row.kind, row.op, row.task, row.slot))
        elif (row.rank, row.behind) in copying and row.stream != 0:
            event = LaunchKind.EVENT
            found.append(HostCall(rank, stream, event, row.op, row.task, behind=copies))
    return found


def _check_come(plan: Plan, mine: list[HostCall], rank: int, come: set[int]) -> None:
    kernels = [row.op for row in mine if row.kind is LaunchKind.KERNEL]
    tasks, waits = plan.tasks, plan.waits
    here = np.isin(tasks.op[waits.task], kernels) & (tasks.rank[waits.task] == rank)
    missing = np.flatnonzero(here & ~np.isin(waits.slot, list(come)))
    if len(missing):
        task, slot = int(waits.task[missing[0]]), int(waits.slot[missing[0]])
        raise PlanError(
            f"{plan.describe_task(task)} waits for {plan.describe_slot(slot)}, which only kernels"
            " of peers raise: beside peers that stand still that never comes"
        )


def _outer(row: HostCall) -> bool:
    """Whether it forks the streams of a launch or joins them."""
    return row.kind is LaunchKind.EVENT and row.op == NONE


def _reaches(plan: Plan, row: HostCall, rank: int) -> bool:
    """Whether a launch of a peer's host changes memory of the rank."""
    if row.kind is LaunchKind.FLAG:
        return int(plan.slots.rank[row.slot]) == rank
    if row.kind is LaunchKind.COPY:
        return int(plan.accesses.rank[plan.accesses_of(row.task)[-1]]) == rank
    return False


def _of_rank(plan: Plan, rank: int, driven: Collection[str], recorded: Bools) -> Iterator[HostCall]:
    inner = list(_behind_library(plan, rank, driven, recorded))
    sides = sorted({row.stream for row in inner} - {0})
    yield from (HostCall(rank, side, LaunchKind.EVENT, behind=0) for side in sides)
    yield from inner
    yield from (HostCall(rank, 0, LaunchKind.EVENT, behind=side) for side in sides)


def _behind_library(
    plan: Plan, rank: int, driven: Collection[str], recorded: Bools
) -> Iterator[HostCall]:
    """All ops in program order, kernels of the main stream behind what a library does beside it."""
    beside: set[int] = set()
    for op in range(len(plan.ops)):
        for row in _of_op(plan, rank, op, driven, recorded):
            if row.kind is LaunchKind.LIBRARY and row.stream:
                beside.add(row.stream)
            elif row.kind is LaunchKind.KERNEL and not row.stream:
                for stream in sorted(beside):
                    yield HostCall(rank, 0, LaunchKind.EVENT, op, behind=stream)
                beside.clear()
            yield row


def _of_op(
    plan: Plan, rank: int, op: int, driven: Collection[str], recorded: Bools
) -> Iterator[HostCall]:
    everywhere = plan.tasks_of(op)
    tasks = everywhere[plan.tasks.rank[everywhere] == rank]
    if not len(tasks):
        return
    engine, lane = plan.ops[op].engine, plan.lanes.index[plan.tasks.lane[tasks]]
    if engine not in driven:
        every = plan.lanes.index[plan.tasks.lane[everywhere]]
        stream = 1 if engine == "copy" else 0
        programs = int(every.max()) + 1
        yield HostCall(rank, stream, LaunchKind.KERNEL, op, programs=programs)
        return
    # Lanes take turns, so that each has its first transfer early.
    for at in np.lexsort((lane, plan.tasks.seq[tasks])):
        yield from _of_task(plan, rank, int(tasks[at]), recorded)


def _streams(plan: Plan, op: int, lane: int) -> tuple[int, int]:
    """Of a task that the host carries out, and of its flags: no kernel stands behind either."""
    if plan.ops[op].kind is OpKind.RELEASE:  # what it waits for comes when the kernels are done
        return 0, 0
    copies = np.array([engine == "copy" for engine in plan.lanes.engine], np.bool_)
    many = int(plan.lanes.index[copies].max(initial=-1)) + 1
    if plan.ops[op].kind is OpKind.ACQUIRE:
        return 1 + many, 1 + many
    if plan.ops[op].engine == LIBRARY:
        first = 2 + 2 * many
        return (first + 2 * lane - 1 if lane else 0), first + 2 * lane
    return 1 + lane, 2 + many + lane


def _of_task(plan: Plan, rank: int, task: int, recorded: Bools) -> Iterator[HostCall]:
    op = int(plan.tasks.op[task])
    stream, flags = _streams(plan, op, int(plan.lanes.index[plan.tasks.lane[task]]))
    waits = plan.waits
    for row in plan.waits_of(task):
        slot, value, lag = (int(column[row]) for column in (waits.slot, waits.value, waits.lag))
        if not recorded[slot]:
            yield HostCall(rank, stream, LaunchKind.STREAM_WAIT, op, task, slot, value, lag)
        elif lag == 0:
            yield HostCall(rank, stream, LaunchKind.EVENT, op, task, slot)
    if _works(plan, task):
        library = plan.ops[op].engine == LIBRARY
        kind = LaunchKind.LIBRARY if library else LaunchKind.COPY
        yield HostCall(rank, stream, kind, op, task)
    slots = plan.notifies.slot[plan.notifies_of(task)]
    for slot in slots[recorded[slots]].tolist():
        yield HostCall(rank, stream, LaunchKind.RECORD, op, task, slot)
    flagged = slots[~recorded[slots]].tolist()
    if flagged and flags != stream:
        yield HostCall(rank, flags, LaunchKind.EVENT, op, task, behind=stream)
    for slot in flagged:
        yield HostCall(rank, flags, LaunchKind.FLAG, op, task, slot)


def _works(plan: Plan, task: int) -> bool:
    """Whether a task that the host carries out moves or writes anything."""
    kind = plan.ops[int(plan.tasks.op[task])].kind
    empty = plan.accesses.empty[plan.accesses_of(task)]
    if kind is OpKind.CALL:  # a product over nothing writes zeros
        return not empty[-1]
    return kind not in (OpKind.ACQUIRE, OpKind.RELEASE) and not empty.any()


def _table(rows: list[HostCall]) -> Launches:
    columns = [[getattr(row, f.name) for row in rows] for f in fields(Launches)]
    return Launches(*(np.array(column, np.int32) for column in columns))
