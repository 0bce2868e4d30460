"""How the proofs name tasks and lanes in messages."""

from __future__ import annotations

from ditron.plan.tables import Plan


def task_location(plan: Plan, task: int) -> str:
    """The user's `file:line` of a task's op."""
    return plan.ops[int(plan.tasks.op[task])].location


def lane_name(plan: Plan, lane: int) -> str:
    """`copy lane 1 of rank 0`."""
    lanes = plan.lanes
    return f"{lanes.engine[lane]} lane {lanes.index[lane]} of rank {lanes.rank[lane]}"
