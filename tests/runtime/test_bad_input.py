"""Bad input, through Python and through the command line.

Each mistake is one line that says what was expected, what came, where and what to do: an error of
its own class from Python, exit code 1 (the program is wrong) or 2 (bad usage) from the command
line, no traceback, and nothing left running or in shared memory.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import alive
from typer.testing import CliRunner

import ditron as dt
from ditron.errors import (
    DitronError,
    DTypeError,
    InputError,
    LaunchError,
    MachineError,
    MeshError,
    OptionError,
    PlacementError,
    PlanError,
    ProgramError,
    ShapeError,
)
from ditron.executable import Executable
from ditron.tools.cli import app

S0, S1, R = dt.Shard(0), dt.Shard(1), dt.Replicate()
X, W = torch.ones(8, 4), torch.ones(4, 6)

Expected = tuple[type[DitronError], str]


def wrong(value: object) -> Any:
    """Something that the types do not let pass."""
    return value


def good(tp: int = 2) -> dt.Program:
    with dt.Program("p", dt.Mesh(tp=tp)) as p:
        x = p.input("x", (8, 4), dt.f32, S0)
        w = p.weight("w", (4, 6), dt.f32, R)
        p.output("y", dt.matmul(dt.all_gather(x, dim=0), w, name="up"))
    return p


def compiled(**options: object) -> Executable:
    return dt.compile(good(), options=dt.Options(**wrong(options)))


def one_line(text: str) -> bool:
    return len(text.strip().splitlines()) == 1 and "Traceback" not in text


# What compile() is given.
COMPILE: dict[str, tuple[Expected, Callable[[], object]]] = {
    "no program": (
        (ProgramError, "compile takes a .*Program.*, got None"),
        lambda: dt.compile(wrong(None)),
    ),
    "a path": (
        (ProgramError, "compile takes a .*Program.*, got 'prog.py'"),
        lambda: dt.compile(wrong("prog.py")),
    ),
    "a function": (
        (ProgramError, "compile takes a .*Program.*, got <function"),
        lambda: dt.compile(wrong(good)),
    ),
    "unopened": (
        (ProgramError, r"has not been opened: use `with`"),
        lambda: dt.compile(dt.Program("q", dt.Mesh(tp=2))),
    ),
    "target": ((OptionError, "no target 'tpu'; there is cpu"), lambda: dt.compile(good(), "tpu")),
    "machine": (
        (MachineError, "no machine 'h100x9'; there are cpu, .*or give a .yaml file"),
        lambda: dt.compile(good(), machine="h100x9"),
    ),
    "machine of another target": (
        (OptionError, "machine h100x8 is for target cuda, not cpu"),
        lambda: dt.compile(good(), machine="h100x8"),
    ),
    "machine file": (
        (MachineError, "cannot read machine file /none.yaml: No such file"),
        lambda: dt.compile(good(), machine="/none.yaml"),
    ),
    "per_op": (
        (OptionError, r"per_op\['dwon'\] is the name of no op; there are all_gather, up"),
        lambda: compiled(
            per_op={"up": dt.OpOptions(tile=(2, 2)), "dwon": dt.OpOptions(tile=(2, 2))}
        ),
    ),
    "more tasks than a plan holds": (
        (PlanError, "grid @matmul has .* tasks, a plan holds at most .*larger tiles"),
        lambda: dt.compile(_gathered(1 << 40)),
    ),
    "a tensor beyond all memory": (
        (ShapeError, "of shape 1099511627776x4096 has more than 2.48 elements"),
        lambda: _gathered(1 << 40, 1 << 12),
    ),
    "too many ranks": (
        (OptionError, r"Mesh\(tp=300\) has 300 ranks, machine cpu at most 256"),
        lambda: dt.compile(good(300)),
    ),
    "options of another type": (
        (OptionError, "options are dt.Options.*, got .*workers"),
        lambda: dt.compile(good(), options=wrong({"workers": 2})),
    ),
    "in place where it cannot be": (
        (OptionError, "cannot be done in place: .*; choose a push instead"),
        lambda: dt.compile(_gathered_output(), options=dt.Options(algorithm="mesh-in-place")),
    ),
}


def _gathered(m: int, k: int = 4) -> dt.Program:
    with dt.Program("p", dt.Mesh(tp=2)) as p:
        x = dt.all_gather(p.input("x", (m, k), dt.f32, S0), dim=0)
        p.output("y", dt.matmul(x, p.input("w", (k, 4), dt.f32, R)))
    return p


def _gathered_output() -> dt.Program:
    with dt.Program("p", dt.Mesh(tp=2)) as p:
        p.output("y", dt.all_gather(p.input("x", (8, 4), dt.f32, S0), dim=0))
    return p


@pytest.mark.parametrize("what", COMPILE)
def test_compile_refuses(what: str) -> None:
    (kind, message), call = COMPILE[what]
    with pytest.raises(DitronError, match=message) as caught:
        call()
    assert type(caught.value) is kind
    assert one_line(str(caught.value))


OPTIONS: dict[str, tuple[dict[str, object], str]] = {
    "algorithm": ({"algorithm": "magic"}, "no collective has an algorithm 'magic'; there are"),
    "transfer": ({"algorithm": "ring-in-place"}, "no collective has an algorithm 'ring-in-place'"),
    "algorithm's type": ({"algorithm": 3}, "algorithm .*got 3"),
    "chunk_bytes": ({"chunk_bytes": 0}, "chunk_bytes is at least 1, got 0"),
    "chunk_bytes' type": ({"chunk_bytes": "a"}, "chunk_bytes .*got 'a'"),
    "tile": ({"tile": (0, 4)}, r"tile is two positive sizes such as \(128, 256\), got \(0, 4\)"),
    "tile of three": ({"tile": (1, 2, 3)}, r"tile is two positive sizes .*got \(1, 2, 3\)"),
    "tile's type": ({"tile": 5}, "tile is two positive sizes .*got 5"),
    "tile of fractions": ({"tile": (1.5, 2)}, r"tile is two positive sizes .*got \(1.5, 2\)"),
    "workers": ({"workers": 0}, "workers is at least 1, got 0"),
    "workers' type": ({"workers": "2"}, "workers .*got '2'"),
    "copy_lanes": ({"copy_lanes": -1}, "copy_lanes is at least 1, got -1"),
    "copy_lanes of fractions": ({"copy_lanes": 1.5}, "copy_lanes .*got 1.5"),
    "order": ({"order": "random"}, 'order is "natural" or "arrival", got \'random\''),
    "wait_bound_s": ({"wait_bound_s": 0}, "wait_bound_s is positive, got 0"),
    "wait_bound_s no number": ({"wait_bound_s": float("nan")}, "wait_bound_s .*got nan"),
    "deterministic": ({"deterministic": False}, "deterministic=False is not supported yet"),
    "per_op's type": ({"per_op": {"up": {"tile": (2, 2)}}}, "per_op.*OpOptions.*got dict"),
}


@pytest.mark.parametrize("what", OPTIONS)
def test_options_refuse(what: str) -> None:
    options, message = OPTIONS[what]
    with pytest.raises(OptionError, match=message) as caught:
        compiled(**options)
    assert one_line(str(caught.value))


# Mistakes in a program, as the body of its block; each is also a file for the command line.
PROGRAMS: dict[str, tuple[Expected, str]] = {
    "shape": ((ShapeError, "x's dim 1 is 4, but v's dim 0 is 5"), "dt.matmul(x, v)"),
    "negative size": (
        (ShapeError, "negative size in shape \\(-1, 4\\)"),
        'p.input("z", (-1, 4), dt.f32, dt.Replicate())',
    ),
    "placement": (
        (PlacementError, "all_gather\\(dim=1\\) needs x shard\\(1\\), but it is shard\\(0\\)"),
        "dt.all_gather(x, dim=1)",
    ),
    "placement of a product": (
        (PlacementError, "use all_gather\\(x, dim=0\\) or all_gather\\(u, dim=1\\)"),
        "dt.matmul(x, u)",
    ),
    "placement that is none": (
        (PlacementError, "Shard\\(dim\\), Replicate\\(\\) or Partial\\(\\), got 'S0'"),
        'p.input("z", (4, 4), dt.f32, "S0")',
    ),
    "partial weight": (
        (PlacementError, "cannot be .*partial.*pass the sum"),
        'p.weight("z", (4, 4), dt.f32, dt.Partial())',
    ),
    "shard of no dimension": (
        (PlacementError, 'input "z" is shard\\(2\\), but its shape has 2 dimensions'),
        'p.input("z", (4, 4), dt.f32, dt.Shard(2))',
    ),
    "dtype": (
        (DTypeError, "x f32 and h f16: dtypes must agree; cast one of them"),
        "x + h",
    ),
    "unknown dtype": (
        (DTypeError, "'f32' is no dtype of a program; expected one of dt.f32, dt.bf16"),
        'p.input("z", (4, 4), "f32", dt.Replicate())',
    ),
    "integers in a product": (
        (DTypeError, "matmul takes float dtypes, got i32"),
        "dt.matmul(i, i)",
    ),
    "axis": (
        (MeshError, "Mesh\\(tp=2\\) has no axis 'dp'; it has tp"),
        'dt.all_gather(x, dim=0, axis="dp")',
    ),
    "no ranks": ((MeshError, "mesh axis 'tp' needs a size of at least 1, got 0"), "dt.Mesh(tp=0)"),
    "dim": (
        (ShapeError, "all_gather: dim 2 is out of range, expected -2 to 1"),
        "dt.all_gather(x, dim=2)",
    ),
    "name twice": (
        (ProgramError, 'input "x": the name belongs to input "x" of'),
        'p.input("x", (4, 4), dt.f32, dt.Replicate())',
    ),
    "number": ((ProgramError, "mul takes values of a program, got 2.0"), "x * 2.0"),
}

FILE = """\
import ditron as dt


