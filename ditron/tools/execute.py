"""What `run`, `compile` and `verify` do, as functions that return data; `cli` shows it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from ditron import compiler
from ditron.analysis.expand import expand
from ditron.analysis.report import ProofReport, prove
from ditron.analysis.symbols import find_task_program, kernels
from ditron.errors import OptionError
from ditron.executable import Executable
from ditron.plan.options import Options
from ditron.plan.tables import Role
from ditron.tools.check import Agreement, check_outputs
from ditron.tools.host_report import launch_report
from ditron.tools.inputs import load_inputs, make_inputs, make_tensors, split_weights
from ditron.tools.loading import Source, parse_dump
from ditron.tools.show import Decision, decisions, progress

LEVELS = ("task", "device", "shmem")
"""The levels of stages, from the highest to the lowest; a stage keeps what is above it."""


@dataclass(frozen=True)
class RunRequest:
    """The arguments of `ditron run`."""

    check: bool = False
    inputs: Path | None = None
    seed: int = 0
    repeats: int = 5
    trace: Path | None = None


@dataclass(frozen=True)
class RunResult:
    """What a run found. `seconds`: one a launch, slowest rank."""

    program: str
    ranks: int
    decisions: list[Decision]
    proofs: str
    seconds: list[float]
    outputs: Mapping[str, torch.Tensor]
    agreements: list[Agreement] = field(default_factory=list[Agreement])

    @property
    def agrees(self) -> bool:
        return all(a.agrees for a in self.agreements)


def build(source: Source, target: str, machine: str | None, options: Options) -> Executable:
    """Compile, with progress on a terminal."""
    with progress(f"compiling {source.path.name}"):
        program, after = source.to_compile(), source.stage
        return compiler.compile(program, target, machine, options, after)


def verify(source: Source, target: str, machine: str | None, options: Options) -> ProofReport:
    """Prove a program, or a dump of a lowered stage as it is.

    Raises:
        ProofError: a proof fails; the message is the counterexample.
    """
    if not source.lowered:
        with build(source, target, machine, options) as executable:
            return executable.report
    with progress(f"proving {source.path.name}"):
        module = source.module
        return prove(expand(module), kernels(module), find_task_program(module))


def run(source: Source, executable: Executable, request: RunRequest) -> RunResult:
    """Run once, then measure; compare with the references if asked."""
    program = find_task_program(source.module)
    specs, plan = executable.tensors, executable.plan
    if program is None and request.check:
        msg = f"{source.path}: nothing to check against; say which task program it implements"
        raise OptionError(msg)
    if request.inputs is not None:
        tensors = load_inputs(request.inputs)
    elif program is not None:
        tensors = make_inputs(program, request.seed)
    else:
        tensors = make_tensors(specs(Role.INPUT) | specs(Role.WEIGHT), request.seed)
    inputs, weights = split_weights(specs(Role.WEIGHT), tensors)
    with progress(f"running {plan.name} on {plan.ranks} ranks"):
        if weights:
            executable.bind(weights)
        outputs = executable.run(inputs)
        agreements: list[Agreement] = []
        if request.check and program is not None:
            agreements = check_outputs(program, tensors, outputs, executable.local)
        seconds = executable.measure(inputs, repeats=request.repeats) if request.repeats else []
        if request.trace is not None:
            executable.trace(request.trace)
    return RunResult(
        plan.name,
        plan.ranks,
        chosen(source, executable),
        str(executable.report),
        seconds,
        outputs,
        agreements,
    )


def chosen(source: Source, executable: Executable) -> list[Decision]:
    """What was decided, read from the last stage, which still holds the task program."""
    texts = list(executable.stages.values())
    return decisions(source.module, parse_dump(texts[-1], "<stage>"))


def level_of(name: str, text: str) -> str:
    """The lowest level that a stage has reached."""
    if name.endswith("lower-to-shmem"):
        return "shmem"
    return "device" if "device.program" in text else "task"


def emit(executable: Executable, level: str) -> str:
    """The last stage at a level, as text; `core` is the kernels of the last stage.

    Raises:
        OptionError: no stage of this compilation is at that level.
    """
    if level == "host" and executable.launches is not None:
        return "\n".join(launch_report(executable.plan, executable.launches))
    if level in ("host", "triton"):
        return executable.kernels
    if level in ("ptx", "amdgcn"):
        return executable.assembly()
    if level == "core":
        return core_functions(list(executable.stages.values())[-1])
    reached = {level_of(name, text): text for name, text in executable.stages.items()}
    if level not in reached:
        msg = f"no stage is at level {level}; this compilation reached {', '.join(reached)}"
        raise OptionError(msg)
    return reached[level]


def core_functions(text: str) -> str:
    """Only the kernels of a module's text."""
    module = parse_dump(text, "<stage>")
    kernels = (str(op) for op in module.ops if op.name == "core.func")
    return "\n\n".join(kernels)


def dump_stages(executable: Executable, folder: Path) -> list[Path]:
    """Write one file per pass, `09-insert-signals.mlir`.

    Raises:
        OptionError: the folder cannot be written.
    """
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in executable.stages.items():
            path = folder / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', name)}.mlir"
            path.write_text(text.rstrip() + "\n")
            written.append(path)
    except OSError as error:
        msg = f"cannot write {folder}: {error.strerror}"
        raise OptionError(msg) from error
    return written
