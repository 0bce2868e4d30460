"""What `ditron explain` does: which choices were made, what they should cost, and why.

Costs are those of the closed forms that chose; beside them the timeline engine plays the chosen
program and the program with the next best way.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from xdsl.dialects.builtin import ModuleOp

from ditron.analysis.symbols import find_task_program, task_program
from ditron.backends.simulate import simulate
from ditron.errors import OptionError
from ditron.ir import task
from ditron.ir.attrs import ChoiceAttr
from ditron.ir.locations import op_location
from ditron.passes.choices import Asked, Chooser, choice_of
from ditron.passes.play_choices import play_choices
from ditron.pipelines import first_passes
from ditron.plan.candidates import Priced, Question, answer, price, runner_up
from ditron.plan.cost import is_serial
from ditron.plan.machine import Machine, load_machine
from ditron.plan.options import SCHEDULERS, Options
from ditron.plan.prediction import NO_PREDICTION
from ditron.tools.loading import Source
from ditron.tools.show import columns, console, progress, short
from ditron.tools.simulate import check_ranks, lower, run_passes, show_us


@dataclass(frozen=True)
class Way:
    """The best candidate of one algorithm and transfer, times in us.

    `played_us` is what the timeline engine finds for the whole program; None where it was not
    asked.
    """

    choice: str
    overlapped_us: float
    in_turn_us: float
    compute_us: float
    transfer_us: float
    played_us: float | None = None


@dataclass(frozen=True)
class Explanation:
    """One op's choice and why.

    Attributes:
        op: its name.
        where: the user's line.
        choice: what was chosen.
        cost_us: expected, with the neighbours that it overlaps with.
        runner_up: the next best way.
        runner_up_us: its expected cost.
        until: by which change that would have won.
        overlap_from_rows: the fewest rows a rank at which overlapping beats one after another.
        ways: the best candidate of each way, the cheapest first.
    """

    op: str
    where: str
    choice: str
    cost_us: float | None
    runner_up: str
    runner_up_us: float | None
    until: str
    overlap_from_rows: int | None
    ways: list[Way]


@dataclass(frozen=True)
class Report:
    """All explanations of a program on a machine.

    `schedulers_us` is a launch by each scheduler, played; empty where ranks share cores, since all
    lanes of a rank take turns there.
    """

    program: str
    ranks: int
    machine: str
    ops: list[Explanation]
    schedulers_us: dict[str, float]


def explain(source: Source, machine: str, options: Options) -> Report:
    """Choose, and say why.

    Raises:
        OptionError: there is no task program, so there is nothing to choose.
    """
    program = find_task_program(source.module)
    if program is None:
        raise OptionError(f"{source.path} holds no task program: nothing is chosen for it")
    described = load_machine(machine)
    check_ranks(program.program_name, program.mesh.ranks, described)
    with progress(f"explaining {source.path.name} on {described.name}"):
        module = source.module.clone()
        run_passes(module, first_passes(options, machine))
        lines = [op_location(op) for op in _compute_ops(module)]
        chosen = module.clone()
        chooser = Chooser(task_program(chosen), described, options)
        chooser.run()
        play_choices(chosen, chooser, described, machine)
        asked: dict[task.ComputeOp, Asked] = {asked.op: asked for asked in chooser.asked}
        ops = [
            _explain(op, line, asked.get(op), _Player(chosen, machine, options))
            for op, line in zip(_compute_ops(chosen), lines, strict=True)
        ]
        policies = () if is_serial(described) else SCHEDULERS
        played = {
            p: _Player(chosen, machine, replace(options, scheduler=p)).play() for p in policies
        }
    return Report(program.program_name, program.mesh.ranks, described.name, ops, played)


def _compute_ops(module: ModuleOp) -> list[task.ComputeOp]:
    return [op for op in module.walk() if isinstance(op, task.ComputeOp)]


@dataclass(frozen=True)
class _Player:
    """Plays the chosen program, as it is or with one collective done another way."""

    chosen: ModuleOp
    machine: str
    options: Options

    def play(self, op: task.ComputeOp | None = None, choice: ChoiceAttr | None = None) -> float:
        module = self.chosen.clone()
        if op is not None:
            at = _compute_ops(self.chosen).index(op)
            _compute_ops(module)[at].choice = choice
        plan = lower(module, self.machine, self.options)
        return simulate(plan, load_machine(self.machine)).makespan_us


def _explain(op: task.ComputeOp, where: str, asked: Asked | None, player: _Player) -> Explanation:
    assert op.choice is not None
    prediction = op.choice.prediction
    ways: list[Way] = []
    rows = None
    if asked is not None:
        ways = _ways(asked, op, player)
        rows = overlap_from_rows(asked.machine, asked.question, asked.answers[0])
    return Explanation(
        op.label(),
        where,
        str(op.choice.plain),
        prediction.cost_ns / 1e3 if prediction.cost_ns else None,
        prediction.over,
        prediction.over_ns / 1e3 if prediction.over_ns else None,
        prediction.until,
        rows,
        ways,
    )


def _ways(asked: Asked, op: task.ComputeOp, player: _Player) -> list[Way]:
    """Each algorithm and transfer at its best, whatever the user fixed; two of them played."""
    question = asked.question
    open_ = replace(question.fixed, algorithm=None, transfer=None)
    answers = (asked.answers[0], *answer(asked.machine, replace(question, fixed=open_)))
    second = runner_up(answers)
    best: dict[str, Priced] = {}
    for one in answers:
        best.setdefault(one.candidate.way, one)
    reduces = question.adds
    found: list[Way] = []
    for one in best.values():
        candidate = one.candidate
        played = None
        near = second is not None and candidate.way == second.candidate.way
        same = candidate.library == answers[0].candidate.library  # else products' tiles differ
        if one is answers[0] or (near and same):
            played = player.play(op, choice_of(candidate, NO_PREDICTION, adds=reduces))
        told = candidate.tell(reduces=reduces, multiplies=bool(question.products))
        found.append(Way(told, **asdict(one.price), played_us=played))
    return found


def overlap_from_rows(machine: Machine, question: Question, best: Priced) -> int | None:
    """The fewest rows of a shard (1, 2, 4, ...) from which overlapping pays; None if it never does.

    Below, one launch after another is as good: what is moved or multiplied is too little to hide
    the signals.
    """
    if not question.products:
        return None
    rows = 1
    while rows <= 1 << 20:
        times = rows / max(question.shape[0], 1)
        products = tuple(replace(p, m=max(1, round(p.m * times))) for p in question.products)
        asked = replace(question, shape=(rows, question.shape[1]), products=products)
        found = price(machine, asked, best.candidate)
        if found is not None and found.overlapped_us < found.in_turn_us:
            return rows
        rows *= 2
    return None


def print_report(report: Report) -> None:
    """One paragraph an op."""
    out = console()
    title = f"[bold]{report.program}[/bold] on {report.ranks} ranks of machine {report.machine}"
    out.print(title)
    for op in report.ops:
        out.print(f"\n[bold]{op.op}[/bold]  {op.choice}  {short(op.where)}", markup=True)
        if op.cost_us is not None:
            out.print(f"  predicted {show_us(op.cost_us)} with what is beside it", markup=False)
        if op.runner_up_us is not None:
            out.print(f"  next best {op.runner_up}: {show_us(op.runner_up_us)}", markup=False)
        if op.until:
            out.print(f"  that would win with {op.until}", markup=False)
        if op.overlap_from_rows is not None and op.overlap_from_rows > 1:
            out.print(f"  overlapping pays from {op.overlap_from_rows} rows a rank", markup=False)
        if op.ways:
            out.print(_ways_table(op.ways), markup=False)
    if report.schedulers_us:
        out.print("\n[bold]schedulers[/bold], a launch played with each")
        rows = [(f"    {name}", show_us(us)) for name, us in report.schedulers_us.items()]
        out.print(columns(rows, ("    scheduler", "launch")), markup=False)


def _ways_table(ways: list[Way]) -> str:
    rows = [
        (
            f"    {way.choice}",
            show_us(way.overlapped_us),
            show_us(way.in_turn_us),
            show_us(way.compute_us),
            show_us(way.transfer_us),
            "" if way.played_us is None else show_us(way.played_us),
        )
        for way in ways
    ]
    names = ("    way", "overlapped", "in turn", "products", "moving", "program, played")
    return columns(rows, names)
