"""A module as Triton source: one kernel a grid, as a person would have written it.

    device.grid @matmul engine sm in (%p = 4, %m = 2) {
      %0 = device.view %xg[%p * 128 + %m * 64, 0][64, 256] : ...
      device.schedule lane[(%p * 2 + %m) mod 4]
      device.wait %ready[%p * 2 + %m, 1] ge 1
      device.call @matmul(%0, %1, %2)
      device.notify %free[0] at %p add 1 after end
    }

becomes

    @triton.jit(do_not_specialize=["me"])
    def matmul(xg, w, y, ready, free_at, control, me):
        for task in range(tl.program_id(0), 8, 4):
            p = task // 2
            ...
            token = wait(control, ready + (p * 2 + m) * 32, done + 1, 0, task, "sys")
            xg_here = tl.multiple_of(xg + token, 16)
            ...
                sums = tl.dot(..., sums)
            tl.store(...)
            notify(tl.load(free_at + p).to(tl.pointer_type(tl.int32)), 1, "sys")

A program is a lane of the plan, so that whatever the plan proves of lanes holds: it runs its tasks
in their order, one after another, and a stream runs its grids in program order.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from ditron.analysis.grid_values import evaluate_program
from ditron.analysis.lane_barriers import find_without_barrier
from ditron.analysis.symbols import device_program, kernels
from ditron.backends.triton.factors import with_factors_after
from ditron.backends.triton.facts import local_signals, ordered_signals
from ditron.backends.triton.grid import GridKernel
from ditron.backends.triton.names import LIBRARY, RESERVED, Names, nameless
from ditron.backends.triton.signals import Module
from ditron.backends.triton.targets import Target
from ditron.errors import PlanError
from ditron.ir import device
from ditron.ir.library import library_call
from ditron.plan.launches import Launches, LaunchKind, plan_launches
from ditron.plan.tables import LIBRARY as CALLED
from ditron.plan.tables import Boundary, Ints, Plan
from ditron.runtime.gpu_program import Launch, Site, TritonProgram

HEADER = '''"""{name} on {ranks} rank{s}, for {target}. Written by ditron; edit the program."""

import triton
import triton.language as tl

from {library} import {names}
'''


def emit_module(
    module: ModuleOp,
    plan: Plan,
    target: Target,
    driven: Collection[str] = (),
    *,
    stamps: bool = False,
) -> TritonProgram:
    """Source and launches of a module whose plan is `plan`.

    Args:
        module: what runs.
        plan: its plan.
        target: what it is for.
        driven: engines whose grids are no kernels, since the host carries them out itself.
        stamps: whether tasks write down when they begin and end.

    Raises:
        PlanError: something that Triton code cannot do yet.
    """
    check_plan(plan)
    program = device_program(module)
    tables: dict[str, Ints] = {}
    sites: list[Site] = []
    shared = Module(
        program=program,
        funcs=with_factors_after(kernels(module)),
        plan=plan,
        target=target,
        outer=evaluate_program(program),
        local=local_signals(plan, driven),
        ordered=ordered_signals(plan, driven),
        tables=tables,
        sites=sites,
        functions=Names(RESERVED),
        stamps=stamps,
    )
    grids = [op for op in program.body.block.ops if isinstance(op, device.GridOp)]
    texts: list[str] = []
    launches: list[Launch] = []
    calls: dict[int, str] = {}
    first_of: dict[tuple[object, ...], Launch] = {}
    for number, grid in enumerate(grids):
        if grid.engine.data == CALLED:
            assert isinstance(grid.body_op, device.CallOp)
            calls[number] = library_call(shared.funcs[grid.body_op.kernel_name])
        elif grid.engine.data not in driven and (not grid.dims or all(grid.dims)):
            writer = GridKernel(shared, grid, number)
            text, launch = writer.emit()
            first = first_of.setdefault(_key(writer, text, launch), launch)
            if first is launch:
                texts.append(text)
            launches.append(_with_kernel(launch, first))
    source = "\n\n".join([imports(plan, target, texts), *texts])
    host = plan_launches(plan, driven)
    sites += _stream_sites(plan, host)
    return TritonProgram(
        source,
        tuple(launches),
        host,
        tables,
        tuple(sites),
        calls,
        target.name,
        stamps=stamps,
    )


def _key(writer: GridKernel, text: str, launch: Launch) -> tuple[object, ...]:
    """The same for grids that can share a kernel: one text, but for the names of what it is given.

    Waits and notifies are numbered, so a kernel with any is its grid's own.
    """
    if launch.waits or launch.notifies:
        return (launch.kernel,)
    names = {*writer.names.taken, writer.name} - RESERVED
    types = (argument.type for argument in launch.arguments)
    return (nameless(text, names), launch.programs, launch.warps, launch.stages, *types)


def _with_kernel(launch: Launch, first: Launch) -> Launch:
    """A launch of the kernel of another grid."""
    pairs = zip(launch.arguments, first.arguments, strict=True)
    arguments = tuple(replace(mine, name=theirs.name) for mine, theirs in pairs)
    return replace(launch, kernel=first.kernel, arguments=arguments)


def _stream_sites(plan: Plan, host: Launches) -> list[Site]:
    """The sites of waits that streams make, one for each op and array."""
    rows = host.only(host.kind == LaunchKind.STREAM_WAIT)
    pairs = np.unique(np.stack([rows.op, plan.slots.signals[rows.slot]]), axis=1).T
    return [Site(int(op), plan.signals[int(row)], waits=True, scope="sys") for op, row in pairs]


def imports(plan: Plan, target: Target, texts: list[str]) -> str:
    """The head of a source file whose functions are `texts`."""
    code = "\n".join(texts)
    used = [n for n in LIBRARY if re.search(rf"\b{n}\(|[+,] {n}\)", code)]
    text = HEADER.format(
        name=plan.name,
        ranks=plan.ranks,
        s="" if plan.ranks == 1 else "s",
        target=target.name,
        library=target.library,
        names=", ".join(used),
    )
    return text if used else text.rpartition("\nfrom ")[0]


def check_plan(plan: Plan) -> None:
    """Refuse what emitted code and launches on two streams cannot do.

    A stream runs its grids one after another, so a task may only wait for grids that come no later
    in the program than its own.
    """
    if plan.boundary is not Boundary.STREAM:
        raise PlanError(f"{plan.name}: a kernel a grid cannot run persistent launches")
    if (
        plan.copies != 1
        or (plan.slots.copies != 1).any()
        or any(b.copies > 1 for b in plan.buffers)
    ):
        raise PlanError(f"{plan.name}: Triton code of doubled buffers and slots is not there yet")
    last = np.full(len(plan.slots), -1, np.int64)
    np.maximum.at(last, plan.notifies.slot, plan.tasks.op[plan.notifies.task])
    now = plan.waits.lag == 0
    late = now & (last[plan.waits.slot] > plan.tasks.op[plan.waits.task])
    if late.any():
        row = int(np.flatnonzero(late)[0])
        task = plan.describe_task(int(plan.waits.task[row]))
        raise PlanError(f"{task} waits for a later grid: on streams that never comes")
    found = find_without_barrier(plan)
    if found is not None:
        first, second = map(plan.describe_task, found)
        location = plan.ops[int(plan.tasks.op[found[1]])].location
        raise PlanError(
            f"{second} uses what {first} stores, with no notify and wait between them: on a GPU the"
            f" threads of a block are not in step; make it two grids, or signal it",
            location,
        )