def program(tp=2):
    with dt.Program("p", dt.Mesh(tp=tp)) as p:
        x = p.input("x", (8, 4), dt.f32, dt.Shard(0))
        u = p.input("u", (4, 4), dt.f32, dt.Shard(1))
        v = p.input("v", (5, 4), dt.f32, dt.Replicate())
        h = p.input("h", (8, 4), dt.f16, dt.Shard(0))
        i = p.input("i", (4, 4), dt.i32, dt.Replicate())
        BODY
        p.output("y", x)
    return p
"""
LINE = 1 + FILE[: FILE.index("BODY")].count("\n")

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run() -> Run:
    """The command line in this process."""

    def invoke(*arguments: object) -> tuple[int, str, str]:
        result = CliRunner().invoke(app, [str(a) for a in arguments])
        unexpected = result.exception
        assert unexpected is None or isinstance(unexpected, SystemExit), repr(unexpected)
        return result.exit_code, result.stdout, result.stderr

    return invoke


def write(folder: Path, body: str = "pass", name: str = "prog.py") -> Path:
    path = folder / name
    path.write_text(FILE.replace("BODY", body))
    return path


@pytest.mark.parametrize("what", PROGRAMS)
def test_a_wrong_program_from_python(what: str, tmp_path: Path) -> None:
    (kind, message), body = PROGRAMS[what]
    path = write(tmp_path, body)
    scope: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    with pytest.raises(DitronError, match=message) as caught:
        scope["program"]()
    assert type(caught.value) is kind
    assert caught.value.where == f"{path}:{LINE}"
    assert one_line(str(caught.value))


@pytest.mark.parametrize("what", PROGRAMS)
def test_a_wrong_program_from_the_command_line(run: Run, what: str, tmp_path: Path) -> None:
    (_, message), body = PROGRAMS[what]
    path = write(tmp_path, body)
    code, out, err = run("verify", path)
    assert (code, out) == (1, "")
    assert err.startswith(f"{path}:{LINE}: error: ")
    assert re.search(message, err)
    assert one_line(err)


@pytest.fixture(scope="module")
def executable() -> Generator[Executable]:
    with dt.compile(good()) as made:
        made.bind({"w": W})
        made.run({"x": X})
        yield made


# What an executable is given.
INPUTS: dict[str, tuple[str, Callable[[Executable], object]]] = {
    "missing": ('program "p" takes inputs x; missing: x', lambda e: e.run({})),
    "unknown": ("takes inputs x; missing: none, unknown: z", lambda e: e.run({"x": X, "z": X})),
    "a weight": ("takes inputs x; missing: none, unknown: w", lambda e: e.run({"x": X, "w": W})),
    "shape": (
        r'input "x" should have shape \(8, 4\) and dtype torch.float32, got \(4, 6\) and',
        lambda e: e.run({"x": W}),
    ),
    "dtype": ("got .* torch.float16", lambda e: e.run({"x": X.half()})),
    "array": ("should be a torch tensor, got ndarray", lambda e: e.run({"x": wrong(X.numpy())})),
    "tensor alone": ("inputs .*by name.*got .*Tensor", lambda e: e.run(wrong(X))),
    "nothing": ("inputs .*by name.*got .*None", lambda e: e.run(wrong(None))),
    "meta": ('input "x" .*(cpu|CPU|strided|meta)', lambda e: e.run({"x": X.to("meta")})),
    "sparse": ('input "x" .*(strided|sparse)', lambda e: e.run({"x": X.to_sparse()})),
    "unknown weight": ("takes weights w.*unknown: v", lambda e: e.bind({"v": W})),
    "weight's shape": (r'weight "w" should have shape \(4, 6\)', lambda e: e.bind({"w": X})),
    "weights alone": ("weights .*by name.*got .*Tensor", lambda e: e.bind(wrong(W))),
    "output": ("no output 'z'; there is y", lambda e: e.local("z", 0)),
    "rank": ("rank 2.*(0 to 1|2 ranks)", lambda e: e.local("y", 2)),
    "negative rank": ("rank -1.*(0 to 1|2 ranks)", lambda e: e.local("y", -1)),
    "trace": ("cannot write /none/trace.json", lambda e: e.trace("/none/trace.json")),
    "trace to a folder": ("cannot write /tmp", lambda e: e.trace("/tmp")),
    "repeats": ("at least one repeat, got 0", lambda e: e.measure({"x": X}, 0)),
    "half a repeat": ("repeat.*got 2.5", lambda e: e.measure({"x": X}, wrong(2.5))),
}


@pytest.mark.parametrize("what", INPUTS)
def test_an_executable_refuses_and_stays_usable(executable: Executable, what: str) -> None:
    message, call = INPUTS[what]
    expected = executable.run({"x": X})["y"]
    with pytest.raises((InputError, OptionError), match=message) as caught:
        call(executable)
    assert one_line(str(caught.value))
    assert executable.run({"x": X})["y"].equal(expected)


def test_weights_come_first() -> None:
    with dt.compile(good()) as fresh, pytest.raises(InputError, match="bind w first") as caught:
        fresh.run({"x": X})
    assert one_line(str(caught.value))


def test_a_stage_that_is_none(executable: Executable) -> None:
    with pytest.raises(KeyError, match="no stage '99-magic'; there are 00-input, "):
        _ = executable.stages["99-magic"]


GOOD_IR = """\
task.program @p mesh #task.mesh<tp = 2> {
  %x = task.input "x" : !task.tensor<8x4xf32, [shard(0)]>
  %g = task.all_gather %x dim 0 axis "tp"
    : !task.tensor<8x4xf32, [shard(0)]> -> !task.tensor<8x4xf32, [replicate]>
  task.output "y", %g : !task.tensor<8x4xf32, [replicate]>
}
"""

FILES: dict[str, tuple[str, bytes, int, str]] = {
    "nothing": ("a.mlir", b"", 1, "a.mlir:1:1: error: "),
    "prose": ("a.mlir", b"hello world", 1, "a.mlir:1:.*hello is not registered"),
    "cut off": ("a.mlir", GOOD_IR[:150].encode(), 1, r"a.mlir:\d+:\d+: error: "),
    "no text": ("a.mlir", bytes(range(256)), 2, "cannot read .*a.mlir"),
    "no program": ("a.mlir", b"builtin.module {}", 2, "a.mlir holds no task.program"),
    "nested": ("a.mlir", b"builtin.module {" * 3000, 1, "a.mlir:.*error: "),
    "unknown op": ("a.mlir", GOOD_IR.replace("all_gather", "gather").encode(), 1, "a.mlir:3:"),
    "bad mesh": ("a.mlir", GOOD_IR.replace("= 2", "= 0").encode(), 1, "size of at least 1, got 0"),
    "other axis": ("a.mlir", GOOD_IR.replace('"tp"', '"dp"').encode(), 1, "has no axis 'dp'"),
    "bad shard": ("a.mlir", GOOD_IR.replace("shard(0)", "shard(3)").encode(), 1, "is shard"),
    "bad dim": ("a.mlir", GOOD_IR.replace("dim 0", "dim 3").encode(), 1, "dims are 0 to 1"),
    "undefined": ("a.mlir", GOOD_IR.replace("%x dim", "%z dim").encode(), 1, "not defined: .%z"),
    "syntax": ("a.py", b"def program(:\n", 1, "a.py:1: error: invalid syntax"),
    "nul": ("a.py", b"\0", 1, r"a.py(:\d+)?: error: (ValueError: )?source code .* null"),
    "raises": ("a.py", b"def program():\n    raise OSError('a\\nb')\n", 1, "a.py:2: error: OSErr"),
    "import": ("a.py", b"import no_such_module\n", 1, "a.py:1: error: ModuleNotFoundError"),
    "no function": ("a.py", b"x = 1\n", 2, r"defines no program\(\)"),
    "returns nothing": ("a.py", b"def program(): pass\n", 2, "returned NoneType, expected"),
    "no output": (
        "a.py",
        b"import ditron as dt\ndef program():\n    with dt.Program('p', dt.Mesh(tp=2)): pass\n",
        1,
        r"a.py:3: error: program \"p\" has no output",
    ),
    "unopened": (
        "a.py",
        b"import ditron as dt\ndef program():\n    return dt.Program('p', dt.Mesh(tp=2))\n",
        1,
        r"a.py:\d: error: program \"p\" has not been opened",
    ),
}


@pytest.mark.parametrize("what", FILES)
def test_a_bad_file(run: Run, what: str, tmp_path: Path) -> None:
    name, content, expected, message = FILES[what]
    (tmp_path / name).write_bytes(content)
    code, out, err = run("verify", tmp_path / name)
    assert (code, out) == (expected, "")
    assert re.search(message, err), err
    assert "Traceback" not in err
    if name.endswith(".py"):
        assert one_line(err)


USAGE: dict[str, tuple[list[str], str]] = {
    "no such file": (["verify", "none.py"], "cannot read none.py: no such file"),
    "argument": (["run", "FILE", "--set", "tpp=3"], "did you mean tp"),
    "argument's value": (["run", "FILE", "--set", "tp=two"], "--set tp=two: expected an integer"),
    "ranks": (["run", "FILE", "--set", "tp=1000"], "has 1000 ranks, machine cpu at most 256"),
    "target": (["run", "FILE", "--target", "tpu"], "no target 'tpu'; there is cpu"),
    "machine": (["run", "FILE", "--machine", "h100x9"], "no machine 'h100x9'; there are"),
    "algorithm": (["run", "FILE", "--algorithm", "magic"], "no collective has an algorithm"),
    "chunk": (["run", "FILE", "--chunk-bytes", "0"], "chunk_bytes is at least 1, got 0"),
    "tile": (["run", "FILE", "--tile", "128"], "tile is two positive sizes"),
    "option": (["run", "FILE", "-O", "workres=2"], "did you mean workers"),
    "option of an empty name": (["run", "FILE", "-O", ":tile=2x2"], "op-name:name=value"),
    "inputs": (["run", "FILE", "--inputs", "none.safetensors"], "cannot read inputs"),
    "trace": (["run", "FILE", "--trace", "/none/trace.json"], "cannot write /none/trace.json"),
    "dump": (["compile", "FILE", "--dump", "/proc/none"], "cannot write /proc/none"),
    "level": (["compile", "FILE", "--emit", "magic"], "is not one of"),
    "command": (["frobnicate"], "No such command 'frobnicate'"),
    "flag": (["run", "FILE", "--cheek"], "--cheek"),
}


@pytest.mark.parametrize("what", USAGE)
def test_bad_usage(run: Run, what: str, tmp_path: Path) -> None:
    words, message = USAGE[what]
    path = write(tmp_path)
    code, out, err = run(*(path if w == "FILE" else w for w in words))
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


PASSES: dict[str, tuple[str, str]] = {
    "unknown pass": ("unheard-of", "unheard-of"),
    "unknown option": ("plan-memory{reused=true}", "reused"),
    "option's value": ("plan-memory{align=two}", "align"),
    "prerequisite": ("insert-signals", "schedule-tasks|lower-task-to-device|device"),
}


@pytest.mark.parametrize("what", PASSES)
def test_ditron_opt_refuses(what: str, tmp_path: Path) -> None:
    pipeline, message = PASSES[what]
    (tmp_path / "a.mlir").write_text(GOOD_IR)
    command = [sys.executable, "-m", "ditron.tools.opt", str(tmp_path / "a.mlir"), "-p", pipeline]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr, done.stderr
    assert re.search(message, done.stderr), done.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--set", "tp=0"], 1),
        (["--trace", "/none/trace.json"], 2),
        (["--inputs", "none.safetensors"], 2),
    ],
    ids=["program", "trace", "inputs"],
)
def test_as_a_process_nothing_is_left(words: list[str], code: int, tmp_path: Path) -> None:
    shm = set(os.listdir("/dev/shm"))
    command = [sys.executable, "-m", "ditron.tools.cli", "run", str(write(tmp_path)), *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    ) as done:
        _, err = done.communicate(timeout=60)
    assert done.returncode == code, err
    assert one_line(err)
    assert set(os.listdir("/dev/shm")) <= shm
    assert not [pid for pid in group_of(done.pid) if alive([pid])]


def group_of(leader: int) -> list[int]:
    """The processes of a process group."""
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(fields[2]) == leader:
            found.append(int(stat.parent.name))
    return found


def test_what_a_launch_cannot_do_is_an_error_of_launches() -> None:
    made = dt.compile(good())
    made.bind({"w": W})
    made.close()
    with pytest.raises(LaunchError, match="it is closed") as caught:
        made.run({"x": X})
    assert one_line(str(caught.value))
