"""The plan, printed: for reading (tables) and for programs (JSON data)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ditron.plan.storage import to_data
from ditron.plan.tables import After, Mode, NotifyOp, Plan
from ditron.tools.show import columns, short

MAX_TASKS = 200
"""More tasks than this are cut in the printed form; `--json` has all."""


def plan_data(plan: Plan) -> dict[str, object]:
    """The whole plan as lists and dicts: records by row, tables by column."""
    return to_data(plan)


def plan_report(plan: Plan) -> Iterator[str]:
    """The plan as tables: ops, buffers, signals, then tasks with what they wait for and tell."""
    sizes = f"{plan.ranks} ranks, {len(plan.tasks)} tasks, {len(plan.lanes)} lanes"
    signals = f"{len(plan.slots)} slots, {len(plan.waits)} waits, {len(plan.notifies)} notifies"
    yield f"plan {plan.name}: {sizes}, {signals}, heap {plan.heap_bytes} bytes a rank\n"
    yield columns(_op_rows(plan), ("op", "kind", "engine", "kernel", "tasks", "from"))
    yield ""
    yield columns(_buffer_rows(plan), ("buffer", "type", "memory", "role", "offset", "copies"))
    yield ""
    yield columns(_signal_rows(plan), ("signals", "slots", "counts", "copies"))
    yield ""
    shown = min(len(plan.tasks), MAX_TASKS)
    yield columns(
        (_task_row(plan, task) for task in range(shown)),
        ("task", "lane", "seq", "waits", "views", "notifies"),
    )
    if shown < len(plan.tasks):
        yield f"... and {len(plan.tasks) - shown} more tasks; --json has all of them"


def _op_rows(plan: Plan) -> Iterator[tuple[object, ...]]:
    counts = np.bincount(plan.tasks.op, minlength=len(plan.ops))
    for op, count in zip(plan.ops, counts, strict=True):
        yield f"@{op.name}", op.kind, op.engine, op.kernel or "-", count, short(op.location)


def _buffer_rows(plan: Plan) -> Iterator[tuple[object, ...]]:
    for b in plan.buffers:
        shape = "x".join(map(str, b.capacity))
        yield f"%{b.name}", f"{shape}x{b.dtype}", b.memory, b.role, b.offset_bytes, b.copies


def _signal_rows(plan: Plan) -> Iterator[tuple[object, ...]]:
    for row, name in enumerate(plan.signals):
        mine = np.flatnonzero(plan.slots.signals == row)
        counts = sorted(set(plan.slots.count[mine].tolist()))
        copies = sorted(set(plan.slots.copies[mine].tolist()))
        yield f"%{name}", len(mine), _range(counts), _range(copies)


def _range(values: list[int]) -> str:
    if not values:
        return "-"
    return str(values[0]) if len(values) == 1 else f"{values[0]}..{values[-1]}"


def _task_row(plan: Plan, task: int) -> tuple[str, ...]:
    tasks, lane = plan.tasks, plan.tasks.lane[task]
    coords = ", ".join(map(str, tasks.coords[task][: plan.grid_rank(task)]))
    return (
        f"@{plan.ops[int(tasks.op[task])].name}[{coords}]",
        f"rank {tasks.rank[task]} {plan.lanes.engine[lane]} {plan.lanes.index[lane]}",
        str(tasks.seq[task]),
        "\n".join(_wait(plan, row) for row in plan.waits_of(task)),
        "\n".join(_view(plan, row) for row in plan.accesses_of(task)),
        "\n".join(_notify(plan, row) for row in plan.notifies_of(task)),
    )


def _wait(plan: Plan, row: int) -> str:
    waits = plan.waits
    lag = f" lag {waits.lag[row]}" if waits.lag[row] else ""
    return f"{_slot(plan, int(waits.slot[row]))} >= {waits.value[row]}{lag}"


def _slot(plan: Plan, slot: int) -> str:
    return f"%{plan.signals[int(plan.slots.signals[slot])]}[{plan.slots.index[slot]}]"


def _notify(plan: Plan, row: int) -> str:
    n = plan.notifies
    slot = int(n.slot[row])
    how = f"{NotifyOp(n.op[row]).name.lower()} {n.amount[row]}"
    after = After(n.after[row]).name.lower()
    return f"{_slot(plan, slot)} at {plan.slots.rank[slot]} {how} after {after}"


def _view(plan: Plan, row: int) -> str:
    a = plan.accesses
    buffer = plan.buffers[int(a.buffer[row])]
    dims = len(buffer.capacity)
    box = ", ".join(f"{lo}:{hi}" for lo, hi in zip(a.lo[row][:dims], a.hi[row][:dims], strict=True))
    modes = Mode(int(a.mode[row]))
    sign = "".join(letter for flag, letter in _MODE_LETTERS.items() if flag in modes)
    return f"{sign} %{buffer.name}[{box}] at {a.rank[row]}"


_MODE_LETTERS = {Mode.READ: "r", Mode.WRITE: "w", Mode.ADD: "+"}
