"""What is sure to have happened before what, in every run of a plan.

The execution model is in `docs/memory-model.md`. Happens-before depends only on how many launches
lie between two events, since a path uses no launch before the one that it starts in; so clocks of
events of the first launch over `copies` + 1 launches say everything that an induction over launches
needs. Making it proves that every wait is exact and the epochs of each slot are separated.

Source: exactness and separation as worked out in DESIGN.md section 4, pass 9.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ditron.analysis.arrays import longs
from ditron.analysis.arrivals import Arrivals, Columns, find_arrivals
from ditron.analysis.clocks import Asked, Clocks
from ditron.analysis.counterexample import InexactWait
from ditron.analysis.deadlock import SHOWN, check_deadlock
from ditron.analysis.explain import lane_name
from ditron.analysis.hand_overs import check_hand_overs
from ditron.analysis.plan_records import lanes_around, slot_record, task_record
from ditron.analysis.sync_graph import SyncGraph, build_sync_graph
from ditron.errors import PlanError, RaceError
from ditron.plan.tables import Bools, Boundary, Longs, Plan


class HappensBefore:
    """Answers whether a task's end (a transfer's landing) is before another task's begin."""

    def __init__(self, columns: Columns, arrivals: Arrivals, graph: SyncGraph) -> None:
        self.columns = columns
        self.plan = columns.plan
        self.arrivals = arrivals
        self.graph = graph
        self.launches = self.plan.copies + 1
        self._clocks = Clocks(columns, arrivals, graph, self.launches)

    def ordered(
        self,
        a_task: npt.ArrayLike,
        a_launch: npt.ArrayLike,
        b_task: npt.ArrayLike,
        b_launch: npt.ArrayLike,
    ) -> Bools:
        """Whether all that `a` does in launch `a_launch` is done before `b` begins in `b_launch`.

        Tasks and launches broadcast. Launches lie at most `copies` apart.
        """
        a, b, gap = self._broadcast(a_task, a_launch, b_task, b_launch)
        columns, numbers = self.columns, self._clocks.numbers
        lane, seq = columns.lane[a], columns.seq[a]
        row = self.rows(b, gap)
        single = columns.loose[a] | columns.queued[a]
        column, value = self.progress(a, begun=False)
        result = (columns.lane[b] == lane) & ((gap > 0) | (seq < columns.seq[b])) & ~single
        result &= gap >= 0
        # The host's accesses are before the begin and after the end of its rank's launch.
        with_host = columns.acquires[a] | columns.releases[b]
        result |= with_host & (gap == 0) & (columns.rank[a] == columns.rank[b]) & (a != b)
        self._ask(result, row, column, value)
        loose = columns.loose[a]
        if loose.any():
            self._ask(result, row, numbers.quiet(lane), np.where(loose, seq, _NEVER))
            put = loose & columns.is_put[a]
            self._ask(
                result, row, numbers.fence(lane, columns.put_rank[a]), np.where(put, seq, _NEVER)
            )
        return result

    def begun(
        self,
        a_task: npt.ArrayLike,
        a_launch: npt.ArrayLike,
        b_task: npt.ArrayLike,
        b_launch: npt.ArrayLike,
    ) -> Bools:
        """Whether `a` has begun in launch `a_launch` when `b` begins in `b_launch`, or is `b`."""
        a, b, gap = self._broadcast(a_task, a_launch, b_task, b_launch)
        columns = self.columns
        result = (columns.lane[b] == columns.lane[a]) & ~columns.queued[a]
        result &= (gap > 0) | (columns.seq[a] < columns.seq[b])
        result |= (a == b) & (gap == 0) & self.graph.alone[a]
        result &= gap >= 0
        self._ask(result, self.rows(b, gap), *self.progress(a, begun=True))
        return result

    def progress(self, task: Longs, *, begun: bool) -> tuple[Longs, Longs]:
        """The clock column that shows how far a task is, and its value at its begin or end."""
        columns, numbers = self.columns, self._clocks.numbers
        single = columns.queued[task] | (columns.loose[task] & (not begun))
        column = np.where(single, numbers.task(task), numbers.lane(columns.lane[task]))
        value = np.where(single, 0, 2 * columns.seq[task]) + (not begun)
        return column, value

    def all_at_least(self, rows: Longs, start: Longs, asked: Asked) -> Bools:
        """As `Clocks.all_at_least`, of rows as `rows` gives them."""
        return self._clocks.all_at_least(rows, start, asked)

    def _broadcast(self, *args: npt.ArrayLike) -> tuple[Longs, Longs, Longs]:
        a, a_launch, b, b_launch = np.broadcast_arrays(*map(longs, args))
        gap = longs(b_launch - a_launch).ravel()
        assert (gap < self.launches).all(), "launches lie too far apart"
        return longs(a).ravel(), longs(b).ravel(), gap

    def rows(self, b: Longs, gap: Longs) -> Longs:
        """The clock row of what `b` knows when it begins, `gap` launches after the first."""
        node = self.graph.last_row[b]
        before = self.graph.lane_tail[self.columns.lane[b]]
        launch = np.where(node < 0, gap - 1, gap)
        node = np.where(node < 0, before, node)
        known = (node >= 0) & (launch >= 0)
        row = self._clocks.row(np.maximum(node, 0), np.maximum(launch, 0))
        return np.where(known, row, self._clocks.unknown)

    def _ask(self, result: Bools, row: Longs, column: Longs, value: Longs) -> None:
        """Turn on what a clock says, where nothing has said so yet."""
        open_ = np.flatnonzero(~result & (row != self._clocks.unknown) & (value != _NEVER))
        if len(open_):
            result[open_] = self._clocks.at_least(row[open_], column[open_], value[open_])


