"""Input that nobody would write, for each way in: IR text, plan files, machines, words, calls.

A target takes a seed and what it draws from it must be taken, or refused by an error of ditron's.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, cast

import yaml

import ditron as dt
from ditron.analysis.report import prove
from ditron.analysis.symbols import find_task_program, kernels
from ditron.errors import DitronError
from ditron.plan.machine import load_machine
from ditron.plan.storage import from_bytes, to_bytes
from ditron.tools import opt
from tests.property.mutant_table import ag_gemm, gemm_ar, mlp, spread, two_axes

BOUND_S = 30
NUMBERS = (-1, 0, 1, 2, 3, 7, 255, 1 << 31, 1 << 40, 1 << 63, 1 << 70)
ODD = ("", " ", "\0", "é", "%", "{", "}", "<", ">", '"', "-", ".", "x", "a b", "0x", "1e9", "ß" * 9)
PASSES = (
    "infer-placements",
    "choose-algorithms",
    "lower-task-to-device",
    "fuse-tiles",
    "decompose-collectives",
    "order-tiles",
    "plan-memory",
    "schedule-tasks",
    "insert-signals",
    "elide-waits",
    "verify-delivery",
    "verify-race-free",
    "verify-deadlock-free",
    "lower-to-shmem",
)


@contextlib.contextmanager
def bounded() -> Generator[None]:
    """An input that takes longer is a hang."""

    def late(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError(f"takes more than {BOUND_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(BOUND_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def mangled(rng: random.Random, text: str) -> str:
    """A text with a few tokens dropped, repeated, swapped or replaced."""
    tokens = re.findall(r"\w+|\s+|[^\w\s]", text)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        i, j = (rng.randrange(max(len(tokens), 1)) for _ in range(2))
        match rng.randrange(6):
            case 0:
                del tokens[i : i + rng.choice([1, 1, 2, 9])]
            case 1:
                tokens[i:i] = tokens[i : i + rng.choice([1, 2, 9])]
            case 2 if tokens:
                tokens[i], tokens[j] = tokens[j], tokens[i]
            case 3:
                tokens[i : i + 1] = [rng.choice(ODD)]
            case _:
                numbers = [k for k, token in enumerate(tokens) if token.isdigit()]
                if numbers:
                    tokens[rng.choice(numbers)] = str(rng.choice(NUMBERS))
        tokens = tokens or [""]
    return "".join(tokens)


@cache
def stages() -> list[str]:
    """IR of every level, of some programs."""
    found: list[str] = []
    for make, ranks, algorithm in (
        (ag_gemm, 2, "mesh-push"),
        (ag_gemm, 3, "bruck"),
        (gemm_ar, 2, "two-shot-push"),
        (mlp, 2, None),
        (spread, 3, "tree"),
        (two_axes, 4, None),
    ):
        with dt.compile(make(ranks), options=dt.Options(algorithm=algorithm)) as exe:
            found += exe.stages.values()
    return found


def ir_text(seed: int, folder: Path) -> None:
    """`ditron-opt` on IR that is broken, with passes in any order."""
    rng = random.Random(seed)
    path = folder / "fuzz.mlir"
    path.write_text(mangled(rng, rng.choice(stages())), encoding="utf-8")
    first = rng.randrange(len(PASSES))
    passes = PASSES[first : first + rng.choice([0, 1, 3])] if seed % 5 else rng.sample(PASSES, 3)
    code, _, err = captured(lambda: opt.main([str(path), "-p", ",".join(passes)]))
    check_answer(code, err)


@cache
def plans() -> list[tuple[bytes, Any, Any]]:
    """Plan files, with the kernels and the program that they are proved with."""
    found: list[tuple[bytes, Any, Any]] = []
    for make in (ag_gemm, gemm_ar):
        with dt.compile(make(2), options=dt.Options(algorithm=None)) as exe:
            module = exe.stages.last
            found.append((to_bytes(exe.plan), kernels(module), find_task_program(module)))
    return found


def plan_file(seed: int) -> None:
    """Bytes of a plan file that are changed; a plan that can be read is proved or refused."""
    rng = random.Random(seed)
    whole, funcs, program = rng.choice(plans())
    data = bytearray(whole)
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = rng.randrange(len(data))
        match rng.randrange(4):
            case 0:
                data[at] = rng.randrange(256)
            case 1:
                del data[at : at + rng.choice([1, 4, 400])]
            case 2:
                data[at:at] = data[at : at + rng.choice([1, 4, 40])]
            case _:
                data[at] ^= 1 << rng.randrange(8)
        data = data or bytearray(b"\0")
    try:
        prove(from_bytes(bytes(data)), funcs, program)
    except DitronError as error:
        check_message(error)


@cache
def machines() -> list[str]:
    folder = Path(dt.__file__).parent / "machines"
    return [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.yaml"))]


def machine_file(seed: int, folder: Path) -> None:
    """A machine's YAML with tokens or values changed."""
    rng = random.Random(seed)
    text = rng.choice(machines())
    if rng.random() < 0.5:
        text = mangled(rng, text)
    else:
        known = yaml.safe_load(text)
        spoil(rng, known)
        text = yaml.safe_dump(known)
    path = folder / "fuzz.yaml"
    path.write_text(text, encoding="utf-8")
    try:
        load_machine(str(path))
    except DitronError as error:
        check_message(error)


def spoil(rng: random.Random, known: dict[str, Any]) -> None:
    """Change, drop or add something at any depth of named values."""
    key = rng.choice(list(known))
    inner = cast("object", known[key])
    if isinstance(inner, dict) and rng.random() < 0.7:
        spoil(rng, cast("dict[str, Any]", inner))
        return
    match rng.randrange(4):
        case 0:
            del known[key]
        case 1:
            known[rng.choice(ODD)] = known[key]
        case 2 if isinstance(inner, list):
            known[key] = [*cast("list[Any]", inner), rng.choice([*NUMBERS, *ODD])]
        case _:
            odd: list[Any] = [*NUMBERS, *ODD, None, [], {}, True, 0.5, float("nan")]
            known[key] = rng.choice(odd)


