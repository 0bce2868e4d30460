"""The passes by name, and the pipeline that `compile` runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from importlib import import_module
from typing import cast

from xdsl.passes import ModulePass

from ditron.errors import OptionError
from ditron.passes.choose_algorithms import ChooseAlgorithmsPass
from ditron.passes.decompose_collectives import DecomposeCollectivesPass
from ditron.passes.elide_waits import ElideWaitsPass
from ditron.passes.fuse_megakernel import FuseMegakernelPass
from ditron.passes.fuse_tiles import FuseTilesPass
from ditron.passes.infer_placements import InferPlacementsPass
from ditron.passes.insert_signals import InsertSignalsPass
from ditron.passes.lower_task_to_device import LowerTaskToDevicePass
from ditron.passes.lower_to_shmem import LowerToShmemPass, TransportName
from ditron.passes.order_tiles import OrderTilesPass
from ditron.passes.plan_memory import PlanMemoryPass
from ditron.passes.schedule_tasks import ScheduleTasksPass
from ditron.passes.split_sums import SplitSumsPass
from ditron.passes.split_waves import SplitWavesPass
from ditron.plan.cost import is_serial
from ditron.plan.machine import load_machine
from ditron.plan.options import Options, Scheduler

NAMES = (
    "infer-placements",
    "split-sums",
    "choose-algorithms",
    "lower-task-to-device",
    "fuse-tiles",
    "decompose-collectives",
    "split-waves",
    "order-tiles",
    "plan-memory",
    "schedule-tasks",
    "insert-signals",
    "elide-waits",
    "fuse-megakernel",
    "verify-delivery",
    "verify-race-free",
    "verify-deadlock-free",
    "lower-to-shmem",
)


def _load(name: str) -> type[ModulePass]:
    module = import_module(f"ditron.passes.{name.replace('-', '_')}")
    words = name.split("-")
    return getattr(module, f"{''.join(w.capitalize() for w in words)}Pass")


# Pass name -> loader, so that a tool pays only for what it runs.
PASSES: dict[str, Callable[[], type[ModulePass]]] = {n: partial(_load, n) for n in NAMES}


def first_passes(options: Options, machine: str) -> list[ModulePass]:
    """Up to where it is chosen how each op is carried out."""
    asked = [options.splits, *(own.splits for own in options.per_op.values())]
    splits = not is_serial(load_machine(machine)) or any(one is not None for one in asked)
    return [InferPlacementsPass(), *([SplitSumsPass.of(options, machine)] if splits else [])]


def default_pipeline(options: Options, machine: str, *, driven: bool = False) -> list[ModulePass]:
    """From task IR to device IR that the verifiers can judge.

    Where the host drives transfers (`driven`), tasks cannot reach peers in place, and copies within
    a rank have a lane of their own.
    """
    fusion = [FuseTilesPass(machine)] if options.fusion is not False else []
    described = load_machine(machine)
    serial = is_serial(described)
    waves = [] if serial else [SplitWavesPass(machine, options.workers or 1)]
    return [
        *first_passes(options, machine),
        ChooseAlgorithmsPass.of(options, machine, in_place=not driven),
        LowerTaskToDevicePass(),
        *fusion,
        DecomposeCollectivesPass(node_ranks=described.ranks_a_node),
        *waves,
        OrderTilesPass(
            "natural" if options.order == "natural" else "arrival",
            described.cache.group_rows,
            options.workers or 1,
        ),
        PlanMemoryPass(reuse=options.reuse_memory is not False),
        ScheduleTasksPass(
            cast("Scheduler", options.scheduler or "round-robin"),
            workers=options.workers or 1,
            copy_lanes=options.copy_lanes or 1,
            local_lane=driven,
            apart=options.megakernel,
            machine=machine,
        ),
        InsertSignalsPass(machine, whole_grids=options.megakernel),
        ElideWaitsPass(),
        *([FuseMegakernelPass()] if options.megakernel else []),
    ]


def device_pipeline(options: Options) -> list[ModulePass]:
    """What a program written at the device level still needs: places in the heap.

    Raises:
        OptionError: options that decide what such a program says itself.
    """
    usual, own = Options(), ("wait_bound_s", "transport")
    names = [f.name for f in fields(Options) if f.name not in own]
    wrong = [name for name in names if getattr(options, name) != getattr(usual, name)]
    if wrong:
        raise OptionError(
            f"a device program says itself how it runs: leave out option {', '.join(wrong)}"
        )
    # Signals written by hand say nothing of buffers that share bytes.
    return [PlanMemoryPass(reuse=False)]


def transport_pipeline(transport: TransportName) -> list[ModulePass]:
    """From verified device IR to what a backend emits."""
    passes: list[ModulePass] = [LowerToShmemPass(transport)]
    return passes
