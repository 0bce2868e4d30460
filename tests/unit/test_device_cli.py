"""The command line on files whose program() returns a device program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ditron.tools.cli import app

PROGRAM = """\
import ditron as dt


def task(m, tp):
    with dt.Program("same", dt.Mesh(tp=tp)) as p:
        p.output("y", dt.relu(dt.relu(p.input("x", (m, 2), dt.f32, dt.Shard(0)))))
    return p


@dt.kernel
def relu(k, x, y):
    k.store(y, k.relu(k.relu(k.load(x))))


def program(m=6, tp=2, held=True, slot=0):
    with dt.DeviceProgram("byhand", dt.Mesh(tp=tp), implements=task(m, tp) if held else None) as d:
        x = d.input("x", (m, 2), dt.f32, dt.Shard(0))
        y = d.output("y", (m, 2), dt.f32, dt.Shard(0))
        s = d.signals("s", 1)
        with d.grid("relu", engine="sm") as g:
            g.call(relu, g.view(x, (0, 0), x.shape), g.view(y, (0, 0), y.shape))
            g.notify(s, slot)
    return d
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "byhand.py"
    path.write_text(PROGRAM)
    return path


def invoke(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def test_run_checks_against_what_is_implemented(file: Path):
    code, out, err = invoke("run", file, "--check", "--json", "--repeats", 1, "--set", "tp=3")
    assert code == 0, err
    data = json.loads(out)
    assert (data["program"], data["ranks"], data["agrees"]) == ("byhand", 3, True)


def test_run_without_a_task_program(file: Path):
    code, out, err = invoke("run", file, "--set", "held=false", "--repeats", 1)
    assert code == 0, err
    assert "delivery       not proved" in out
    code, _, err = invoke("run", file, "--set", "held=false", "--check")
    assert code == 2
    assert "nothing to check against; say which task program it implements" in err


def test_verify_and_compile(file: Path, tmp_path: Path):
    code, out, err = invoke("verify", file)
    assert code == 0, err
    assert "1 output as the program says" in out
    code, out, err = invoke("compile", file, "--dump", tmp_path / "stages")
    assert code == 0, err
    assert "device.grid @relu engine sm" in out
    names = sorted(p.name for p in (tmp_path / "stages").iterdir())
    assert names == ["00-input.mlir", "01-plan-memory.mlir", "02-lower-to-shmem.mlir"]
    code, out, err = invoke("verify", tmp_path / "stages" / "01-plan-memory.mlir")
    assert code == 0, err


def test_mistakes_are_told_with_their_line(file: Path):
    code, _, err = invoke("verify", file, "--set", "slot=1")
    assert code == 1
    line = PROGRAM.splitlines().index("            g.notify(s, slot)") + 1
    assert err.startswith(f"{file}:{line}: error: grid relu: a slot of signals s of 1 slots is 1")
    code, _, err = invoke("run", file, "--algorithm", "ring")
    assert code == 2
    assert "a device program says itself how it runs: leave out option algorithm" in err