WORDS: tuple[str, ...] = (
    *("--set", "--emit", "--option", "--algorithm", "--tile", "--chunk-bytes", "--machine"),
    *("--target", "--json", "--check", "--seed", "--repeats", "--dump", "--help", "--trace"),
    *("m=8", "n=16", "k=4", "tp=2", "tp=0", "m=-1", "dtype=f16", "tp=1.5", "q=1", "m="),
    *("task", "device", "plan", "triton", "ring", "mesh-push", "8x8", "0x0", "9", "-1", "cpu"),
    *("sm_90", "h100x8", "workers=2", "workers=0", "up:tile=4x4", "*:tile=4x4", "order=natural"),
    *(str(number) for number in NUMBERS[6:]),
    *ODD,
)


def arguments(seed: int, files: Sequence[str]) -> None:
    """Words of the command line in any order; nothing is launched."""
    from ditron.tools.cli import app  # noqa: PLC0415 - after torch

    rng = random.Random(seed)
    command = rng.choice(["compile", "verify", "simulate", "explain", "doctor", "none"])
    words = [command, rng.choice(files), *rng.choices(WORDS, k=rng.choice([0, 1, 2, 3, 4, 6]))]
    if rng.random() < 0.2:
        rng.shuffle(words)

    def run() -> int:
        try:
            app(words, prog_name="ditron")
        except SystemExit as done:
            return done.code if isinstance(done.code, int) else 1
        return 0

    code, _, err = captured(run)
    check_answer(code, err)


def calls(seed: int) -> None:
    """Calls of the builder with values that fit, or do not."""
    rng = random.Random(seed)
    axes = rng.choice([{"tp": 2}, {"tp": 3}, {"dp": 2, "tp": 2}])
    if rng.random() < 0.05:
        axes = {rng.choice(["tp", *ODD]): rng.choice(NUMBERS)}
    name = rng.choice(ODD) if rng.random() < 0.05 else "p"
    try:
        with dt.Program(name, dt.Mesh(**axes)) as p:
            made = [p.input(f"x{i}", *drawn_spec(rng, len(axes))) for i in range(2)]
            for i in range(rng.choice([1, 2, 3])):
                made.append(drawn_call(rng, made))
                p.output(f"y{i}", made[-1])
        text = str(p.ir)
        assert text
    except DitronError as error:
        check_message(error)


def drawn_spec(rng: random.Random, axes: int) -> tuple[Any, Any, Any]:
    sizes = [4, 8, 8, 8] if rng.random() < 0.9 else NUMBERS
    shape = tuple(rng.choice(sizes) for _ in range(rng.choice([1, 2, 2, 2, 2, 2, 3])))
    dtypes = [dt.f32] * 9 + [dt.bf16, dt.i32, dt.bool, "f32", None]
    place = [drawn_placement(rng) for _ in range(axes if rng.random() < 0.95 else 3)]
    return shape, rng.choice(dtypes), place[0] if len(place) == 1 else tuple(place)


def drawn_placement(rng: random.Random) -> Any:
    if rng.random() < 0.05:
        return rng.choice([dt.Shard(-1), dt.Shard(5), 3, None])
    return rng.choice([dt.Replicate(), dt.Shard(0), dt.Shard(1)])


def drawn_call(rng: random.Random, made: Sequence[Any]) -> Any:
    x, y = (rng.choice([*made] * 4 + [2, 0.5, None, "x"]) for _ in range(2))
    dims: list[Any] = [0, 0, 1, 1, -1, 99, "a"]
    dtypes: list[Any] = [dt.f16, dt.i32, dt.bool, "f32"]
    dim, axis = rng.choice(dims), rng.choice([None, "tp", "tp", "dp", "q"])
    return rng.choice(
        [
            lambda: dt.matmul(x, y),
            lambda: dt.matmul(x, y, transpose_b=True),
            lambda: made[0] + y,
            lambda: dt.mul(x, y),
            lambda: dt.relu(x, name=rng.choice(["r", *ODD])),
            lambda: dt.cast(x, rng.choice(dtypes)),
            lambda: dt.all_gather(x, dim, axis),
            lambda: dt.reduce_scatter(x, dim, axis),
            lambda: dt.all_reduce(x, axis),
            lambda: dt.all_to_all(x, split_dim=dim, concat_dim=0, axis=axis),
            lambda: dt.broadcast(x, root=rng.choice(NUMBERS), axis=axis),
            lambda: dt.shift(x, by=rng.choice(NUMBERS), axis=axis),
            lambda: dt.redistribute(x, drawn_placement(rng)),
            lambda: dt.softmax(x),
            lambda: dt.reshape(x, (rng.choice(NUMBERS), 4)),
            lambda: dt.transpose(x, dim, 0),
        ]
    )()


def captured(run: Callable[[], int]) -> tuple[int, str, str]:
    """Exit code and what was printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run()
    return code, out.getvalue(), err.getvalue()


def check_answer(code: int, err: str) -> None:
    assert code in (0, 1, 2), code
    assert "Traceback" not in err
    assert err.strip() or code == 0


def check_message(error: DitronError) -> None:
    assert error.message.strip()
    assert "Traceback" not in error.message


def handles() -> set[str]:
    """Open files, and shared memory, of this process."""
    shared = os.listdir("/dev/shm") if sys.platform == "linux" else []
    return {*os.listdir("/proc/self/fd"), *shared} if sys.platform == "linux" else set()
