"""`ditron explain` and `ditron simulate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ditron.tools.cli import app
from ditron.tools.simulate import show_us

ROOT = Path(__file__).resolve().parents[2]
AG_GEMM = str(ROOT / "examples" / "01_ag_gemm.py")
MLP = str(ROOT / "examples" / "04_mlp.py")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_explain_says_what_was_chosen_and_why():
    result = run("explain", AG_GEMM)
    assert result.exit_code == 0, result.output
    assert "mesh in-place" in result.stdout
    assert "predicted" in result.stdout
    assert "next best mesh push" in result.stdout
    assert "01_ag_gemm.py:14" in result.stdout


@pytest.mark.parametrize("machine", ["cpu", "h800x8", "mi300x8"])
def test_explain_as_data(machine: str):
    result = run("explain", MLP, "--machine", machine, "--json")
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert data["machine"] == machine
    ops = {op["op"]: op for op in data["ops"]}
    gather = ops["all_gather"]
    costs = [way["overlapped_us"] for way in gather["ways"]]
    assert costs == sorted(costs)
    assert gather["cost_us"] == pytest.approx(costs[0], abs=0.01)
    assert gather["runner_up_us"] == pytest.approx(costs[1], abs=0.01)
    assert sum(way["played_us"] is not None for way in gather["ways"]) == 2
    assert ops["gate"]["choice"] == ops["up"]["choice"]
    assert ops["silu"]["cost_us"] is None


def test_explain_weighs_what_the_user_decided_against_the_rest():
    result = run("explain", AG_GEMM, "--algorithm", "ring", "--json")
    gather = json.loads(result.stdout)["ops"][0]
    assert "ring push" in gather["choice"]
    ways = [way["choice"] for way in gather["ways"]]
    assert ways[0].startswith("ring push")
    assert ways[1].startswith("mesh in-place")


def test_simulate_predicts(tmp_path: Path):
    trace = tmp_path / "out.json"
    result = run("simulate", AG_GEMM, "--machine", "h800x8", "--trace", str(trace))
    assert result.exit_code == 0, result.output
    assert "predicted for a launch" in result.stdout
    assert "@matmul" in result.stdout
    assert json.loads(trace.read_text())["traceEvents"]


def test_simulate_as_data():
    result = run("simulate", MLP, "--machine", "mi300x8", "--json")
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert data["ranks"] == 4
    assert data["makespan_us"] >= max(op["end_us"] for op in data["ops"])
    assert data["busy_us"]["sm"] > 0


def test_simulate_takes_a_lowered_dump(tmp_path: Path):
    lowered = run("compile", AG_GEMM, "--emit", "device")
    assert lowered.exit_code == 0, lowered.output
    dump = tmp_path / "lowered.mlir"
    dump.write_text(lowered.stdout)
    result = run("simulate", str(dump))
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("command", ["explain", "simulate"])
def test_what_cannot_be(command: str, tmp_path: Path):
    result = run(command, AG_GEMM, "--machine", "nowhere")
    assert result.exit_code == 2
    assert "no machine 'nowhere'; there are cpu" in result.stderr
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: bad\n")
    result = run(command, AG_GEMM, "--machine", str(bad))
    assert result.exit_code == 2
    assert "missing required field `target`" in result.stderr
    result = run(command, str(tmp_path / "none.py"))
    assert result.exit_code == 2


@pytest.mark.parametrize("command", ["explain", "simulate"])
def test_more_ranks_than_there_are(command: str):
    result = run(command, AG_GEMM, "--machine", "h800x8", "--set", "tp=9")
    assert result.exit_code == 2
    assert "ag_gemm has 9 ranks, machine h800x8 at most 8" in result.stderr


def test_times_are_shown_with_units():
    assert show_us(3.14159) == "3.14 us"
    assert show_us(812.4) == "812 us"
    assert show_us(41_000) == "41 ms"
    assert show_us(2_500_000) == "2.5 s"
