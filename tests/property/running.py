"""Compile a case, run it in the interleaved executor, and hold what comes out against torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import torch

import ditron as dt
from ditron.errors import OptionError
from ditron.executable import Executable
from ditron.ir import task
from ditron.plan.placement import Partial, Placement, Replicate, Shard, shard_extent
from ditron.plan.spec import TensorSpec
from ditron.plan.tables import Plan
from ditron.runtime.interleave import run_interleaved
from ditron.runtime.kernels import Kernel, compile_kernels
from ditron.runtime.sharding import local_box
from ditron.tools.check import bit_equal
from tests.property.programs import Case
from tests.property.rounding import bounded_outputs

Parts = dict[tuple[int, str], list[torch.Tensor]]
"""What each rank holds of an output, by (launch, output)."""

AnyOptions = TypeVar("AnyOptions", bound=dt.OpOptions)


def compiled(case: Case) -> Executable:
    """The case as an executable; where it asks for what its program cannot have, a push instead."""
    try:
        return dt.compile(case.program, options=case.options)
    except OptionError as error:
        if "cannot be done in place: " not in error.message or error.where is None:
            raise
    per_op = {pattern: _pushed(own) for pattern, own in case.options.per_op.items()}
    options = replace(_pushed(case.options), per_op=per_op)
    return dt.compile(case.program, options=options)


def _pushed(options: AnyOptions) -> AnyOptions:
    if options.algorithm is None or not options.algorithm.endswith("-in-place"):
        return options
    return replace(options, algorithm=options.algorithm.removesuffix("-in-place") + "-push")


@dataclass(frozen=True)
class Trial:
    """A compiled case, ready to run in any order."""

    case: Case
    executable: Executable

    @staticmethod
    def of(case: Case) -> Trial:
        """Compile a case."""
        return Trial(case, compiled(case))

    @property
    def plan(self) -> Plan:
        return self.executable.plan

    @cached_property
    def kernels(self) -> dict[str, Kernel]:
        """Its compiled kernels."""
        return compile_kernels(self.executable.kernels)

    def tensors(self, launch: int) -> dict[str, torch.Tensor]:
        """Whole inputs of a launch."""
        return self.case.tensors(launch)

    def run(self, seed: int, launches: int, plan: Plan | None = None) -> Parts:
        """Launches in an order that the seed picks, of this plan or of one like it."""
        plan = plan or self.plan
        specs = {op.tensor_name.data: task.spec_of(op.result) for op in self.case.task.inputs}
        whole = [self.tensors(launch + 1) for launch in range(launches)]

        def feed(name: str, rank: int, launch: int) -> torch.Tensor | None:
            spec = specs.get(name)
            mesh = self.case.program.mesh
            return spec and whole[launch - 1][name][local_box(spec, mesh, rank)]

        ran = run_interleaved(plan, self.kernels, feed, seed=seed, launches=launches)
        names = [op.tensor_name.data for op in self.case.task.outputs]
        return {
            (launch, name): [ran.outputs[launch, name, rank] for rank in range(plan.ranks)]
            for launch in range(1, launches + 1)
            for name in names
        }

    def check(self, parts: Parts) -> None:
        """Every output of every launch is what the program says, on every rank."""
        for launch in sorted({launch for launch, _ in parts}):
            mine = {name: p for (e, name), p in parts.items() if e == launch}
            check_launch(self.case, self.tensors(launch), mine)


def check_launch(
    case: Case, tensors: Mapping[str, torch.Tensor], parts: Mapping[str, list[torch.Tensor]]
) -> None:
    """One launch's outputs against the reference: equal if exact, else within the bound."""
    theirs = case.program.reference(tensors)
    bounds = {} if case.exact else bounded_outputs(case.task, tensors)
    for op in case.task.outputs:
        name, spec = op.tensor_name.data, task.spec_of(op.operand)
        check_layout(spec, parts[name])
        whole = assemble(spec.placements[0], parts[name])
        if case.exact or not theirs[name].is_floating_point():
            assert bit_equal(whole + 0, theirs[name] + 0), f"{name}:\n{whole}\n{theirs[name]}"
            continue
        off = (whole.double() - bounds[name].true).abs()
        assert (off <= bounds[name].error).all(), (
            f"{name} off by {off}, allowed {bounds[name].error}"
        )


def check_layout(spec: TensorSpec, parts: list[torch.Tensor]) -> None:
    """Shards are as long as `torch.chunk` makes them, replicas equal to the bit."""
    match spec.placements[0]:
        case Shard(dim):
            size, n = spec.shape[dim], len(parts)
            chunks = torch.zeros(size).chunk(n)
            lengths = [len(c) for c in chunks] + [0] * (n - len(chunks))
            assert [p.shape[dim] for p in parts] == lengths
            assert lengths == shard_extent(size, n, range(n)).tolist()
        case Replicate():
            assert all(bit_equal(parts[0], p) for p in parts[1:])
        case Partial():
            assert all(p.shape == spec.shape for p in parts)


def assemble(placement: Placement, parts: list[torch.Tensor]) -> torch.Tensor:
    """The global tensor that ranks hold parts of."""
    match placement:
        case Shard(dim):
            return torch.cat(parts, dim)
        case Replicate():
            return parts[0]
        case Partial():
            wide = [p.float() if p.is_floating_point() else p for p in parts]
            return torch.stack(wide).sum(0).to(parts[0].dtype)
