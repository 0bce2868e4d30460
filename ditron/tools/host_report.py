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
    match row.kind:
        case LaunchKind.KERNEL:
            return "kernel", f"{row.programs} programs", op
        case LaunchKind.COPY:
            return "copy", _copy_text(plan, row.task), op
        case LaunchKind.FLAG:
            return "flag", f"{plan.describe_slot(row.slot)} set", op
        case LaunchKind.STREAM_WAIT:
            back = f" of {row.lag} launches ago" if row.lag else ""
            return "stream-wait", f"{plan.describe_slot(row.slot)} ge {row.value}{back}", op
        case LaunchKind.EVENT:
            return "event", f"behind stream {row.behind}", op


def _copy_text(plan: Plan, task: int) -> str:
    ends: list[str] = []
    for access in plan.accesses_of(task):
        buffer = plan.buffers[int(plan.accesses.buffer[access])]
        dims = range(len(buffer.capacity))
        box = ", ".join(
            f"{plan.accesses.lo[access, d]}:{plan.accesses.hi[access, d]}" for d in dims
        )
        ends.append(f"%{buffer.name}[{box}] at rank {plan.accesses.rank[access]}")
    size = sum(s.width * s.height for s in strips(plan, task))
    return f"{' -> '.join(ends)}, {size} bytes"
