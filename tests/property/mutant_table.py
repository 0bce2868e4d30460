"""Mutants of library programs, each with the verifier's word and what runs in any order show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

import ditron as dt
from ditron import testing
from ditron.analysis.symbols import find_task_program
from ditron.errors import OptionError
from ditron.executable import Executable
from ditron.plan.collectives import ALGORITHMS
from ditron.plan.dtypes import Kind
from ditron.plan.tables import Role
from ditron.runtime.inputs import torch_dtype
from ditron.tools.inputs import make_inputs
from ditron.tools.loading import load

LAUNCHES = 4
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RINGS = ("10_ring_all_gather", "11_double_buffered_reduce_scatter")
# Small sizes of examples that keep states, look up rows, or do more than gather and sum.
MODELS = {
    "06_ulysses": ("tokens={odd}", "heads={ranks}", "width=2", "tp={ranks}"),
    "07_kv_cache": ("ctx=5", "heads={twice}", "groups={ranks}", "width=2", "tp={ranks}"),
    "08_transformer_layer": (
        "tokens=2",
        "heads={ranks}",
        "width=2",
        "inner={twice}",
        "tp={ranks}",
    ),
    "12_vocabulary": ("tokens=3", "vocab={twice}", "hidden=2", "tp={ranks}"),
}
Case = tuple[str, dt.Program | dt.DeviceProgram, dt.Options]


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
                f"  {kind:42} {self.refused[kind]:6} refused {self.harmless[kind]:6} harmless"
            )
        return "\n".join([*lines, *self.wrong])


def programs(ranks: int) -> Iterator[Case]:
    """The library's programs with each algorithm, on small uneven shapes, and rings by hand."""
    mlps = ("mesh-push", "mesh-in-place", "ring-push")
    made = [(mlp(ranks), algorithm) for algorithm in mlps]
    for kind, make in (
        ("all_gather", ag_gemm),
        ("reduce_scatter", gemm_rs),
        ("all_reduce", gemm_ar),
        ("all_to_all", exchange),
        ("broadcast", spread),
        ("shift", turn),
    ):
        for name, transfers in ALGORITHMS[kind].items():
            made += [(make(ranks), f"{name}-{transfer}") for transfer in transfers]
    if ranks % 2 == 0:
        made += [(two_axes(ranks), algorithm) for algorithm in ("mesh-push", "ring-push")]
    for i, (program, algorithm) in enumerate(made):
        several = 2 if i % 2 else 1
        options = dt.Options(
            algorithm=algorithm, chunk_bytes=32 // several, workers=several, copy_lanes=several
        )
        yield f"{program.name} {algorithm} x{ranks}", program, options
    for name, sizes in MODELS.items():
        given = [size.format(ranks=ranks, twice=2 * ranks, odd=2 * ranks - 1) for size in sizes]
        program = load(EXAMPLES / f"{name}.py", given).program
        assert isinstance(program, dt.Program)
        yield f"{program.name} x{ranks}", program, dt.Options(tile=(2, 2))
    for name in RINGS:
        sizes = [f"m={2 * ranks - 1}", "k=2", f"tp={ranks}"]
        ring = load(EXAMPLES / f"{name}.py", sizes).program
        assert isinstance(ring, dt.DeviceProgram)
        yield f"{ring.name} x{ranks}", ring, dt.Options()


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


def exchange(ranks: int) -> dt.Program:
    with dt.Program("exchange", dt.Mesh(tp=ranks)) as p:
        x = p.input("x", (2 * ranks - 1, ranks + 1), dt.f32, dt.Shard(0))
        p.output("y", dt.relu(dt.all_to_all(dt.relu(x), split_dim=1, concat_dim=0)))
    return p


def spread(ranks: int) -> dt.Program:
    with dt.Program("spread", dt.Mesh(tp=ranks)) as p:
        x = p.input("x", (2 * ranks - 1, 3), dt.f32, dt.Shard(0))
        p.output("y", dt.relu(dt.broadcast(x, root=ranks // 2)))
    return p


def turn(ranks: int) -> dt.Program:
    with dt.Program("turn", dt.Mesh(tp=ranks)) as p:
        x = p.input("x", (2 * ranks, 3), dt.f32, dt.Shard(0))
        p.output("y", dt.shift(dt.relu(x), by=ranks // 2))
    return p


def two_axes(ranks: int) -> dt.Program:
    """Rows gathered along one axis of the mesh, products added along the other."""
    with dt.Program("two_axes", dt.Mesh(dp=2, tp=ranks // 2)) as p:
        x = p.input("x", (3, ranks), dt.f32, (dt.Shard(0), dt.Shard(1)))
        w = p.weight("w", (ranks, 3), dt.f32, (dt.Replicate(), dt.Shard(0)))
        partial = dt.matmul(dt.all_gather(x, dim=0, axis="dp"), w)
        p.output("y", dt.all_reduce(partial, axis="tp"))
    return p


def compiled(program: dt.Program | dt.DeviceProgram, options: dt.Options) -> Executable | None:
    """None where the algorithm does not fit the program."""
    try:
        return dt.compile(program, options=options)
    except OptionError:
        return None


def judge(
    program: dt.Program | dt.DeviceProgram,
    executable: Executable,
    every: int,
    offset: int,
    seeds: Sequence[int],
) -> Tally:
    """Each `every`-th mutant: refused, or right in all of some orders."""
    tensors = [_tensors(executable, launch) for launch in range(LAUNCHES)]
    expected = list(_expected(program, executable, tensors))
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


def _expected(
    program: dt.Program | dt.DeviceProgram,
    executable: Executable,
    tensors: list[dict[str, torch.Tensor]],
) -> Iterator[dict[str, torch.Tensor]]:
    """What each launch gives and leaves: states go on from where the last launch left them."""
    held: dict[str, torch.Tensor] = {}
    for given in tensors:
        wanted = program.reference({**given, **held})
        held = {name: wanted[name] for name in executable.tensors(Role.STATE)}
        yield wanted


def _tensors(executable: Executable, launch: int) -> dict[str, torch.Tensor]:
    """Small integers, whose sums are exact; weights stay."""
    made: dict[str, torch.Tensor] = {}
    task = find_task_program(executable.stages.last)
    usual = {} if task is None else make_inputs(task, seed=launch)
    for role, seed in ((Role.INPUT, launch + 1), (Role.WEIGHT, 0)):
        generator = torch.Generator().manual_seed(seed)
        for name, spec in executable.tensors(role).items():
            if spec.kind is not Kind.FLOAT:  # places, ids, labels
                made[name] = usual[name]
                continue
            most = 8 if spec.dtype == dt.f32.name else 3
            whole = torch.randint(-most, most + 1, spec.shape, generator=generator)
            made[name] = whole.to(torch_dtype(spec.dtype))
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
            _same(got[name], want[name])
            for got, want in zip(run.outputs, expected, strict=True)
            for name in want
        )
        for run in runs
    )


def _same(got: torch.Tensor, want: torch.Tensor) -> bool:
    """Sums of integers are exact, what a softmax gives is not."""
    if not want.is_floating_point():
        return torch.equal(got, want)
    largest = want.abs().max().item() if want.numel() else 0.0
    return torch.allclose(got, want, rtol=1e-5, atol=1e-5 * largest)
