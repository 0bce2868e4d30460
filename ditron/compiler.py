"""Compile a program: run the pipeline, prove the plan, emit kernels, and hold what runs it."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from ditron.analysis.expand import expand
from ditron.analysis.report import ProofReport, prove
from ditron.analysis.symbols import find_task_program, kernels, task_program
from ditron.backends.base import Backend, Executor
from ditron.backends.cpu import CPU
from ditron.builder.device import DeviceProgram
from ditron.builder.task import Program
from ditron.errors import InputError, OptionError
from ditron.ir import task
from ditron.ir.dominance import check_dominance
from ditron.passes.lower_to_shmem import TransportName
from ditron.pipelines import default_pipeline, device_pipeline, transport_pipeline
from ditron.plan.machine import Machine, load_machine
from ditron.plan.options import Options
from ditron.plan.placement import Partial, Shard, shard_extent, shard_size
from ditron.plan.spec import TensorSpec
from ditron.plan.tables import Plan, Role
from ditron.runtime.reference import check_tensors

BACKENDS: dict[str, Backend] = {"cpu": CPU}
TRANSPORTS: dict[str, TransportName] = {"cpu": "posix"}

Tensors = Mapping[str, torch.Tensor]


def compile(  # noqa: A001 - the public name, as torch has it
    program: Program | DeviceProgram,
    target: str = "cpu",
    machine: str | None = None,
    options: Options | None = None,
) -> Executable:
    """Compile and prove a program.

    Args:
        program: what to compute and how its tensors lie; or, written by hand, how to do it.
        target: what to run on: "cpu".
        machine: a machine's name or YAML file; the target's own by default.
        options: what the user decides instead of ditron.

    Raises:
        OptionError: an unknown target, or a choice that the program or machine cannot follow.
        ProofError: the plan is not right; the message is the counterexample.
    """
    if target not in BACKENDS:
        raise OptionError(f"no target {target!r}; there is {', '.join(BACKENDS)}")
    options = options or Options()
    described = load_machine(machine or target)
    _check_machine(program, target, described)
    source = program.ir
    by_hand = isinstance(program, DeviceProgram)
    passes = device_pipeline(options) if by_hand else default_pipeline(options, machine or target)
    module = source.clone()
    with _no_gc():
        _run_passes(module, passes)
        plan = expand(module)
        report = prove(plan, kernels(module), find_task_program(module))
        lowering = transport_pipeline(TRANSPORTS[target])
        _run_passes(module, lowering)
    backend = BACKENDS[target]
    text = backend.emit(kernels(module).values())
    executor = backend.load(plan, text, options.wait_bound_s)
    stages = Stages(source, [*passes, *lowering])
    return Executable(stages, plan, report, text, executor, _tensors(program, plan))


def _check_machine(program: Program | DeviceProgram, target: str, machine: Machine) -> None:
    if machine.target != target:
        raise OptionError(f"machine {machine.name} is for target {machine.target}, not {target}")
    if program.mesh.ranks > machine.max_ranks:
        raise OptionError(
            f"{program.mesh} has {program.mesh.ranks} ranks, machine {machine.name} at most"
            f" {machine.max_ranks}"
        )


def _run_passes(module: ModuleOp, passes: Sequence[ModulePass]) -> None:
    context = Context()
    for one in passes:
        one.apply(context, module)
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


class Stages(Mapping[str, str]):
    """The program's text after each pass, "00-input" first, made when asked for."""

    def __init__(self, source: ModuleOp, passes: Sequence[ModulePass]) -> None:
        self.source, self._passes = source, passes
        names = ["input", *(p.name for p in passes)]
        self._names = [f"{i:02d}-{name}" for i, name in enumerate(names)]
        self._texts: list[str] = []

    def __getitem__(self, name: str) -> str:
        if name not in self._names:
            raise KeyError(f"no stage {name!r}; there are {', '.join(self._names)}")
        if not self._texts:
            self._replay()
        return self._texts[self._names.index(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def diff(self, a: str, b: str) -> str:
        """What changed from stage `a` to stage `b`, as a unified diff."""
        lines = unified_diff(self[a].splitlines(), self[b].splitlines(), a, b, lineterm="")
        return "\n".join(lines)

    def _replay(self) -> None:
        module, context = self.source.clone(), Context()
        self._texts.append(str(module))
        for one in self._passes:
            one.apply(context, module)
            self._texts.append(str(module))


@dataclass(frozen=True)
class _Tensor:
    """A tensor of the program and the buffer that holds its local parts."""

    name: str
    spec: TensorSpec
    buffer: str
    role: Role


class Executable:
    """A compiled program. Also a context manager, which closes it.

    Attributes:
        stages: IR text after each pass.
        plan: the concrete plan of every rank.
        report: what was proved, with counts and times.
        kernels: the emitted source.
    """

    def __init__(
        self,
        stages: Stages,
        plan: Plan,
        report: ProofReport,
        source: str,
        executor: Executor,
        tensors: Iterable[_Tensor],
    ) -> None:
        self.stages, self.plan, self.report, self.kernels = stages, plan, report, source
        self._executor = executor
        self._tensors = {t.name: t for t in tensors}
        weights = [t.name for t in self._tensors.values() if t.role is Role.WEIGHT]
        self._unbound = set(weights)

    def bind(self, weights: Tensors) -> None:
        """Put weights in place, once for all runs; again to change some.

        Args:
            weights: global tensors by name, any of the program's weights.

        Raises:
            InputError: a name, shape or dtype that the program does not have.
        """
        self._check(weights, [n for n in self._of(Role.WEIGHT) if n in weights], "weight")
        self._write(weights)
        self._unbound -= weights.keys()

    def run(self, inputs: Tensors) -> dict[str, torch.Tensor]:
        """Launch once.

        Args:
            inputs: every input by name: a global tensor of the program's shape and dtype.

        Returns:
            Every output by name, as a global tensor: shards put together, replicas from rank 0,
            partial sums added in float32 and rounded once.

        Raises:
            InputError: tensors that do not fit the program, or weights that are not bound.
            LaunchError: a rank failed; the executable is unusable until `reset`.
        """
        self._place(inputs)
        self._executor.launch()
        return {name: self._gather(name) for name in self._of(Role.OUTPUT)}

    def measure(self, inputs: Tensors, repeats: int = 20) -> list[float]:
        """Seconds of each of some launches, slowest rank, with the inputs already in place."""
        if repeats < 1:
            raise OptionError(f"measure takes at least one repeat, got {repeats}")
        self._place(inputs)
        return self._executor.measure(repeats)

    def trace(self, path: str | Path) -> None:
        """Launch once more on the inputs in place; write what ran when as a Chrome trace."""
        if self._unbound:
            raise InputError(f"bind {', '.join(sorted(self._unbound))} first")
        self._executor.trace(path)

    def local(self, name: str, rank: int) -> torch.Tensor:
        """What a rank holds of an output after the last launch."""
        if name not in self._of(Role.OUTPUT):
            raise InputError(f"no output {name!r}; there is {', '.join(self._of(Role.OUTPUT))}")
        return self._executor.read(self._tensors[name].buffer, rank)

    def tensors(self, role: Role) -> dict[str, TensorSpec]:
        """What comes in or out in a role, by name."""
        return {name: self._tensors[name].spec for name in self._of(role)}

    def reset(self) -> None:
        """Make the executable usable again after a launch that did not finish."""
        self._executor.reset()

    def close(self) -> None:
        """End its processes and free its memory."""
        self._executor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _of(self, role: Role) -> list[str]:
        return [t.name for t in self._tensors.values() if t.role is role]

    def _place(self, inputs: Tensors) -> None:
        if self._unbound:
            raise InputError(f"bind {', '.join(sorted(self._unbound))} first")
        self._check(inputs, self._of(Role.INPUT), "input")
        self._write(inputs)

    def _check(self, given: Tensors, wanted: Sequence[str], what: str) -> None:
        specs = {name: self._tensors[name].spec for name in wanted}
        check_tensors(self.plan.name, what, specs, given)

    def _write(self, tensors: Tensors) -> None:
        for name, tensor in tensors.items():
            for rank in range(self.plan.ranks):
                part = local_part(self._tensors[name].spec, tensor, rank, self.plan.ranks)
                self._executor.write(self._tensors[name].buffer, rank, part)

    def _gather(self, name: str) -> torch.Tensor:
        tensor = self._tensors[name]
        match tensor.spec.placements[0]:
            case Shard(dim):
                parts = [self.local(name, rank) for rank in range(self.plan.ranks)]
                return torch.cat(parts, dim)
            case Partial():
                terms = [self.local(name, rank) for rank in range(self.plan.ranks)]
                return _sum(terms)
            case _:
                return self.local(name, 0)


def _tensors(program: Program | DeviceProgram, plan: Plan) -> Iterator[_Tensor]:
    if isinstance(program, DeviceProgram):
        for name, (role, spec) in program.tensors.items():
            yield _Tensor(name, spec, name, role)
        return
    source = task_program(program.ir)
    outputs = [b.name for b in plan.buffers if b.role is Role.OUTPUT]
    for op in source.inputs:
        role = Role.WEIGHT if isinstance(op, task.WeightOp) else Role.INPUT
        yield _Tensor(op.tensor_name.data, task.spec_of(op.result), op.tensor_name.data, role)
    for op, buffer in zip(source.outputs, outputs, strict=True):
        yield _Tensor(op.tensor_name.data, task.spec_of(op.operand), buffer, Role.OUTPUT)


def local_part(spec: TensorSpec, tensor: torch.Tensor, rank: int, ranks: int) -> torch.Tensor:
    """What a rank holds of a global tensor."""
    placement = spec.placements[0]
    if not isinstance(placement, Shard):
        return tensor
    size = spec.shape[placement.dim]
    start = min(rank * shard_size(size, ranks), size)
    return tensor.narrow(placement.dim, start, int(shard_extent(size, ranks, rank)))


def _sum(terms: Sequence[torch.Tensor]) -> torch.Tensor:
    wide = torch.float32 if terms[0].dtype.is_floating_point else terms[0].dtype
    total = terms[0].to(wide)
    for term in terms[1:]:
        total = total + term.to(wide)
    return total.to(terms[0].dtype)
