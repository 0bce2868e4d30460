"""Writes what really ran as a Chrome trace: open it in Perfetto or chrome://tracing.

A process a rank, a row a lane, a slice a task, and an arrow from each notify to the waits of the
same launch that it helped to satisfy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ditron.plan.tables import Longs, Plan

Event = dict[str, object]


def write_trace(path: str | Path, plan: Plan, events: Longs) -> None:
    """Write a trace of one launch.

    Args:
        path: the JSON file to write.
        plan: what ran.
        events: [E, 3] (task, begin, end) of each task, ns of one clock of all ranks.
    """
    content = {"traceEvents": list(trace_events(plan, events)), "displayTimeUnit": "ns"}
    Path(path).write_text(json.dumps(content), encoding="utf-8")


def trace_events(plan: Plan, events: Longs, origin: int | None = None) -> Iterator[Event]:
    """The trace's events: names of processes and threads, slices, arrows; times from `origin` on.

    It is the first begin by default.
    """
    if origin is None:
        origin = int(events[:, 1].min(initial=np.iinfo(np.int64).max)) if len(events) else 0
    span = np.zeros((len(plan.tasks), 2), np.int64)
    span[events[:, 0]] = events[:, 1:] - origin
    ran = np.zeros(len(plan.tasks), np.bool_)
    ran[events[:, 0]] = True
    tracks = _tracks(plan)
    yield from _names(plan, tracks)
    yield from _slices(plan, tracks, span, events[:, 0])
    yield from _arrows(plan, tracks, span, ran)


def _tracks(plan: Plan) -> list[Event]:
    """The pid and tid of each lane: its rank, its place among the rank's lanes."""
    seen = [0] * plan.ranks
    tracks: list[Event] = []
    for rank in plan.lanes.rank.tolist():
        tracks.append({"pid": rank, "tid": seen[rank]})
        seen[rank] += 1
    return tracks


def _names(plan: Plan, tracks: list[Event]) -> Iterator[Event]:
    for rank in range(plan.ranks):
        name = {"name": f"rank {rank}"}
        yield {"ph": "M", "name": "process_name", "pid": rank, "args": name}
    for lane, track in enumerate(tracks):
        name = {"name": f"{plan.lanes.engine[lane]} {plan.lanes.index[lane]}"}
        yield {"ph": "M", "name": "thread_name", **track, "args": name}


def _slices(plan: Plan, tracks: list[Event], span: Longs, tasks: Longs) -> Iterator[Event]:
    width = [0] * len(plan.ops)
    for task in np.unique(plan.tasks.op, return_index=True)[1]:
        width[int(plan.tasks.op[task])] = plan.grid_rank(int(task))
    for task in tasks.tolist():
        op = int(plan.tasks.op[task])
        coords = plan.tasks.coords[task][: width[op]].tolist()
        begin, end = span[task].tolist()
        yield {
            "ph": "X",
            "cat": plan.ops[op].kind.value,
            "name": f"@{plan.ops[op].name}{coords}",
            "ts": begin / 1000,
            "dur": (end - begin) / 1000,
            **tracks[int(plan.tasks.lane[task])],
            "args": {"task": task, "where": plan.ops[op].location},
        }


def _arrows(plan: Plan, tracks: list[Event], span: Longs, ran: np.ndarray) -> Iterator[Event]:
    order = np.argsort(plan.notifies.slot, kind="stable")
    slots = plan.notifies.slot[order]
    lag = plan.waits.lag.tolist()
    number = 0
    for wait, slot in enumerate(plan.waits.slot.tolist()):
        waiter = int(plan.waits.task[wait])
        if lag[wait] or not ran[waiter]:
            continue
        lo, hi = np.searchsorted(slots, [slot, slot + 1])
        name = f"%{plan.signals[plan.slots.signals[slot]]}[{plan.slots.index[slot]}]"
        for producer in plan.notifies.task[order[lo:hi]].tolist():
            # An arrow binds to the slice that its time lies in.
            begin, sent = int(span[waiter, 0]), max(int(span[producer, 1]) - 1, 0)
            if not ran[producer] or sent > begin:
                continue
            arrow: Event = {"cat": "signal", "name": name, "id": (number := number + 1)}
            yield {"ph": "s", **arrow, "ts": sent / 1000, **tracks[plan.tasks.lane[producer]]}
            yield {
                "ph": "f",
                "bp": "e",
                **arrow,
                "ts": begin / 1000,
                **tracks[plan.tasks.lane[waiter]],
            }
