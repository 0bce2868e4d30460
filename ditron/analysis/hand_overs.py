"""The host's part: buffers that it fills or reads between launches are handed over to peers."""

from __future__ import annotations

import numpy as np

from ditron.analysis.arrays import longs
from ditron.analysis.arrivals import Columns
from ditron.analysis.counterexample import NotHandedOver
from ditron.analysis.explain import task_location
from ditron.analysis.plan_records import access_record, lanes_around
from ditron.errors import PlanError, RaceError
from ditron.plan.tables import Boundary, Mode, OpKind, Role


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

    A rank's own tasks are ordered with its host by the launch itself; those of peers are not.

    Raises:
        RaceError: a peer's access that nothing orders with the host's.
    """
    plan, accesses = columns.plan, columns.plan.accesses
    if plan.boundary is not Boundary.STREAM:
        return
    hosted = np.array([b.role in (Role.INPUT, Role.OUTPUT) for b in plan.buffers], np.bool_)
    foreign = hosted[accesses.buffer] & (columns.rank[accesses.task] != accesses.rank)
    foreign &= ~accesses.empty & (accesses.mode != 0)
    place = longs(accesses.buffer) * plan.ranks + accesses.rank
    # A hand-over is a write of all that the rank has.
    extent = np.ones((len(plan.buffers), plan.ranks, accesses.lo.shape[1]), np.int64)
    for row, buffer in enumerate(plan.buffers):
        extent[row, :, : len(buffer.capacity)] = buffer.extent
    size = extent[accesses.buffer, accesses.rank]
    whole = ((accesses.lo <= 0) & (accesses.hi >= size)).all(axis=1)
    whole &= (accesses.mode & int(Mode.WRITE)) != 0
    for kind, tasks in (("acquire", columns.acquires), ("release", columns.releases)):
        covered = np.zeros(len(plan.buffers) * plan.ranks, np.bool_)
        covered[place[tasks[accesses.task] & whole]] = True
        bad = np.flatnonzero(foreign & ~covered[place])
        if len(bad):
            access = int(bad[0])
            task = int(accesses.task[access])
            lanes = lanes_around(plan, [(task, 0)])
            found = NotHandedOver(lanes, access_record(plan, access), kind)
            raise RaceError(found.text, found.where, found)
