"""Compile a program: run the pipeline, prove the plan, emit kernels."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import prod
from typing import overload

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from ditron.analysis.expand import expand
from ditron.analysis.report import prove
from ditron.analysis.residency import check_persistent, check_residency
from ditron.analysis.symbols import (
    find_task_program,
    kernels,
    task_program,
)
from ditron.backends.base import Backend
from ditron.backends.cpu import CPU
from ditron.backends.triton import GPUS
from ditron.buckets import BucketedExecutable, Factory
from ditron.builder.device import DeviceProgram
from ditron.builder.task import Program
from ditron.errors import OptionError, ProgramError
from ditron.executable import BoundTensor, Executable
from ditron.ir import task
from ditron.ir.dominance import check_dominance
from ditron.passes.choose_algorithms import ChooseAlgorithmsPass
from ditron.passes.infer_placements import InferPlacementsPass
from ditron.passes.lower_to_shmem import TRANSPORTS, TransportName
from ditron.pipelines import default_pipeline, device_pipeline, transport_pipeline
from ditron.plan.machine import Machine, load_machine
from ditron.plan.options import Options
from ditron.plan.placement import Mesh
from ditron.plan.tables import Role
from ditron.stages import Stages

BACKENDS: dict[str, Backend] = {"cpu": CPU, **GPUS}


@overload
def compile(  # noqa: A001 - the public name, as torch has it
    program: Program | DeviceProgram | ModuleOp,
    target: str = "cpu",
    machine: str | None = None,
    options: Options | None = None,
    after: str | None = None,
) -> Executable: ...


@overload
def compile(  # noqa: A001
    program: Factory,
    target: str = "cpu",
    machine: str | None = None,
    options: Options | None = None,
    *,
    dims: Mapping[str, Sequence[int]],
) -> BucketedExecutable: ...


def compile(  # noqa: A001
    program: Program | DeviceProgram | ModuleOp | Factory,
    target: str = "cpu",
    machine: str | None = None,
    options: Options | None = None,
    after: str | None = None,
    dims: Mapping[str, Sequence[int]] | None = None,
) -> Executable | BucketedExecutable:
    """Compile and prove a program.

    Args:
        program: what to compute and how its tensors lie; or, written by hand, how to do it; or
            IR with a task program, such as a dump that was read back; with `dims` the function
            that makes a program of these sizes.
        target: what to run on: "cpu", "cuda"; or an architecture to compile for ("sm_90").
        machine: a machine's name or YAML file; the target's own by default.
        options: what the user decides instead of ditron.
        after: the last pass that IR has gone through, such as "fuse-tiles" for a dump of that
            stage; only later passes run.
        dims: sizes by the names of the function's arguments, such as {"m": (1, 8, 64)}: a plan is
            made for each, and inputs run on the smallest that they fit (`docs/sizes.md`).

    Raises:
        OptionError: an unknown target or pass, or a choice that the program or machine cannot
            follow.
        ProofError: the plan is not right; the message is the counterexample.
    """
    if dims is not None:
        build = partial(compile, target=target, machine=machine, options=options)
        return BucketedExecutable(program, dims, build)
    if not isinstance(program, Program | DeviceProgram | ModuleOp):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ProgramError(f"compile takes a dt.Program or dt.DeviceProgram, got {program!r}")
    if not isinstance(options, Options | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(f"options are dt.Options(...), got {options!r}")
    if target not in BACKENDS:
        raise OptionError(f"no target {target!r}; there is {', '.join(BACKENDS)}")
    backend = BACKENDS[target]
    machine = machine or backend.machine
    options = options or Options()
    described = load_machine(machine)
    source = program if isinstance(program, ModuleOp) else program.ir
    mesh = task_program(source).mesh if isinstance(program, ModuleOp) else program.mesh
    _check_machine(mesh, backend, described)
    _check_options(options, described)
    told = isinstance(program, DeviceProgram) or options.megakernel or after is not None
    chosen = None if told else _cheapest(source, backend, options, machine)
    transport = _transport(target, backend, options, chosen)
    driven = "copy" in TRANSPORTS[transport].driven
    if isinstance(program, DeviceProgram):
        passes = device_pipeline(options)
    else:
        lanes = _with_lanes(options, described, source, mesh.ranks, driven=driven)
        passes = default_pipeline(lanes, machine, driven=driven)
    lowering = transport_pipeline(transport)
    if after is not None:
        passes, lowering = _later(passes, lowering, after)
    module = source.clone()
    with _no_gc():
        _run_passes(module, passes)
        plan = expand(module)
        report = prove(plan, kernels(module), find_task_program(module))
        if options.megakernel:
            check_persistent(plan, described.resident)
        elif not described.cores:  # the lanes of a CPU rank take turns
            check_residency(plan, described.workers, copies=not driven)
        _run_passes(module, lowering)
        _verify(module)
    built = backend.build(module, plan, transport, options)
    stages = Stages(source, [*passes, *lowering])
    return Executable(stages, plan, report, built, mesh, _tensors(program, source))


def _later(
    passes: list[ModulePass], lowering: list[ModulePass], after: str
) -> tuple[list[ModulePass], list[ModulePass]]:
    """What is left to do after a pass."""
    names = [one.name for one in (*passes, *lowering)]
    if after not in names:
        raise OptionError(f"no pass {after!r} runs on this program; there is {', '.join(names)}")
    done = names.index(after) + 1
    return passes[done:], lowering[max(done - len(passes), 0) :]


def _transport(
    target: str, backend: Backend, options: Options, chosen: TransportName | None
) -> TransportName:
    """The transport that the options ask for, else the chosen one, else the backend's usual one."""
    for name in backend.transports:
        if (options.transport or chosen) in (None, name):
            return name
    known = ", ".join(backend.transports)
    raise OptionError(f"target {target} has no transport {options.transport!r}; there is {known}")


