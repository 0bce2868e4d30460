"""How much is lost by choosing with the cost model instead of trying everything.

    python -m benchmarks.choices [--by wall|core] [--take median|min] [--quick] [case ...]

For each case (such as `rs:512,1024,1024:f32`) every algorithm with every tile and reduce tile that
the machine file offers is compiled and measured for a few launches, and of the three best also
every chunk. The three that then lead are measured again, in turns with the program as ditron
compiles it, round after round; what is the same plan as that is not measured twice. Regret is how
much longer ditron's takes than the best of the four, by the medians of all launches of all rounds:
the best of four medians is a little low by chance, so regret errs upwards. `spread` is how far the
rounds' own medians of the winner lie apart: a regret below it says nothing. On a machine that
others use too, wall times do not repeat: `--by core` compares CPU time of all ranks, `--take min`
the best launches.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

import ditron as dt
from benchmarks.gloo import Sizes
from benchmarks.overlap import Figures, Ours, program
from ditron.ir import task
from ditron.passes.choices import Chooser
from ditron.plan.candidates import Candidate, Question, answer
from ditron.plan.machine import load_machine

CASES = (
    *(f"{kind}:2048,2048,1024:f32" for kind in ("ag", "rs", "ar")),
    *(f"{kind}:512,1024,1024:f32" for kind in ("ag", "rs", "ar")),
    *(f"{kind}:4096,256,2048:f32" for kind in ("ag", "rs", "ar")),
    *(f"{kind}:64,1024,2048:f32" for kind in ("ag", "rs", "ar")),
    *(f"{kind}:512,1024,1024:bf16" for kind in ("ag", "rs", "ar")),
    "ag:997,768,512:f32",
    "rs:1021,512,768:f32",
    "ar:128,4096,512:f32",
    "ag:1024,128,4096:bf16",
    "rs:8,2048,2048:f32",
)
QUICK = (3, 4, 5, 9, 10, 11)
RANKS = 4
TURN_S = 0.05
"""Each program's turn takes about that long, so that small ones get many launches."""

DTYPES = {"f32": dt.f32, "bf16": dt.bf16}


class Case:
    """One program, and what can be chosen for it."""

    def __init__(self, name: str) -> None:
        kind, shape, dtype = name.split(":")
        m, n, k = (int(size) for size in shape.split(","))
        self.name, self.dtype = name, DTYPES[dtype]
        self.sizes = Sizes(m, n, k, RANKS, kind)
        made = program(self.sizes, self.dtype).ir
        of = next(op for op in made.ops if isinstance(op, task.ProgramOp))
        chooser = Chooser(of, load_machine("cpu"), dt.Options())
        chooser.run()
        self.question: Question = chooser.asked[0].question

    def candidates(self) -> list[Candidate]:
        """All that differ in what really runs, chunks left as chosen by each way's best."""
        machine = load_machine("cpu")
        found: dict[tuple[object, ...], Candidate] = {}
        for tile in (*machine.tiles, machine.thin_tile or machine.tile):  # even those not weighed
            fixed = replace(self.question.fixed, tile=tile)
            for one in answer(machine, replace(self.question, fixed=fixed)):
                candidate = one.candidate
                found.setdefault((candidate.way, *self._tiles(candidate)), candidate)
        return list(found.values())

    def _tiles(self, one: Candidate) -> tuple[tuple[int, int], ...]:
        """Tiles no larger than what they cut."""
        rows, columns = self.question.shape
        product = self.question.products[0]
        tile = (min(one.tile[0], max(product.m, 1)), min(one.tile[1], max(product.n, 1)))
        if not self.question.adds:
            return (tile,)
        return (tile, (min(one.reduce_tile[0], max(rows, 1)), min(one.reduce_tile[1], columns)))

    def chunked(self, one: Candidate) -> list[Candidate]:
        """The same with every chunk that the machine file lists."""
        chunks = {
            other.candidate.chunk
            for other in answer(load_machine("cpu"), self.question)
            if other.candidate.way == one.way
        }
        return [replace(one, chunk=chunk) for chunk in sorted(chunks - {one.chunk})]

    def start(self, one: Candidate | None) -> Ours:
        """The program with a candidate's choices, or with ditron's own."""
        return Ours(self.sizes, None if one is None else self._options(one), self.dtype)

    def _options(self, one: Candidate) -> dt.Options:
        row_bytes = self.question.shape[1] * self.dtype.bytes
        moves = dt.OpOptions(f"{one.algorithm}-{one.transfer}", one.chunk * row_bytes)
        if self.question.adds:
            moves = replace(moves, tile=one.reduce_tile)
        return dt.Options(tile=one.tile, per_op={f"{self.question.kind}*": moves})


