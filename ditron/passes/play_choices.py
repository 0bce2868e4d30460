"""Let the timeline engine decide between two ways that closed forms find nearly equal.

Closed forms know nothing of lanes and of the order of tiles; a plan does. Playing one means running
the later passes, so this is done for small programs only, and not where ranks share cores: there
costs add up, and closed forms say all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from ditron.analysis.expand import expand
from ditron.analysis.symbols import task_program
from ditron.analysis.tile_groups import gemm_shape
from ditron.analysis.timeline import play
from ditron.ir import task
from ditron.ir.attrs import ChoiceAttr
from ditron.passes.choices import Asked, Chooser, choice_of, ns
from ditron.passes.decompose_collectives import DecomposeCollectivesPass
from ditron.passes.elide_waits import ElideWaitsPass
from ditron.passes.fuse_tiles import FuseTilesPass
from ditron.passes.insert_signals import InsertSignalsPass
from ditron.passes.lower_task_to_device import LowerTaskToDevicePass
from ditron.passes.order_tiles import OrderTilesPass
from ditron.passes.plan_memory import PlanMemoryPass
from ditron.passes.schedule_tasks import ScheduleTasksPass
from ditron.plan.candidates import Priced, runner_up
from ditron.plan.cost import is_serial
from ditron.plan.machine import Machine
from ditron.plan.prediction import Prediction

NEARLY_EQUAL = 1.1
"""Ways whose costs differ less than this are played."""

MOST_TASKS = 1500
"""Products' tiles on all ranks; playing two ways then takes some 0.2 s."""

MOST_COLLECTIVES = 2


def play_choices(module: ModuleOp, chooser: Chooser, machine: Machine, name: str) -> None:
    """Where the next best way turns out faster, take it.

    Args:
        module: the program, with choices.
        chooser: that made them.
        machine: where.
        name: the machine's name or file, as passes take it.
    """
    if is_serial(machine) or len(chooser.asked) > MOST_COLLECTIVES:
        return
    if _tiles(task_program(module)) > MOST_TASKS:
        return
    for at, asked in enumerate(chooser.asked):
        best, second = asked.answers[0], runner_up(asked.answers)
        if second is None or second.us > NEARLY_EQUAL * best.us:
            continue
        if second.candidate.way == best.candidate.way:
            continue
        if second.candidate.library or best.candidate.library:  # the products' tiles would differ
            continue
        first_us = _played_us(module, asked, best, machine, name)
        second_us = _played_us(module, asked, second, machine, name)
        if second_us < first_us:
            asked.op.choice = _choice(asked, second, ns(second_us), best, ns(first_us))
            others = [a for a in asked.answers if a is not second]
            chooser.asked[at] = replace(asked, answers=(second, *others))


def _tiles(program: task.ProgramOp) -> int:
    """Tiles of all products on all ranks."""
    total = 0
    for op in program.body.block.ops:
        if isinstance(op, task.MatmulOp) and op.choice is not None:
            shape, tile = gemm_shape(op, program.mesh), op.choice.tile
            total += -(-shape.m // tile[0]) * -(-shape.n // tile[1])
    return total * program.mesh.ranks


def _choice(asked: Asked, one: Priced, cost_ns: int, over: Priced, over_ns: int) -> ChoiceAttr:
    candidate, adds = one.candidate, asked.question.adds
    told = over.candidate.tell(reduces=adds, multiplies=bool(asked.question.products))
    return choice_of(candidate, Prediction(cost_ns, told, over_ns), adds=adds)


def _played_us(module: ModuleOp, asked: Asked, one: Priced, machine: Machine, name: str) -> float:
    """A launch of the whole program with one of the ways."""
    before = asked.op.choice
    asked.op.choice = _choice(asked, one, 0, one, 0)
    lowered = module.clone()
    asked.op.choice = before
    for step in _later_passes(machine, name):
        step.apply(Context(), lowered)
    return play(expand(lowered), machine).makespan_us


def _later_passes(machine: Machine, name: str) -> Sequence[ModulePass]:
    """What follows `choose-algorithms` by default, with all lanes that the machine has."""
    return (
        LowerTaskToDevicePass(),
        FuseTilesPass(),
        DecomposeCollectivesPass(node_ranks=machine.ranks_a_node),
        OrderTilesPass(),
        PlanMemoryPass(),
        ScheduleTasksPass(workers=machine.workers, copy_lanes=machine.engines["copy"].lanes),
        InsertSignalsPass(name),
        ElideWaitsPass(),
    )
