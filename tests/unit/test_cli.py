"""The command line on bad usage, bad files and wrong programs: exit codes, no traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ditron.tools.cli import app

PROGRAM = """\
import ditron as dt

def program(m=8, tp=2, dtype=dt.f32, wide: bool = False):
    with dt.Program("p", dt.Mesh(tp=tp)) as p:
        x = p.input("x", (m, 4), dtype, dt.Shard(0))
        w = p.input("w", (4, 6), dtype, dt.Replicate())
        BODY
    return p
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run() -> Run:
    def invoke(*arguments: object) -> tuple[int, str, str]:
        result = CliRunner().invoke(app, [str(a) for a in arguments])
        unexpected = result.exception
        assert unexpected is None or isinstance(unexpected, SystemExit), unexpected
        assert "Traceback" not in result.output
        return result.exit_code, result.stdout, result.stderr

    return invoke


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], Path]:
    def write(body: str, text: str = PROGRAM) -> Path:
        path = tmp_path / "prog.py"
        path.write_text(text.replace("BODY", body))
        return path

    return write


GOOD = 'p.output("y", dt.matmul(x, w))'


@pytest.mark.parametrize("command", ["run", "compile", "verify"])
@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("none.py", None, "no such file"),
        ("folder.py", "", "it is a folder"),
        ("notes.txt", "x", "neither a .py file with program() nor a .mlir dump"),
        ("empty.py", "x = 1\n", "defines no program()"),
        ("other.py", "def program():\n    return 3\n", "returned int, expected a dt.Program"),
        ("latin.mlir", "// \xe9\n", "cannot read"),
    ],
)
def test_bad_files(
    run: Run, tmp_path: Path, command: str, name: str, text: str | None, message: str
):
    path = tmp_path / name
    if text == "":
        path.mkdir()
    elif text is not None:
        path.write_bytes(text.encode("latin-1"))
    code, out, err = run(command, path)
    assert (code, out) == (2, "")
    assert err.startswith("ditron: error: ")
    assert message in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "m"], "expected name=value"),
        (["--set", "mm=3"], "no such argument; did you mean m?"),
        (["--set", "m=1.5"], "--set m=1.5: expected an integer"),
        (["--set", "dtype=f33"], "expected one of f32, bf16"),
        (["--set", "wide=maybe"], "expected true or false"),
        (["--option", "worker=2"], "did you mean workers?"),
        (["--option", "workers"], "expected name=value"),
        (["--option", "workers=two"], "expected a value such as 65536"),
        (["--option", "workers=0"], "workers is at least 1"),
        (["--tile", "128"], "tile is two positive sizes"),
        (["--tile", "axb"], "expected a value such as 128x256"),
        (["--algorithm", "magic"], "magic"),
        (["--inputs", "no.safetensors"], "cannot read inputs"),
        (["--no-such-flag"], "--no-such-flag"),
        (["--repeats", "-1"], "repeats"),
    ],
)
def test_bad_usage(run: Run, program: Callable[[str], Path], arguments: list[str], message: str):
    code, out, err = run("run", program(GOOD), *arguments)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize(
    ("body", "line", "message"),
    [
        ('p.output("y", dt.matmul(x, x))', 7, "matmul"),
        ("dt.all_reduce(x)", 7, "all_reduce"),
        ("undefined", 7, "NameError: name 'undefined' is not defined"),
        ("1 / 0", 7, "ZeroDivisionError: division by zero"),
        ("x = = 3", 7, "invalid syntax"),
        ("raise ValueError", 7, "ValueError"),
    ],
)
def test_wrong_programs_are_reported_at_their_line(
    run: Run, program: Callable[[str], Path], body: str, line: int, message: str
):
    path = program(body)
    code, out, err = run("verify", path)
    assert (code, out) == (1, "")
    assert err.startswith(f"{path}:{line}: error: ")
    assert message in err
    assert len(err.splitlines()) == 1


def test_a_missing_argument_is_asked_for(run: Run, program: Callable[..., Path]):
    path = program(GOOD, PROGRAM.replace("m=8", "m"))
    code, _, err = run("verify", path)
    assert code == 2
    assert "program() needs a value for m: --set m=..." in err


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("task.program @p mesh\n", "2:1: ", "attribute expected"),
        ('%x = "task.nothing"() : () -> ()\n', "1:", "task.nothing is not registered"),
        ('"task.output"(%x) {name = "y"} : (i32) -> ()\n%x = "t.t"() : () -> i32\n', "", "error: "),
    ],
)
def test_bad_dumps(run: Run, tmp_path: Path, text: str, position: str, message: str):
    path = tmp_path / "dump.mlir"
    path.write_text(text)
    code, out, err = run("verify", path)
    assert (code, out) == (1, "")
    assert err.startswith(f"{path}:{position}")
    assert message in err


def test_settings_are_refused_for_dumps(run: Run, tmp_path: Path):
    path = tmp_path / "dump.mlir"
    path.write_text("builtin.module {}\n")
    code, _, err = run("verify", path, "--set", "m=1")
    assert code == 2
    assert "is an IR dump" in err


def test_no_command_shows_help(run: Run):
    code, out, err = run()
    assert code == 2
    assert "Commands" in out + err


def test_doctor(run: Run):
    code, out, _ = run("doctor")
    assert code == 0
    assert "cpu: ready" in out
    assert "cuda: cannot run here" in out
    assert "cuda, heap nvshmem: cannot run here" in out


def test_doctor_as_data(run: Run):
    code, out, _ = run("doctor", "--json")
    data = json.loads(out)
    assert code == 0
    assert data["targets"]["cpu"]["ready"] is True
    assert {"need", "found", "detail", "remedy"} <= data["targets"]["cuda"]["needs"][0].keys()


def test_as_a_process(tmp_path: Path):
    """The same through a real process: exit code, stderr, nothing on stdout."""
    command = [sys.executable, "-m", "ditron.tools.cli", "run", str(tmp_path / "none.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("ditron: error: cannot read")


def test_help_does_not_import_torch():
    code = (
        "import sys, contextlib\nfrom ditron.tools.cli import app\n"
        "with contextlib.suppress(SystemExit):\n    app(['run', '--help'])\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