def _cheapest(
    source: ModuleOp, backend: Backend, options: Options, machine: str
) -> TransportName | None:
    """The transport by which the collectives are expected to cost least; None: no choice."""
    if options.transport is not None or len(backend.transports) == 1:
        return None
    costs: dict[TransportName, float] = {}
    for name in backend.transports:
        module = source.clone()
        in_place = TRANSPORTS[name].in_place
        try:
            for one in (
                InferPlacementsPass(),
                ChooseAlgorithmsPass.of(options, machine, in_place=in_place),
            ):
                one.apply(Context(), module)
        except OptionError:  # an algorithm that the transport cannot carry out
            continue
        found = (o for o in module.walk() if isinstance(o, task.CollectiveOp))
        costs[name] = sum(o.choice.prediction.cost_ns for o in found if o.choice is not None)
    first: TransportName = backend.transports[0]
    for name, cost in costs.items():
        first = name if cost < costs.get(first, float("inf")) else first
    return first


def _with_lanes(
    options: Options, machine: Machine, source: ModuleOp, ranks: int, *, driven: bool
) -> Options:
    """The options with as many workers and copy lanes as the machine has, where none are given.

    Workers that are one SM each leave some to the kernels that copy beside them. Where the host
    drives copies (`driven`) there are none, and one lane keeps a link busy, its chunks in order.
    A persistent kernel that only reads memory has as many as can stay.
    """
    if options.megakernel and ranks == 1 and _only_reads(source, machine):
        return replace(options, workers=options.workers or machine.resident)
    compute, copy = machine.engines["sm"].lanes, machine.engines["copy"].lanes
    copy = options.copy_lanes or (1 if driven else copy)
    left = copy if not driven and ranks > 1 and compute > copy else 0
    return replace(options, workers=options.workers or compute - left, copy_lanes=copy)


def _check_options(options: Options, described: Machine) -> None:
    if options.megakernel and (described.cores or options.transport == "copy-engine"):
        raise OptionError("a megakernel is for GPUs, and makes its transfers itself")
    if options.heap is not None and described.target != "cuda":
        raise OptionError(f"heap {options.heap} is for target cuda, not {described.target}")
    if options.scheduler == "queue" and not described.cores:
        raise OptionError(
            "scheduler queue is for CPU ranks and simulation: kernels have a program a lane"
        )


def _only_reads(source: ModuleOp, machine: Machine) -> bool:
    """Whether all products have so few rows that they do little but read memory."""
    shapes = [
        task.spec_of(op.result).shape for op in source.walk() if isinstance(op, task.MatmulOp)
    ]
    return machine.thin_tile is not None and all(
        prod(shape[:-1]) <= machine.thin_tile[0] for shape in shapes
    )


def _check_machine(mesh: Mesh, backend: Backend, machine: Machine) -> None:
    if machine.target != backend.family:
        wanted = backend.family
        raise OptionError(f"machine {machine.name} is for target {machine.target}, not {wanted}")
    if mesh.ranks > machine.max_ranks:
        raise OptionError(
            f"{mesh} has {mesh.ranks} ranks, machine {machine.name} at most {machine.max_ranks}"
        )


def _run_passes(module: ModuleOp, passes: Sequence[ModulePass]) -> None:
    context = Context()
    for one in passes:
        one.apply(context, module)


def _verify(module: ModuleOp) -> None:
    """Verify what came out of all passes.

    `ditron-opt` and the tests verify after each pass, which takes half of a model's compile time.
    """
    module.verify()
    check_dominance(module)


@contextmanager
def _no_gc() -> Generator[None]:
    """IR has many cycles; collecting while it is built costs more than it frees."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _tensors(
    program: Program | DeviceProgram | ModuleOp, module: ModuleOp
) -> Iterator[BoundTensor]:
    if isinstance(program, DeviceProgram):
        for name, (role, spec) in program.tensors.items():
            yield BoundTensor(name, spec, role)
        return
    source = task_program(module)
    for op in source.sources:
        most = op.most if isinstance(op, task.ScalarOp) else None
        name, spec = op.tensor_name.data, task.spec_of(op.result)
        yield BoundTensor(name, spec, task.role_of(op), isinstance(op, task.ScalarOp), most)
    for op in source.outputs:
        yield BoundTensor(op.tensor_name.data, task.spec_of(op.operand), Role.OUTPUT)
