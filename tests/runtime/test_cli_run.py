"""`ditron run`, `compile` and `verify` on real programs, and what they leave behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save
from typer.testing import CliRunner

from ditron.tools.cli import app

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
AG_GEMM = EXAMPLES / "01_ag_gemm.py"
SMALL = ["--set", "m=24", "--set", "n=32", "--set", "k=16", "--set", "tp=3"]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run() -> Run:
    def invoke(*arguments: object) -> tuple[int, str, str]:
        result = CliRunner().invoke(app, [str(a) for a in arguments])
        unexpected = result.exception
        assert unexpected is None or isinstance(unexpected, SystemExit), unexpected
        return result.exit_code, result.stdout, result.stderr

    return invoke


@pytest.mark.parametrize("level", ["task", "device", "core", "plan", "shmem", "host"])
def test_emit(run: Run, level: str):
    code, out, err = run("compile", AG_GEMM, "--emit", level, *SMALL)
    assert (code, err) == (0, "")
    marks = {"plan": "plan ag_gemm: 3 ranks", "host": "def ", "task": "task.program @ag_gemm"}
    assert marks.get(level, f"{level}.") in out


def test_a_dump_compiles_to_the_same_device_program(run: Run, tmp_path: Path):
    _, task_ir, _ = run("compile", AG_GEMM, "--emit", "task", *SMALL)
    dump = tmp_path / "task.mlir"
    dump.write_text(task_ir)
    _, expected, _ = run("compile", AG_GEMM, *SMALL)
    code, out, err = run("compile", dump)
    assert (code, err) == (0, "")
    assert out == expected


def test_the_plan_as_data(run: Run):
    code, out, _ = run("compile", AG_GEMM, "--emit", "plan", "--json", *SMALL)
    plan = json.loads(out)
    assert code == 0
    assert plan["ranks"] == 3
    assert len(plan["tasks"]["op"]) == len(plan["tasks"]["seq"]) > 0
    assert {"name", "kind", "location"} <= plan["ops"][0].keys()


def test_a_file_per_pass(run: Run, tmp_path: Path):
    code, _, _ = run("compile", AG_GEMM, "--dump", tmp_path / "out", *SMALL)
    files = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert code == 0
    assert files[0].startswith("00")
    assert any("insert-signals" in name for name in files)


def test_verify(run: Run):
    code, out, err = run("verify", AG_GEMM, *SMALL)
    assert (code, err) == (0, "")
    for proof in ("deliver", "race", "deadlock"):
        assert proof in out.lower()


def test_a_lowered_dump_is_proved_as_it_is(run: Run, tmp_path: Path):
    run("compile", AG_GEMM, "--dump", tmp_path, *SMALL)
    (stage,) = tmp_path.glob("*-elide-waits.mlir")
    code, out, err = run("verify", stage)
    assert (code, err) == (0, "")
    assert "race-free" in out
    broken = tmp_path / "broken.mlir"
    text = stage.read_text()
    broken.write_text("\n".join(line for line in text.splitlines() if "device.wait" not in line))
    code, out, err = run("verify", broken)
    assert (code, out) == (1, "")
    assert err.startswith(f"{broken}:")
    code, _, err = run("run", broken)
    assert code == 2
    assert "name it after the last pass" in err


def test_a_lowered_dump_runs_on_from_there(run: Run, tmp_path: Path):
    run("compile", AG_GEMM, "--dump", tmp_path, *SMALL)
    for name in ("lower-task-to-device", "insert-signals", "lower-to-shmem"):
        (stage,) = tmp_path.glob(f"*-{name}.mlir")
        code, out, err = run("run", stage, "--check", "--repeats", "1")
        assert (code, err) == (0, "")
        assert "agrees with float64" in out
    unsignalled = tmp_path / "mine.insert-signals.mlir"
    lines = stage.with_name("09-insert-signals.mlir").read_text().splitlines()
    unsignalled.write_text("\n".join(line for line in lines if "device.wait" not in line))
    code, out, err = run("run", unsignalled)
    assert (code, out) == (1, "")
    assert "nothing orders" in err


def test_inputs_from_a_file(run: Run, tmp_path: Path):
    tensors = {"x": torch.ones(24, 16), "w": torch.ones(16, 32)}
    (tmp_path / "x.safetensors").write_bytes(save(tensors))
    given = ["--inputs", tmp_path / "x.safetensors", "--check", "--json", "--set", "dtype=f32"]
    code, out, _ = run("run", AG_GEMM, *SMALL, *given)
    assert code == 0
    assert json.loads(out)["check"][0]["error"] == 0.0


def test_inputs_that_do_not_fit(run: Run, tmp_path: Path):
    (tmp_path / "x.safetensors").write_bytes(save({"x": torch.ones(3, 3), "w": torch.ones(1)}))
    code, out, err = run("run", AG_GEMM, *SMALL, "--inputs", tmp_path / "x.safetensors")
    assert (code, out) == (1, "")
    assert "shape" in err
    assert len(err.splitlines()) == 1


def test_a_trace_opens_as_json(run: Run, tmp_path: Path):
    code, out, _ = run("run", AG_GEMM, *SMALL, "--trace", tmp_path / "t.json", "--repeats", "0")
    assert code == 0
    assert "Perfetto" in out
    trace = json.loads((tmp_path / "t.json").read_text())
    assert trace["traceEvents"] if isinstance(trace, dict) else trace


def test_a_predicted_trace_has_the_rows_and_events_of_a_real_one(run: Run, tmp_path: Path):
    rows = []
    for verb, given in (("run", ["--repeats", "0"]), ("simulate", ["--machine", "cpu"])):
        path = tmp_path / f"{verb}.json"
        assert run(verb, AG_GEMM, *SMALL, "--trace", path, *given)[0] == 0
        events = json.loads(path.read_text())["traceEvents"]
        rows.append(
            sorted(
                (e["ph"], e["pid"], e["tid"], e["cat"], e["name"], str(e["args"]))
                if e["ph"] == "X"
                else ("M", e["pid"], e.get("tid", -1), "", e["name"], str(e["args"]))
                for e in events
                if e["ph"] in "XM"
            )
        )
    assert rows[0] == rows[1]


def children_of(pid: int) -> list[int]:
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_interrupt_leaves_nothing(tmp_path: Path):
    """Ctrl-C in the middle: exit code 130, no process, no shared memory, no traceback."""
    before = set(os.listdir("/dev/shm")) if Path("/dev/shm").is_dir() else set[str]()
    command = [sys.executable, "-m", "ditron.tools.cli", "run", str(AG_GEMM), *SMALL]
    tool = subprocess.Popen(
        [*command, "--repeats", "1000000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not (started := children_of(tool.pid)) and time.monotonic() < deadline:
        assert tool.poll() is None, tool.communicate()
        time.sleep(0.05)
    assert started, "no rank process was started"
    time.sleep(1.0)
    os.killpg(tool.pid, signal.SIGINT)
    out, err = tool.communicate(timeout=30)
    assert tool.returncode == 130, err
    assert "Traceback" not in out + err
    deadline = time.monotonic() + 5
    while any(Path(f"/proc/{pid}").exists() for pid in started) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]
    if Path("/dev/shm").is_dir():
        assert set(os.listdir("/dev/shm")) <= before
