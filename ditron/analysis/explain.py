"""How the proofs name tasks, accesses and lanes in their counterexamples."""

from __future__ import annotations

from ditron.plan.tables import Accesses, Mode, Plan


def task_location(plan: Plan, task: int) -> str:
    """The user's `file:line` of a task's op."""
    return plan.ops[int(plan.tasks.op[task])].location


def lane_name(plan: Plan, lane: int) -> str:
    """`copy lane 1 of rank 0`."""
    lanes = plan.lanes
    return f"{lanes.engine[lane]} lane {lanes.index[lane]} of rank {lanes.rank[lane]}"


def box_name(plan: Plan, access: int) -> str:
    """`%xg[64:128, 0:256] at rank 1`."""
    accesses: Accesses = plan.accesses
    buffer = plan.buffers[int(accesses.buffer[access])]
    dims = range(len(buffer.capacity))
    box = ", ".join(f"{accesses.lo[access, d]}:{accesses.hi[access, d]}" for d in dims)
    return f"%{buffer.name}[{box}] at rank {accesses.rank[access]}"


def verb(mode: int) -> str:
    """What an access does, for "@task reads %x"."""
    names = [(Mode.READ, "reads"), (Mode.WRITE, "writes"), (Mode.ADD, "adds to")]
    return " and ".join(name for bit, name in names if mode & bit) or "touches"


def launches_later(gap: int) -> str:
    """When a later launch is, for messages."""
    return {0: "in the same launch", 1: "in the next launch"}.get(gap, f"{gap} launches later")
