"""Runs of an executable in one process, in orders that seeds pick."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch

from ditron.errors import DeadlockError
from ditron.executable import Executable
from ditron.plan.placement import Partial
from ditron.plan.tables import Plan, Role
from ditron.runtime.interleave import run_interleaved
from ditron.runtime.kernels import compile_kernels
from ditron.runtime.sharding import assemble, local_box

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Run:
    """What one order gave: whole outputs by name for each launch, or what hung."""

    seed: int
    outputs: tuple[dict[str, torch.Tensor], ...]
    hang: str | None = None

    @property
    def finished(self) -> bool:
        return self.hang is None


def interleavings(
    executable: Executable,
    inputs: Tensors | Callable[[int], Tensors],
    *,
    seeds: Iterable[int] = range(20),
    launches: int = 3,
    plan: Plan | None = None,
) -> Iterator[Run]:
    """Run launches with no barrier between them, in another order for each seed.

    Lanes run far ahead of each other, transfers land whenever they may, and memory that nobody
    wrote holds NaN: what a lucky run hides comes out here.

    Args:
        executable: what to run; its processes are not used.
        inputs: all inputs and weights by name, or a function of the launch 1, 2, ... Let inputs
            differ from launch to launch, or what is left of the last one passes for this one's.
        seeds: one run each; the same seed gives the same run.
        launches: of each run.
        plan: run this plan instead, such as a mutant of the executable's.
    """
    plan = plan or executable.plan
    kernels = compile_kernels(executable.kernels)
    whole = [inputs(e + 1) if callable(inputs) else inputs for e in range(launches)]
    specs = executable.tensors(Role.INPUT) | executable.tensors(Role.WEIGHT)

    def feed(name: str, rank: int, launch: int) -> torch.Tensor | None:
        if name not in specs:
            return None
        return whole[launch - 1][name][local_box(specs[name], executable.mesh, rank)]

    for seed in seeds:
        try:
            ran = run_interleaved(plan, kernels, feed, seed=seed, launches=launches)
        except DeadlockError as error:
            yield Run(seed, (), error.message)
            continue
        outputs = tuple(_outputs(executable, ran.outputs, e + 1) for e in range(launches))
        yield Run(seed, outputs)


def _outputs(
    executable: Executable, parts: Mapping[tuple[int, str, int], torch.Tensor], launch: int
) -> dict[str, torch.Tensor]:
    """Whole tensors; a replica that differs from the first rank's shows as NaN (or 0)."""
    found: dict[str, torch.Tensor] = {}
    held = executable.tensors(Role.OUTPUT) | executable.tensors(Role.STATE)
    for name, spec in held.items():
        buffer = name

        def local(rank: int, buffer: str = buffer) -> torch.Tensor:
            return parts[launch, buffer, rank]

        whole = assemble(spec, executable.mesh, local)
        if Partial() not in spec.placements:
            for rank in range(executable.plan.ranks):
                box = local_box(spec, executable.mesh, rank)
                same = whole[box] == local(rank)
                odd = float("nan") if whole.is_floating_point() else 0
                whole[box] = torch.where(same, whole[box], odd)
        found[name] = whole
    return found
