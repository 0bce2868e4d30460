"""Rank processes: right results launch after launch, measured and traced."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pytest
import torch
from conftest import Start, alive, gone, pids
from handmade import KERNELS, AgGemm

from ditron.errors import InputError, LaunchError, PlanError
from ditron.plan import tables as t
from ditron.runtime.launch import zygote
from ditron.runtime.posix import CpuExecutor

SHAPES = [
    AgGemm(),
    AgGemm(copies=2),
    AgGemm(copies=2, boundary=t.Boundary.PERSISTENT, tiles=3),
    AgGemm(ranks=3, m=7),
    AgGemm(ranks=4, m=5),
    AgGemm(ranks=3, m=0),
    AgGemm(ranks=1),
    AgGemm(ranks=7, m=100, n=40),
]


def check(executor: CpuExecutor, shape: AgGemm, seed: int = 0) -> None:
    x, w = shape.data(seed)
    for rank in range(shape.ranks):
        torch.testing.assert_close(executor.read("y", rank), x @ w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_launch_after_launch_with_new_inputs(start: Start, shape: AgGemm) -> None:
    executor = start(shape)
    for seed in range(4):
        _, w = shape.data()
        x, _ = shape.data(seed)
        for (buffer, rank), shard in shape.shards(x, w).items():
            executor.write(buffer, rank, shard)
        executor.launch()
        for rank in range(shape.ranks):
            torch.testing.assert_close(executor.read("y", rank), x @ w, rtol=1e-4, atol=1e-5)


def test_two_hundred_launches(start: Start) -> None:
    shape = AgGemm()
    executor = start(shape)
    for _ in range(200):
        executor.launch()
    check(executor, shape)


def test_two_hundred_pools_leave_nothing(start: Start) -> None:
    shape = AgGemm(ranks=2)
    executor = start(shape)
    seen: list[int] = []
    for _ in range(200):
        executor.launch()
        seen += pids(executor)
        executor.reset()
        assert not alive(seen[-2:])
    executor.launch()
    check(executor, shape)


def test_two_executors_share_a_zygote_and_end_apart(start: Start) -> None:
    a, b = start(AgGemm(ranks=2)), start(AgGemm(ranks=3, m=7))
    started = zygote().pid
    a.launch()
    ranks_of_a, ranks_of_b = pids(a), pids(b)
    b.launch()
    assert zygote().pid == started
    a.close()
    assert gone(ranks_of_a)
    assert alive(ranks_of_b) == ranks_of_b
    b.launch()
    check(b, AgGemm(ranks=3, m=7))


def test_measure_gives_a_time_a_launch(start: Start) -> None:
    shape = AgGemm()
    executor = start(shape)
    begin = time.perf_counter()
    seconds = executor.measure(20)
    assert len(seconds) == 20
    assert all(s > 0 for s in seconds)
    assert sum(seconds) < time.perf_counter() - begin
    executor.launch()
    check(executor, shape)


def test_a_trace_has_each_task_once_and_an_arrow_a_signal(start: Start, tmp_path: Path) -> None:
    shape = AgGemm()
    executor = start(shape)
    executor.trace(tmp_path / "trace.json")
    executor.launch()
    check(executor, shape)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    plan = shape.plan()
    assert sorted(e["args"]["task"] for e in slices) == list(range(len(plan.tasks)))
    assert {e["name"] for e in slices if e["pid"] == 2} >= {"@gather[3]", "@matmul[1]"}
    tracks = {(e["pid"], e["args"]["name"]) for e in events if e["name"] == "thread_name"}
    assert tracks == {(r, f"{engine} 0") for r in range(4) for engine in ("copy", "sm")}
    begins = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert begins.keys() == ends.keys()
    assert all(begins[i]["ts"] <= ends[i]["ts"] for i in begins)
    assert len(begins) == 16
    assert Counter(e["name"] for e in begins.values())["%ready[2]"] == 4


def test_shards_must_fit(start: Start) -> None:
    executor = start(AgGemm(ranks=4, m=5))
    with pytest.raises(InputError, match=r"'x' on rank 2 takes \(1, 16\) torch.float32, got"):
        executor.write("x", 2, torch.zeros(2, 16))
    with pytest.raises(InputError, match=r"got .* torch.float64"):
        executor.write("x", 0, torch.zeros(2, 16, dtype=torch.float64))
    with pytest.raises(PlanError, match="no buffer 'z'; it has x, w, xg, y"):
        executor.read("z", 0)


def test_a_closed_executor_says_so(start: Start) -> None:
    executor = start(AgGemm(ranks=2))
    executor.launch()
    executor.close()
    executor.close()
    with pytest.raises(LaunchError, match="it is closed"):
        executor.launch()


def test_an_executor_that_is_dropped_ends_its_ranks() -> None:
    executor = CpuExecutor(AgGemm(ranks=2).plan(), KERNELS)
    ranks = pids(executor)
    del executor
    assert gone(ranks)