@dataclass(frozen=True)
class Measure:
    """What is compared: wall or CPU time, the median or the best of all launches."""

    by: str
    take: str
    rounds: int

    def of(self, figures: Figures) -> float:
        """The number of one program, in seconds."""
        values = figures.core if self.by == "core" else figures.wall
        return min(values) if self.take == "min" else median(values)


def screen(
    case: Case, candidates: Iterable[Candidate], measure: Measure
) -> list[tuple[float, Candidate]]:
    """Each candidate for a few launches, the best first."""
    found: list[tuple[float, Candidate]] = []
    for candidate in candidates:
        ours = case.start(candidate)
        ours.measure(4)
        ours.close()
        found.append((replace(measure, take="min").of(ours.figures), candidate))
    return sorted(found, key=lambda f: f[0])


def regret(case: Case, measure: Measure) -> tuple[float, str]:
    """(regret, a line that tells it)."""
    tried = screen(case, case.candidates(), measure)
    chunked = [c for _, one in tried[:3] for c in case.chunked(one)]
    tried = sorted([*tried, *screen(case, chunked, measure)], key=lambda f: f[0])
    own = case.start(None)
    running, told = [own], [_chosen(own)]
    for _, candidate in tried[:3]:
        other = case.start(candidate)
        if _runs(other) == _runs(own):
            other.close()
            continue
        running.append(other)
        told.append(_tell(case, candidate))
    launches = max(3, round(TURN_S / tried[0][0]))
    rounds: list[list[float]] = [[] for _ in running]
    for turn in range(measure.rounds):
        for i in ((turn + k) % len(running) for k in range(len(running))):
            rounds[i].append(measure.of(running[i].measure(launches)))
    for ours in running:
        ours.close()
    times = [measure.of(ours.figures) for ours in running]
    best = min(times)
    lost, winner = times[0] / best - 1, times.index(best)
    spread = max(rounds[winner]) / min(rounds[winner]) - 1
    line = (
        f"{case.name:<24}{len(tried):6}{1e3 * times[0]:10.2f}{1e3 * best:10.2f}{100 * lost:8.1f} %"
        f"{100 * spread:8.1f} %  {told[0]}  |  {told[winner] if winner else 'as chosen'}\n"
    )
    return lost, line


def _chosen(ours: Ours) -> str:
    """What ditron wrote on the ops, without what it predicts."""
    text = ours.executable.stages["02-choose-algorithms"]
    return ", ".join(re.findall(r"#task\.choice<(.*?)(?: cost_ns.*?)?>", text))


def _runs(ours: Ours) -> str:
    """What is executed: the last stage but for its task program."""
    return list(ours.executable.stages.values())[-1].partition("core.func")[2]


def _tell(case: Case, one: Candidate) -> str:
    return one.tell(reduces=case.question.adds, multiplies=True)


def main(words: Sequence[str] | None = None) -> None:
    """Print a line a case, then the median and the worst."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--by", choices=("wall", "core"), default="wall")
    parser.add_argument("--take", choices=("median", "min"), default="median")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="six small cases")
    args = parser.parse_args(words)
    names = args.cases or ([CASES[i] for i in QUICK] if args.quick else CASES)
    out = sys.stdout
    measure = Measure(args.by, args.take, args.rounds)
    out.write(f"{RANKS} ranks, milliseconds of {args.by} time, {args.take} of the launches\n")
    heads = "".join(f"{head:>10}" for head in ("chosen", "best", "regret", "spread"))
    out.write(f"{'case':<24}{'tried':>6}{heads}  choice | best\n")
    lost: list[float] = []
    for name in names:
        one, line = regret(Case(name), measure)
        lost.append(one)
        out.write(line)
        out.flush()
    out.write(f"regret: median {100 * median(lost):.1f} %, worst {100 * max(lost):.1f} %\n")


if __name__ == "__main__":
    main()
