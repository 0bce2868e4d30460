"""AG+GEMM, GEMM+RS and GEMM+AR on CPU ranks, beside gloo + torch.mm and beside the products alone.

Then an all-reduce and an all-to-all of 8 MB a rank, beside gloo's and beside a copy of that.

    python -m benchmarks.overlap [--rounds 5] [--dtype f32] [M,N,K ...]

Both sides are measured in turns, some launches a round, and the medians of all launches are shown.
On a machine that others use too, wall times tell little: `core ms` is the CPU time of all ranks a
launch, which is what a quiet machine would take, times its cores.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import torch

import ditron as dt
from benchmarks.core_time import core_seconds, rank_pids
from benchmarks.gloo import WARM_UP, GlooRanks, Sizes
from ditron.ir import task
from ditron.tools.inputs import make_inputs

SHAPES = ((2048, 2048, 1024), (512, 1024, 1024), (4096, 256, 2048))
KINDS = ("ag", "rs", "ar")
ALONE = {"all_reduce": (2048, 1024, 0), "all_to_all": (8192, 1024, 0)}  # 8 MB a rank in float32
RANKS = 4
TORCH = {"f32": "float32", "bf16": "bfloat16"}


def program(s: Sizes, dtype: dt.DType = dt.f32) -> dt.Program:
    """The product with its collective: x is the input, w a weight that is bound once."""
    with dt.Program(s.kind, dt.Mesh(tp=s.ranks)) as p:
        if s.kind == "all_reduce":
            p.output("y", dt.all_reduce(p.input("x", (s.m, s.n), dtype, dt.Partial("sum"))))
            return p
        if s.kind == "all_to_all":
            x = p.input("x", (s.m, s.n), dtype, dt.Shard(0))
            p.output("y", dt.all_to_all(x, split_dim=1, concat_dim=0))
            return p
        gathers = s.kind == "ag"
        x = p.input("x", (s.m, s.k), dtype, dt.Shard(0 if gathers else 1))
        w = p.weight("w", (s.k, s.n), dtype, dt.Shard(1 if gathers else 0))
        if gathers:
            y = dt.matmul(dt.all_gather(x, dim=0), w)
        elif s.kind == "rs":
            y = dt.reduce_scatter(dt.matmul(x, w), dim=0)
        else:
            y = dt.all_reduce(dt.matmul(x, w))
        p.output("y", y)
    return p


def inputs_of(made: dt.Program) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """(seeded inputs, seeded weights)."""
    of = next(op for op in made.ir.ops if isinstance(op, task.ProgramOp))
    tensors = make_inputs(of, seed=0)
    weights = {name: tensors[name] for name in ("w",) if name in tensors}
    return {"x": tensors["x"]}, weights


@dataclass
class Figures:
    """Seconds a launch, and CPU seconds of all ranks."""

    wall: list[float] = field(default_factory=list[float])
    core: list[float] = field(default_factory=list[float])

    @property
    def wall_ms(self) -> float:
        return 1e3 * median(self.wall)

    @property
    def core_ms(self) -> float:
        return 1e3 * median(self.core)


class Ours:
    """One compiled program, ready to be measured a few launches at a time."""

    def __init__(
        self, sizes: Sizes, options: dt.Options | None = None, dtype: dt.DType = dt.f32
    ) -> None:
        made = program(sizes, dtype)
        self.executable = dt.compile(made, options=options)
        self._inputs, weights = inputs_of(made)
        self.executable.bind(weights)
        known = set(rank_pids())
        self.executable.measure(self._inputs, repeats=2)
        self._pids = [pid for pid in rank_pids() if pid not in known]
        self.figures = Figures()

    def measure(self, repeats: int) -> Figures:
        """Some launches more, one right after the other; the first ones warm up as gloo's do."""
        launches = WARM_UP + repeats
        before = core_seconds(self._pids)
        wall = self.executable.measure(self._inputs, repeats=launches)
        core = (core_seconds(self._pids) - before) / launches
        turn = Figures(wall[WARM_UP:], [core] * repeats)
        self.figures.wall += turn.wall
        self.figures.core += turn.core
        return turn

    def close(self) -> None:
        self.executable.close()


def compare(gloo: GlooRanks, sizes: Sizes, dtype: dt.DType, rounds: int) -> str:
    """One row of the table."""
    ours, theirs, alone = Ours(sizes, dtype=dtype), Figures(), Figures()
    for _ in range(rounds):
        ours.measure(5)
        found = gloo.measure(sizes, 5)
        theirs.wall += found.unfused
        theirs.core += found.core_s
        alone.wall += found.matmul_alone
    ours.close()
    mine = ours.figures
    name = f"{sizes.kind} {sizes.m},{sizes.n},{sizes.k}"
    return (
        f"{name:<20}{mine.wall_ms:10.2f}{theirs.wall_ms:10.2f}{alone.wall_ms:10.2f}"
        f"{theirs.wall_ms / mine.wall_ms:9.2f}x{mine.wall_ms / alone.wall_ms:9.2f}x"
        f"{mine.core_ms:10.2f}{theirs.core_ms:10.2f}{theirs.core_ms / mine.core_ms:9.2f}x\n"
    )


def parse_shapes(words: Sequence[str]) -> list[tuple[int, int, int]]:
    """`2048,2048,1024` as (M, N, K)."""
    found: list[tuple[int, int, int]] = []
    for word in words:
        m, n, k = (int(size) for size in word.split(","))
        found.append((m, n, k))
    return found


def main() -> None:
    """Print a row a case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("shapes", nargs="*")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtype", choices=sorted(TORCH), default="f32")
    args = parser.parse_args()
    dtype = {"f32": dt.f32, "bf16": dt.bf16}[args.dtype]
    out = sys.stdout
    out.write(
        f"{RANKS} ranks, {args.dtype}, milliseconds, medians\n"
        f"{'case':<20}{'ditron':>10}{'gloo+mm':>10}{'mm alone':>10}{'faster':>10}{'of mm':>10}"
        f"{'core ms':>10}{'gloo core':>10}{'less':>10}\n"
    )
    with GlooRanks(RANKS) as gloo:
        products = [(kind, s) for s in parse_shapes(args.shapes) or SHAPES for kind in KINDS]
        alone = [] if args.shapes else [*ALONE.items()]
        for kind, (m, n, k) in products + alone:
            sizes = Sizes(m, n, k, RANKS, kind, TORCH[args.dtype])
            out.write(compare(gloo, sizes, dtype, args.rounds))
            out.flush()


if __name__ == "__main__":
    main()