_NEVER = np.iinfo(np.int32).max


def assume_separation(plan: Plan) -> HappensBefore:
    """Happens-before if the epochs of each slot are separated, which `check_separation` proves.

    What it leaves unordered is not ordered in any case.

    Raises:
        RaceError: a wait that may pass after different increments within one launch.
        DeadlockError: tasks that wait for each other.
        PlanError: tables that mean nothing.
    """
    columns = Columns(plan)
    check_hand_overs(columns)
    if plan.boundary is Boundary.PERSISTENT and columns.queued.any():
        message = f"plan {plan.name} has queues in persistent launches: use boundary stream"
        raise PlanError(message)
    arrivals = find_arrivals(columns)
    if arrivals.inexact.any() or not columns.static.all():
        check_deadlock(plan)
    if arrivals.inexact.any():
        found = find_inexact(columns, arrivals)
        raise RaceError(found.text, found.where, found)
    graph = build_sync_graph(columns, arrivals, queues_ordered=False)
    if not graph.acyclic:
        check_deadlock(plan)
        message = "a plan that runs has a cycle of exact waits"
        raise AssertionError(message)
    return HappensBefore(columns, arrivals, graph)


def find_inexact(columns: Columns, arrivals: Arrivals) -> InexactWait:
    """The first wait that is not exact, and why it is none."""
    plan = columns.plan
    row = int(np.flatnonzero(arrivals.inexact)[0])
    task, slot, value = (int(c[row]) for c in (plan.waits.task, plan.waits.slot, plan.waits.value))
    count, total = int(plan.slots.count[slot]), int(arrivals.total[slot])
    makers = longs(plan.notifies.task)[plan.notifies.slot == slot]
    lanes, first = np.unique(columns.lane[makers], return_index=True)
    if total != count:
        why = f"the slot counts {count} a launch but its notifies add up to {total}"
    elif not arrivals.ordered[slot] and value != count:
        names = ", ".join(lane_name(plan, lane) for lane in lanes[:3].tolist())
        more = f" and {len(lanes) - 3} more" if len(lanes) > 3 else ""
        why = (
            f"its {count} increments come from {names}{more} in any order; wait for all {count},"
            f" or give each producer lane a slot of its own"
        )
    else:
        why = "its notifies set values in no fixed order, so one may take back what another set"
    shown = makers[first][:SHOWN].tolist()
    return InexactWait(
        lanes=lanes_around(plan, [(t, 0) for t in (task, *shown)]),
        waiter=task_record(plan, task),
        slot=slot_record(plan, slot),
        value=value,
        count=count,
        total=total,
        notifiers=tuple(task_record(plan, t) for t in shown),
        why=why,
    )
