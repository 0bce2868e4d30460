"""The host's part: buffers that it fills or reads between launches are handed over to peers."""

from __future__ import annotations

import numpy as np

from ditron.analysis.arrays import longs
from ditron.analysis.arrivals import Columns
from ditron.analysis.counterexample import NotHandedOver
from ditron.analysis.explain import task_location
from ditron.analysis.plan_records import access_record, lanes_around
from ditron.analysis.touches import byte_intervals
from ditron.errors import PlanError, RaceError
from ditron.plan.tables import Bools, Boundary, Longs, Mode, OpKind, Plan, Role


def check_hand_overs(columns: Columns) -> None:
    """The host acts outside of a launch: what it does waits for nothing in it and tells nobody.

    So acquires start their lanes and wait for nothing, and releases end theirs and notify nobody.

    Raises:
        PlanError: a hand-over within a launch.
    """
    plan, lane, seq = columns.plan, columns.lane, columns.seq
    task = np.arange(len(lane))
    late = np.isin(task, plan.waits.task) | ~columns.acquires
    early = np.isin(task, plan.notifies.task) | ~columns.releases
    first_late = np.full(len(columns.lane_size), len(lane))
    np.minimum.at(first_late, lane[late], seq[late])
    last_early = np.full(len(columns.lane_size), -1)
    np.maximum.at(last_early, lane[early], seq[early])
    wrong = columns.acquires & (first_late[lane] <= seq)
    wrong |= columns.releases & (last_early[lane] >= seq)
    if plan.boundary is not Boundary.STREAM:
        wrong |= columns.acquires | columns.releases
    if wrong.any():
        bad = int(np.flatnonzero(wrong)[0])
        kind = plan.ops[int(plan.tasks.op[bad])].kind
        message = (
            f"{plan.describe_task(bad)} is the host's {kind}, so its launches must be of boundary"
            f" stream, its lane must {'start' if kind is OpKind.ACQUIRE else 'end'} with such"
            f" tasks, and it cannot {'wait' if kind is OpKind.ACQUIRE else 'notify'}"
        )
        raise PlanError(message, task_location(plan, bad))


def check_handed_over(columns: Columns) -> None:
    """What the host fills or reads between launches, and peers touch, is acquired and released.

    A rank's own tasks are ordered with its host by the launch itself; those of peers are not. What
    they touch may be of another buffer that lies in the same bytes.

    Raises:
        RaceError: a peer's access that nothing orders with the host's.
    """
    plan, accesses = columns.plan, columns.plan.accesses
    if plan.boundary is not Boundary.STREAM:
        return
    foreign = columns.rank[accesses.task] != accesses.rank
    foreign &= ~accesses.empty & (accesses.mode != 0)
    access, buffer = _touched(plan, np.flatnonzero(foreign).astype(np.int64))
    place = buffer * plan.ranks + accesses.rank[access]
    for kind, tasks in (("acquire", columns.acquires), ("release", columns.releases)):
        bad = np.flatnonzero(~_handed(plan, tasks)[place])
        if len(bad):
            first, name = int(access[bad[0]]), plan.buffers[int(buffer[bad[0]])].name
            lanes = lanes_around(plan, [(int(accesses.task[first]), 0)])
            found = NotHandedOver(lanes, access_record(plan, first), kind, name)
            raise RaceError(found.text, found.where, found)


def _touched(plan: Plan, access: Longs) -> tuple[Longs, Longs]:
    """Pairs of an access and a buffer of the host's that it touches on the rank it goes to."""
    rows, buffers = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    of, ranks = longs(plan.accesses.buffer)[access], plan.accesses.rank[access]
    low, high = byte_intervals(plan, access)
    again = np.array([b.size_bytes * (b.copies - 1) for b in plan.buffers], np.int64)
    planned = np.array([b.offset_bytes >= 0 for b in plan.buffers], np.bool_)
    for row, buffer in enumerate(plan.buffers):
        if buffer.role not in (Role.INPUT, Role.OUTPUT):
            continue
        start, end = buffer.offset_bytes, buffer.offset_bytes + buffer.size_bytes * buffer.copies
        over = planned[of] & planned[row] & (low < end) & (high + again[of] > start)
        over &= buffer.extent[ranks].all(axis=1)
        mine = np.flatnonzero((of == row) | over)
        rows.append(access[mine])
        buffers.append(np.full(len(mine), row))
    return np.concatenate(rows), np.concatenate(buffers)


def _handed(plan: Plan, tasks: Bools) -> Bools:
    """Of each buffer and rank, whether some of the tasks hand it over: they write all of it."""
    accesses = plan.accesses
    extent = np.ones((len(plan.buffers), plan.ranks, accesses.lo.shape[1]), np.int64)
    for row, buffer in enumerate(plan.buffers):
        extent[row, :, : len(buffer.capacity)] = buffer.extent
    size = extent[accesses.buffer, accesses.rank]
    whole = ((accesses.lo <= 0) & (accesses.hi >= size)).all(axis=1)
    whole &= ((accesses.mode & int(Mode.WRITE)) != 0) & tasks[accesses.task]
    handed = np.zeros(len(plan.buffers) * plan.ranks, np.bool_)
    handed[(longs(accesses.buffer) * plan.ranks + accesses.rank)[whole]] = True
    return handed
