"""Says what a launch on GPUs was waiting for when it was stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ditron.plan.tables import Plan
from ditron.runtime.gpu_program import TritonProgram

MOST_PRODUCERS = 6

Hung = tuple[Sequence[int] | None, Sequence[tuple[str, int, int]]]


def hang_report(
    plan: Plan, program: TritonProgram, hung: Mapping[int, Hung]
) -> tuple[str, str | None]:
    """What the ranks that gave up waited for, and the `file:line` of the first one's op.

    Args:
        plan: what ran.
        program: its code.
        hung: by rank: the record (site, task, seen, wanted) of its first wait that gave up, or None
            if its peers stopped it; then (array, index, word) of its slots.
    """
    lines = [f"{plan.name}: a launch was stopped: waits ran out of their bound"]
    where: str | None = None
    for rank, (record, _) in sorted(hung.items()):
        if record is None:
            lines.append(f"rank {rank} was stopped by its host")
            continue
        site, local, seen, wanted = map(int, record)
        at = program.sites[site]
        task = local
        if at.op >= 0:
            rows = np.flatnonzero((plan.tasks.op == at.op) & (plan.tasks.rank == rank))
            task = int(rows[local])
        where = where or plan.ops[int(plan.tasks.op[task])].location or None
        what = f"%{at.signals}" if at.signals else "a signal"
        lines.append(f"{plan.describe_task(task)} waits for {what}: seen {seen}, wanted {wanted}")
        lines += _producers(plan, task, at.signals)
    return "\n".join(lines), where


def _producers(plan: Plan, task: int, signals: str) -> list[str]:
    """Who raises the slots that a task waits for, of an array or of all."""
    slots = {int(plan.waits.slot[w]) for w in plan.waits_of(task)}
    if signals:
        row = plan.signals.index(signals)
        slots = {s for s in slots if plan.slots.signals[s] == row}
    found: list[str] = []
    for slot in sorted(slots):
        tasks = plan.notifies.task[plan.notifies.slot == slot]
        names = [plan.describe_task(int(t)) for t in tasks[:MOST_PRODUCERS]]
        more = f" and {len(tasks) - MOST_PRODUCERS} more" if len(tasks) > MOST_PRODUCERS else ""
        found.append(f"    {plan.describe_slot(slot)} is raised by {', '.join(names)}{more}")
    return found
