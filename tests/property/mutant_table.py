"""Mutants of library programs, each with the verifier's word and what runs in any order show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

import ditron as dt
from ditron import testing
from ditron.errors import OptionError
from ditron.executable import Executable
from ditron.plan.tables import Role

LAUNCHES = 3
ALGORITHMS = ("mesh-push", "mesh-pull", "mesh-in-place", "ring-push", "one-shot", "two-shot")


@dataclass
class Tally:
    """How many mutants of each kind were refused, and were harmless where accepted.

    `wrong` lists what was accepted and is not right; `safe` those refused that no run showed wrong.
    """

    refused: Counter[str] = field(default_factory=Counter[str])
    harmless: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])

    @property
    def mutants(self) -> int:
        return self.refused.total() + self.harmless.total() + len(self.wrong)

    def include(self, other: Tally) -> None:
        self.refused += other.refused
        self.harmless += other.harmless
        self.wrong += other.wrong

    def __str__(self) -> str:
        lines = [
            f"{self.mutants} mutants: {self.refused.total()} refused, {self.harmless.total()}"
            f" accepted and harmless, {len(self.wrong)} accepted and wrong"
        ]
        for kind in sorted(self.refused | self.harmless):
            lines.append(
                f"  {kind:24} {self.refused[kind]:6} refused {self.harmless[kind]:6} harmless"
            )
        return "\n".join([*lines, *self.wrong])


def programs(ranks: int) -> Iterator[tuple[str, dt.Program, dt.Options]]:
    """The library's programs with each algorithm that fits, on small uneven shapes."""
    for algorithm in (
        "mesh-push",
        "mesh-pull",
        "mesh-in-place",
        "ring-push",
        "one-shot",
        "two-shot",
    ):
        for name, make in (
            ("ag_gemm", ag_gemm),
            ("gemm_rs", gemm_rs),
            ("gemm_ar", gemm_ar),
            ("mlp", mlp),
        ):
            yield f"{name} {algorithm} x{ranks}", make(ranks), dt.Options(algorithm=algorithm)


def ag_gemm(ranks: int) -> dt.Program:
    with dt.Program("ag_gemm", dt.Mesh(tp=ranks)) as p:
        x = p.input("x", (2 * ranks + 1, 4), dt.f32, dt.Shard(0))
        w = p.weight("w", (4, 2 * ranks), dt.f32, dt.Shard(1))
        p.output("y", dt.matmul(dt.all_gather(x, dim=0), w))
    return p


def gemm_rs(ranks: int) -> dt.Program:
    with dt.Program("gemm_rs", dt.Mesh(tp=ranks)) as p:
        x = p.input("x", (2 * ranks + 1, 2 * ranks), dt.f32, dt.Shard(1))
        w = p.weight("w", (2 * ranks, 4), dt.f32, dt.Shard(0))
        p.output("y", dt.reduce_scatter(dt.matmul(x, w), dim=0))
    return p


def gemm_ar(ranks: int) -> dt.Program:
    with dt.Program("gemm_ar", dt.Mesh(tp=ranks)) as p:
        x = p.input("x", (5, 2 * ranks), dt.f32, dt.Shard(1))
        w = p.weight("w", (2 * ranks, 4), dt.f32, dt.Shard(0))
        p.output("y", dt.all_reduce(dt.matmul(x, w)))
    return p


def mlp(ranks: int) -> dt.Program:
    with dt.Program("mlp", dt.Mesh(tp=ranks)) as p:
        x = p.input("x", (2 * ranks, 4), dt.f32, dt.Shard(0))
        up = p.weight("up", (4, 2 * ranks), dt.f32, dt.Shard(1))
        down = p.weight("down", (2 * ranks, 4), dt.f32, dt.Shard(0))
        h = dt.relu(dt.matmul(dt.all_gather(x, dim=0), up))
        p.output("y", dt.reduce_scatter(dt.matmul(h, down), dim=0))
    return p


def compiled(program: dt.Program, options: dt.Options) -> Executable | None:
    """None where the algorithm does not fit the program."""
    try:
        return dt.compile(program, options=options)
    except OptionError:
        return None


def judge(
    program: dt.Program, executable: Executable, every: int, offset: int, seeds: Sequence[int]
) -> Tally:
    """Each `every`-th mutant: refused, or right in all of some orders."""
    tensors = [_tensors(executable, launch) for launch in range(LAUNCHES)]
    expected = [program.reference(t) for t in tensors]
    tally = Tally()
    for i, mutant in enumerate(testing.mutants(executable.plan)):
        if i % every != offset % every:
            continue
        if testing.verdict(executable, mutant.plan) is not None:
            tally.refused[mutant.kind] += 1
        elif _right(executable, mutant, tensors, expected, seeds):
            tally.harmless[mutant.kind] += 1
        else:
            tally.wrong.append(f"{executable.plan.name}: {mutant.kind}: {mutant.what}")
    return tally


def _tensors(executable: Executable, launch: int) -> dict[str, torch.Tensor]:
    """Small integers, whose sums are exact; weights stay."""
    made: dict[str, torch.Tensor] = {}
    for role, seed in ((Role.INPUT, launch + 1), (Role.WEIGHT, 0)):
        generator = torch.Generator().manual_seed(seed)
        for name, spec in executable.tensors(role).items():
            made[name] = torch.randint(-8, 9, spec.shape, generator=generator).float()
    return made


def _right(
    executable: Executable,
    mutant: testing.Mutant,
    tensors: list[dict[str, torch.Tensor]],
    expected: list[dict[str, torch.Tensor]],
    seeds: Sequence[int],
) -> bool:
    runs = testing.interleavings(
        executable,
        lambda launch: tensors[launch - 1],
        seeds=seeds,
        launches=LAUNCHES,
        plan=mutant.plan,
    )
    return all(
        run.finished
        and all(
            torch.equal(got[name], want[name])
            for got, want in zip(run.outputs, expected, strict=True)
            for name in want
        )
        for run in runs
    )
