"""`ditron`: compile, prove, run and look at programs from the command line.

Exit codes: 0 done, 1 the program is wrong or a check failed, 2 bad usage, 130 interrupted. Errors
go to standard error, one message each, with the user's `file:line` and no traceback.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, ParamSpec

import typer
from xdsl.utils.exceptions import DiagnosticException, ParseError

from ditron.errors import DitronError, MachineError, OptionError, ProofError
from ditron.ir.frontend import describe_fault
from ditron.tools.doctor import can_run, doctor_data, examine, print_doctor
from ditron.tools.flags import (
    Algorithm,
    ChunkBytes,
    File,
    Json,
    Level,
    Machine,
    Option,
    Set,
    Target,
    Tile,
)

P = ParamSpec("P")

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Tensor programs on many devices: overlapped, proved right, then run.",
)


def command(body: Callable[P, int]) -> Callable[P, None]:
    """Register a command whose body returns an exit code; its errors become messages."""

    @functools.wraps(body)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        raise typer.Exit(_guard(lambda: body(*args, **kwargs)))

    # Typer reads the signature: that of the body, but for what it returns.
    guarded.__annotations__ = {**body.__annotations__, "return": None}
    app.command(body.__name__.removesuffix("_"))(guarded)
    return guarded


def _guard(body: Callable[[], int]) -> int:
    try:
        return body()
    except KeyboardInterrupt:
        return 130
    except (ParseError, DiagnosticException) as error:
        return _fail(1, describe_fault(error))
    except DitronError as error:
        usage = isinstance(error, OptionError | MachineError)
        return _fail(2 if usage else 1, f"{error.where or 'ditron'}: error: {error.message}")


def _fail(code: int, message: str) -> int:
    sys.stdout.flush()
    sys.stderr.write(message.rstrip() + "\n")
    return code


def _print_json(data: object) -> None:
    sys.stdout.write(json.dumps(data, indent=2, default=str) + "\n")


@command
def run(  # noqa: PLR0913 - one parameter a flag
    file: File,
    *,
    set_: Set = None,
    check: Annotated[bool, typer.Option("--check", help="compare with float64")] = False,
    inputs: Annotated[Path | None, typer.Option(help="a safetensors file")] = None,
    seed: Annotated[int, typer.Option(help="of the random inputs")] = 0,
    repeats: Annotated[int, typer.Option(min=0, help="measured launches")] = 5,
    trace: Annotated[Path | None, typer.Option(help="write a Chrome trace of one launch")] = None,
    target: Target = "cpu",
    machine: Machine = None,
    algorithm: Algorithm = None,
    chunk_bytes: ChunkBytes = None,
    tile: Tile = None,
    option: Option = None,
    as_json: Json = False,
) -> int:
    """Compile, prove and run FILE on this machine; with --check, compare with float64."""
    # Torch takes 1.3 s to import: not for --help, nor for a misspelt flag.
    from ditron.tools import execute, report  # noqa: PLC0415
    from ditron.tools.loading import load  # noqa: PLC0415
    from ditron.tools.settings import make_options  # noqa: PLC0415

    named = {"algorithm": algorithm, "chunk_bytes": chunk_bytes, "tile": tile}
    options = make_options(option or [], named)
    source = load(file, set_ or [])
    request = execute.RunRequest(check, inputs, seed, repeats, trace)
    with execute.build(source, target, machine, options) as executable:
        result = execute.run(source, executable, request)
    if as_json:
        _print_json(report.run_data(result))
    else:
        report.print_run(result, request)
    return 0 if result.agrees else 1


@command
def compile_(  # noqa: PLR0913 - one parameter a flag
    file: File,
    *,
    emit: Annotated[Level, typer.Option(help="the level to print")] = Level.DEVICE,
    dump: Annotated[Path | None, typer.Option(help="a folder: one file per pass")] = None,
    set_: Set = None,
    target: Target = "cpu",
    machine: Machine = None,
    algorithm: Algorithm = None,
    chunk_bytes: ChunkBytes = None,
    tile: Tile = None,
    option: Option = None,
    as_json: Json = False,
) -> int:
    """Compile and prove FILE, and print the last stage at a level."""
    from ditron.tools import execute, report  # noqa: PLC0415
    from ditron.tools.loading import load  # noqa: PLC0415
    from ditron.tools.settings import make_options  # noqa: PLC0415

    named = {"algorithm": algorithm, "chunk_bytes": chunk_bytes, "tile": tile}
    options = make_options(option or [], named)
    source = load(file, set_ or [])
    with execute.build(source, target, machine, options) as executable:
        if dump is not None:
            execute.dump_stages(executable, dump)
        if emit is Level.PLAN:
            report.print_plan(executable.plan, as_json=as_json)
        elif as_json:
            _print_json({"level": emit, "text": execute.emit(executable, emit)})
        else:
            sys.stdout.write(execute.emit(executable, emit).rstrip() + "\n")
    return 0


@command
def verify(  # noqa: PLR0913 - one parameter a flag
    file: File,
    *,
    set_: Set = None,
    target: Target = "cpu",
    machine: Machine = None,
    option: Option = None,
    svg: Annotated[Path | None, typer.Option(help="where to draw a counterexample")] = None,
    cache: Annotated[Path | None, typer.Option(help="a folder that keeps proofs")] = None,
    as_json: Json = False,
) -> int:
    """Prove FILE, and run nothing; exit 1 with a counterexample where a proof fails."""
    from ditron.analysis.proof_cache import FOLDER  # noqa: PLC0415
    from ditron.tools import execute, report  # noqa: PLC0415
    from ditron.tools.loading import load  # noqa: PLC0415
    from ditron.tools.settings import make_options  # noqa: PLC0415

    options = make_options(option or [])
    if cache is not None:
        os.environ[FOLDER] = str(cache)
    try:
        source = load(file, set_ or [])
        proofs = execute.verify(source, target, machine, options)
    except ProofError as error:
        if svg is not None:
            report.write_picture(error, svg)
        if not as_json:
            raise
        _print_json(report.failure_data(error))
        return 1
    if as_json:
        _print_json(report.proof_data(proofs))
    else:
        sys.stdout.write(f"{proofs}\n")
    return 0


@command
def simulate(  # noqa: PLR0913 - one parameter a flag
    file: File,
    *,
    set_: Set = None,
    machine: Annotated[str, typer.Option(help="a machine's name or YAML file")] = "cpu",
    trace: Annotated[Path | None, typer.Option(help="write a Chrome trace")] = None,
    algorithm: Algorithm = None,
    chunk_bytes: ChunkBytes = None,
    tile: Tile = None,
    option: Option = None,
    as_json: Json = False,
) -> int:
    """Predict a launch of FILE on a machine that need not be there."""
    from ditron.backends.simulate import write_timeline  # noqa: PLC0415
    from ditron.tools import simulate as simulation  # noqa: PLC0415
    from ditron.tools.loading import load  # noqa: PLC0415
    from ditron.tools.settings import make_options  # noqa: PLC0415

    named = {"algorithm": algorithm, "chunk_bytes": chunk_bytes, "tile": tile}
    options = make_options(option or [], named)
    result = simulation.run_simulation(load(file, set_ or []), machine, options)
    if trace is not None:
        write_timeline(trace, result.plan, result.timeline)
    if as_json:
        _print_json(simulation.simulation_data(result))
    else:
        simulation.print_simulation(result)
    return 0


@command
def explain(  # noqa: PLR0913 - one parameter a flag
    file: File,
    *,
    set_: Set = None,
    machine: Annotated[str, typer.Option(help="a machine's name or YAML file")] = "cpu",
    algorithm: Algorithm = None,
    chunk_bytes: ChunkBytes = None,
    tile: Tile = None,
    option: Option = None,
    as_json: Json = False,
) -> int:
    """Say what is chosen for FILE on a machine, what it should cost, and what else there is."""
    from ditron.tools import explain as explanation  # noqa: PLC0415
    from ditron.tools.loading import load  # noqa: PLC0415
    from ditron.tools.settings import make_options  # noqa: PLC0415

    named = {"algorithm": algorithm, "chunk_bytes": chunk_bytes, "tile": tile}
    options = make_options(option or [], named)
    report = explanation.explain(load(file, set_ or []), machine, options)
    if as_json:
        _print_json(asdict(report))
    else:
        explanation.print_report(report)
    return 0


@command
def generate(  # noqa: PLR0913 - one parameter a flag
    folder: Annotated[Path, typer.Argument(help="config.json, and *.safetensors for weights")],
    *,
    ids: Annotated[str | None, typer.Option(help="the prompt's tokens: 1,2,3")] = None,
    prompt: Annotated[str | None, typer.Option(help="the prompt, for tokenizer.json")] = None,
    new_tokens: Annotated[int, typer.Option(min=1, help="how many to add")] = 32,
    tp: Annotated[int, typer.Option(min=1, help="ranks")] = 1,
    ctx: Annotated[int, typer.Option(min=1, help="places of the cache")] = 128,
    random: Annotated[int | None, typer.Option(metavar="SEED", help="make weights up")] = None,
    prefill: Annotated[bool, typer.Option("--prefill", help="the prompt in one launch")] = False,
    target: Target = "cpu",
    machine: Machine = None,
    option: Option = None,
    as_json: Json = False,
) -> int:
    """Continue a prompt greedily with the Qwen3 or Llama 3 model in FOLDER."""
    from ditron.tools import generate as generation  # noqa: PLC0415
    from ditron.tools.settings import make_options  # noqa: PLC0415

    request = generation.GenerateRequest(folder, ids, prompt, new_tokens, tp, ctx, random, prefill)
    found = generation.generate(request, target, machine, make_options(option or []))
    if as_json:
        _print_json(generation.generated_data(found))
    else:
        generation.print_generated(found)
    return 0


@command
def doctor(*, as_json: Json = False) -> int:
    """Say what this machine can run, and what is missing for the rest."""
    findings = examine()
    if as_json:
        _print_json(doctor_data(findings))
    else:
        print_doctor(findings)
    return 0 if can_run(findings, "cpu") else 1


def main() -> None:
    """The console script."""
    app(prog_name="ditron")


if __name__ == "__main__":
    main()
