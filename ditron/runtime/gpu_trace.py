"""What ran when on GPUs as a Chrome trace: kernels, and tasks where something says when."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ditron.plan.tables import Plan
from ditron.runtime.trace import Event, trace_events

# (op, task or -1 for all of the op's on the rank, begin, end), ns of one clock.
Ran = tuple[int, int, int, int]

KERNELS_TRACK = 1000


def write_gpu_trace(path: str | Path, plan: Plan, ran: Sequence[Sequence[Ran]]) -> None:
    """Write a trace of one launch: a process a rank, its kernels above its lanes.

    Args:
        path: the JSON file to write.
        plan: what ran.
        ran: what each rank says of itself.
    """
    rows = [(rank, *row) for rank, own in enumerate(ran) for row in own]
    origin = min((begin for *_, begin, _ in rows), default=0)
    tasks = [row[2:] for row in rows if row[2] >= 0]
    events = np.array([(task, begin, end) for task, begin, end in tasks], np.int64).reshape(-1, 3)
    content: list[Event] = [*trace_events(plan, events, origin)]
    for rank in range(len(ran)):
        track: Event = {"pid": rank, "tid": KERNELS_TRACK}
        content.append({"ph": "M", "name": "thread_name", **track, "args": {"name": "kernels"}})
        for _, op, task, begin, end in (row for row in rows if row[0] == rank):
            if task >= 0:
                continue
            span: Event = {"ts": (begin - origin) / 1000, "dur": (end - begin) / 1000}
            args = {"where": plan.ops[op].location if op >= 0 else ""}
            name = f"@{plan.ops[op].name}" if op >= 0 else "megakernel"
            content.append(
                {"ph": "X", "cat": "kernel", "name": name, **track, **span, "args": args}
            )
    whole = {"traceEvents": content, "displayTimeUnit": "ns"}
    Path(path).write_text(json.dumps(whole), encoding="utf-8")
