"""What each rank's host enqueues, printed."""

from __future__ import annotations

from collections.abc import Iterator

from ditron.plan.launches import HostCall, Launches, LaunchKind
from ditron.plan.strips import strips
from ditron.plan.tables import Plan
from ditron.tools.show import columns


def launch_report(plan: Plan, launches: Launches) -> Iterator[str]:
    """A table a rank: the call, its stream, what it does and for which op."""
    for rank in range(plan.ranks):
        rows = list(launches.of_rank(rank).rows())
        streams = len({row.stream for row in rows})
        yield f"host of rank {rank}: {len(rows)} calls on {streams} streams\n"
        yield columns(
            ((n, row.stream, *_cells(plan, row)) for n, row in enumerate(rows)),
            ("call", "stream", "kind", "what", "op"),
        )
        yield ""


def _cells(plan: Plan, row: HostCall) -> tuple[str, str, str]:
    op = f"@{plan.ops[row.op].name}" if row.op >= 0 else ""
    return row.kind.name.lower().replace("_", "-"), _what(plan, row), op


def _what(plan: Plan, row: HostCall) -> str:
    slot = plan.describe_slot(row.slot) if row.slot >= 0 else ""
    back = f" of {row.lag} launches ago" if row.lag > 0 else ""
    texts = {
        LaunchKind.KERNEL: lambda: f"{row.programs} programs",
        LaunchKind.COPY: lambda: _copy_text(plan, row.task),
        LaunchKind.LIBRARY: lambda: _boxes(plan, row.task),
        LaunchKind.FLAG: lambda: f"{slot} set",
        LaunchKind.STREAM_WAIT: lambda: f"{slot} ge {row.value}{back}",
        LaunchKind.RECORD: lambda: slot,
        LaunchKind.EVENT: lambda: slot or f"behind stream {row.behind}",
    }
    return texts[row.kind]()


def _copy_text(plan: Plan, task: int) -> str:
    size = sum(s.width * s.height for s in strips(plan, task))
    return f"{_boxes(plan, task)}, {size} bytes"


def _boxes(plan: Plan, task: int) -> str:
    ends: list[str] = []
    for access in plan.accesses_of(task):
        buffer = plan.buffers[int(plan.accesses.buffer[access])]
        dims = range(len(buffer.capacity))
        box = ", ".join(
            f"{plan.accesses.lo[access, d]}:{plan.accesses.hi[access, d]}" for d in dims
        )
        ends.append(f"%{buffer.name}[{box}] at rank {plan.accesses.rank[access]}")
    *sources, target = ends
    return f"{', '.join(sources)} -> {target}"
