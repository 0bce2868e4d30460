"""What a device program checks as a whole, when its block ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from ditron.analysis.arrivals import Columns, find_arrivals
from ditron.analysis.deadlock import find_unreachable
from ditron.analysis.expand import expand
from ditron.analysis.happens_before import find_inexact
from ditron.builder.grid import Grid
from ditron.errors import DeadlockError, ProgramError
from ditron.ir import device
from ditron.plan.tables import Plan, Role

if TYPE_CHECKING:
    from ditron.builder.device import DeviceProgram


def check_tensors(program: DeviceProgram) -> None:
    """Everything that goes in or out has a buffer, and something comes out.

    Raises:
        ProgramError: it does not.
    """
    missing = [name for name in program.implemented if name not in program.tensors]
    if missing:
        role, _ = program.implemented[missing[0]]
        message = (
            f"device program {program.name} has no buffer for {role} {missing[0]!r} of what it"
            f" implements: d.{role}({missing[0]!r})"
        )
        raise ProgramError(message, program.where)
    if not any(role is Role.OUTPUT for role, _ in program.tensors.values()):
        message = f'device program {program.name} has no output: d.output("y", ...)'
        raise ProgramError(message, program.where)


def check_hand_overs(program: DeviceProgram) -> None:
    """Buffers that both the host and peers touch are handed over.

    Raises:
        ProgramError: they are not.
    """
    ops = [op for _, op in program.grids]
    seen = {v.buffer for op in ops for v in op.views if v.at is not None}
    for buffer in program.buffers:
        if buffer.role not in (Role.INPUT, Role.OUTPUT) or buffer.ssa not in seen:
            continue
        for verb, kind in (("acquire", device.AcquireOp), ("release", device.ReleaseOp)):
            bodies = (op.body_op for op in ops)
            if any(isinstance(b, kind) and b.buffer is buffer.ssa for b in bodies):
                continue
            then = (
                "and notify the peers that wait for it"
                if verb == "acquire"
                else "after waits for all that peers do to it"
            )
            message = (
                f"peers touch {buffer!r}, which the host fills or reads between launches, but it"
                f' is never handed over: g.{verb}({buffer.name}) in a grid of engine "host", {then}'
            )
            raise ProgramError(message, buffer.where)


def check_waits(program: DeviceProgram, module: ModuleOp) -> None:
    """Every wait can be satisfied, and says exactly which increments it waits for.

    Raises:
        DeadlockError: one asks for more than comes.
        ProgramError: one does not say; both at the wait's own line.
    """
    plan = expand(module)
    columns = Columns(plan)
    arrivals = find_arrivals(columns)
    short = plan.waits.value > arrivals.total[plan.waits.slot]
    if short.any():
        row = int(np.argmax(short))
        found = find_unreachable(plan, arrivals, row)
        raise DeadlockError(found.text, _line_of_wait(program, plan, row), found)
    if arrivals.inexact.any():
        message = find_inexact(columns, arrivals).text
        raise ProgramError(message, _line_of_wait(program, plan, int(np.argmax(arrivals.inexact))))


def _line_of_wait(program: DeviceProgram, plan: Plan, row: int) -> str | None:
    task, slot = int(plan.waits.task[row]), int(plan.waits.slot[row])
    grid: Grid = program.grids[int(plan.tasks.op[task])][0]
    point = (int(plan.tasks.rank[task]), *plan.tasks.coords[task, : len(grid.bounds)].tolist())
    signals, index = int(plan.slots.signals[slot]), int(plan.slots.index[slot])
    for wait in grid.waits:
        first, end, here = (
            np.broadcast_to(a, grid.scope.shape)[point] for a in (wait.first, wait.end, wait.here)
        )
        same = wait.signals.name == plan.signals[signals] and wait.lag == int(plan.waits.lag[row])
        if same and here and first <= index < end:
            return wait.where
    return grid.made_at
