"""How `benchmarks/gpu_ranks.py` checks and measures one program among the ranks of a group."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

import ditron as dt
from benchmarks.gpu_first_run import executor_of
from benchmarks.ranks_baselines import baselines
from benchmarks.ranks_programs import Way
from ditron.analysis.symbols import task_program
from ditron.backends.simulate import simulate
from ditron.errors import DitronError
from ditron.plan.machine import load_machine
from ditron.plan.tables import Role
from ditron.runtime.cuda_local import LocalRank
from ditron.runtime.gpu_heap import make_heap
from ditron.runtime.gpu_rank import keep_busy
from ditron.runtime.sharding import holds_sum, local_box
from ditron.tools.inputs import make_inputs

REPLAYS, BEFORE_WRAP = 400, 200
FAR = (1 << 31) - BEFORE_WRAP
TOLERANCE = 0.02
ALL_REDUCE: Any = getattr(dist, "all_reduce")  # noqa: B009 - its types are not known
ALL_GATHER_OBJECT: Any = getattr(dist, "all_gather_object")  # noqa: B009
HEAD_START = 8_000_000  # cycles, some 4 ms
Tensors = dict[str, torch.Tensor]


class Ranks:
    """This process among all: barriers, clocks, and whether NCCL can be used."""

    def __init__(self, ranks: int, rank: int, *, nccl: bool, repeats: int) -> None:
        self.ranks, self.rank, self.nccl, self.repeats = ranks, rank, nccl, repeats
        self.word = torch.zeros(1, device="cuda")
        self.group = "0"
        if nccl:
            dist.all_reduce(self.word)  # NCCL connects
            self.group = dist.group.WORLD.group_name  # pyright: ignore[reportOptionalMemberAccess]

    def say(self, text: str) -> None:
        """Once for all ranks."""
        if self.rank == 0:
            print(text, flush=True)  # noqa: T201

    def largest(self, value: float) -> float:
        """The greatest of all ranks' values."""
        told = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(told, dist.ReduceOp.MAX)
        return float(told.item())

    def time(self, call: Callable[[], object]) -> float:
        """Milliseconds of one call on this rank, from when all GPUs have met."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        dist.barrier() if not self.nccl else self.largest(0)
        keep_busy(HEAD_START)
        if self.nccl:
            dist.all_reduce(self.word)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end)

    def times(self, calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
        """Of each call the median of the slowest rank; calls take turns."""
        samples: dict[str, list[float]] = {name: [] for name in calls}
        for turn in range(self.repeats + 2):
            for name, call in calls.items():
                took = self.time(call)
                if turn >= 2:
                    samples[name].append(took)
        found: dict[str, float] = {}
        for name, took in samples.items():
            told = torch.tensor(took, dtype=torch.float64)
            dist.all_reduce(told, dist.ReduceOp.MAX)
            values = [float(value) for value in told]
            found[name] = round(median(values), 5)
        return found


def local_rank(exe: dt.Executable) -> LocalRank:
    """The rank of an executable that has run."""
    rank: object = vars(executor_of(exe))["_local"]
    assert isinstance(rank, LocalRank)
    return rank


class Running:
    """An executable with its inputs in place on this rank."""

    def __init__(self, this: Ranks, way: Way) -> None:
        self.this = this
        begin = time.perf_counter()
        self.exe = way.compile()
        self.program = way.build()
        self.seconds = time.perf_counter() - begin
        self.mesh, self.launched = self.exe.mesh, False
        self.specs = {
            **self.exe.tensors(Role.INPUT),
            **self.exe.tensors(Role.WEIGHT),
        }

    def shards(self, whole: Tensors) -> Tensors:
        """This rank's parts of global tensors; of a partial sum the share that it has."""
        parts: Tensors = {}
        for name, spec in self.specs.items():
            part = whole[name][local_box(spec, self.mesh, self.this.rank)]
            if not holds_sum(spec, self.mesh, self.this.rank):
                part = torch.zeros_like(part)
            parts[name] = part.contiguous().cuda()
        return parts

    def launch(self, whole: Tensors) -> Tensors:
        """One launch on new inputs; states begin anew."""
        states = self.exe.tensors(Role.STATE)
        if states and self.launched:
            torch.cuda.synchronize()
            dist.barrier()
            for name in states:
                local_rank(self.exe).buffers[name].zero_()
        self.launched = True
        return self.exe.run_local(self.shards(whole))

    def again(self) -> Tensors:
        """One launch on what is there."""
        rank = local_rank(self.exe)
        return self.exe.run_local({name: rank.buffers[name] for name in rank.inputs})

    def close(self) -> None:
        """After all ranks are done with it."""
        torch.cuda.synchronize()
        dist.barrier()
        self.exe.close()


def heap(this: Ranks, kind: str, size_bytes: int) -> dict[str, Any]:
    """Milliseconds of making memory that peers reach and of letting go of it, slowest rank."""
    ms: dict[str, float] = {}

    def took(what: str, begin: float) -> float:
        torch.cuda.synchronize()
        ms[what] = round(1e3 * this.largest(time.perf_counter() - begin), 1)
        return time.perf_counter()

    dist.barrier()
    begin = time.perf_counter()
    made = make_heap(kind, size_bytes, this.rank)
    offers: list[Any] = [None] * this.ranks
    ALL_GATHER_OBJECT(offers, made.offer())
    bases = made.join(offers)
    begin = took("made", begin)
    assert len(set(bases)) == this.ranks
    made.close()
    took("closed", begin)
    return {"ms": ms}


def check(this: Ranks, way: Way, relaunches: int) -> dict[str, Any]:
    """Launches with other inputs each, many launches, and replays of a graph across 2^31."""
    running = Running(this, way)
    made = running.program
    task = made if isinstance(made, dt.Program) else made.implements
    assert task is not None

    def expect(seed: int) -> tuple[Tensors, Tensors]:
        whole = make_inputs(task_program(task.ir), seed)
        return whole, task.reference(whole)

    def compare(outputs: Tensors, reference: Tensors, what: str) -> float:
        worst = 0.0
        for name, spec in running.exe.tensors(Role.OUTPUT).items():
            want = reference[name][local_box(spec, running.mesh, this.rank)].float()
            got = outputs[name].float().cpu()
            scale = float(reference[name].float().abs().max()) or 1.0
            error = float((got - want).abs().max()) / scale if want.numel() else 0.0
            if not error <= TOLERANCE:
                raise AssertionError(f"{what}: {name} is wrong by {error:.2e} of its largest")
            worst = max(worst, error)
        return worst

    worst = 0.0
    for seed in range(2):
        whole, reference = expect(seed)
        worst = max(worst, compare(running.launch(whole), reference, f"launch {seed}"))
    whole, reference = expect(2)
    outputs = running.launch(whole)
    for launch in range(relaunches):
        outputs = running.again()
        if launch % 100 == 99:
            torch.cuda.synchronize()
    worst = max(worst, compare(outputs, reference, f"after {relaunches} launches"))
    replays = replay(running, whole, lambda out: compare(out, reference, "a replay"))
    running.close()
    return {"error": worst, "replays": replays, "compiled_s": round(running.seconds, 1)}


def replay(running: Running, whole: Tensors, compare: Callable[[Tensors], float]) -> int | str:
    """Replays across 2^31 of a captured launch; or why there is none."""
    rank = local_rank(running.exe)
    torch.cuda.synchronize()
    dist.barrier()
    rank.gpu.reset(FAR)
    dist.barrier()
    compare(running.launch(whole))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            outputs = running.again()
    except (DitronError, RuntimeError) as error:
        return str(error).split("\n", 1)[0][:200]
    dist.barrier()
    for _ in range(REPLAYS):
        graph.replay()
    torch.cuda.synchronize()
    compare(outputs)
    return REPLAYS


def trace(this: Ranks, way: Way, path: Path) -> dict[str, Any]:
    """What ran when in one launch."""
    running = Running(this, way)
    running.launch(random_whole(running, 0))
    running.again()
    running.exe.trace(path)
    running.close()
    return {"file": path.name}


def random_whole(running: Running, seed: int) -> Tensors:
    """Global inputs on the device, the same on all ranks."""
    generator = torch.Generator("cuda").manual_seed(seed)
    return {
        name: torch.randn(spec.shape, generator=generator, device="cuda")
        .mul(spec.shape[0 if name == "w" else -1] ** -0.5)
        .bfloat16()
        for name, spec in running.specs.items()
    }


def fused(this: Ranks, kind: str, shape: tuple[int, int, int], ways: list[Way]) -> dict[str, Any]:
    """A product with a collective: ditron's ways beside NCCL with cuBLAS, and async TP."""
    running = [Running(this, way) for way in ways]
    whole = random_whole(running[0], 0)
    x, w = whole["x"], whole["w"]
    calls, want = baselines(kind, x, w, this.group if this.nccl else "")
    errors: dict[str, float] = {}
    row: dict[str, Any] = {"choices": {}, "predicted_ms": {}, "host_ms": {}}
    for one, way in zip(running, ways, strict=True):
        got = one.launch(whole)["y"].float()
        errors[way.name] = ((got - want).norm() / want.norm()).item()
        assert errors[way.name] < TOLERANCE, f"{way.name} is wrong by {errors[way.name]:.2e}"
        calls[f"ditron {way.name}"] = one.again
        row["choices"][way.name] = choices(one.exe)
        row["predicted_ms"][way.name] = predicted_ms(one.exe)
    del whole
    row["ms"] = this.times(calls)
    for one, way in zip(running, ways, strict=True):
        begin = time.perf_counter()
        one.again()
        row["host_ms"][way.name] = round((time.perf_counter() - begin) * 1e3, 3)
        torch.cuda.synchronize()
    if this.nccl:
        row["ratios"] = ratios(row["ms"])
        names = ("ditron chosen", "in turn")
        graphs = {name: made.replay for name in names if (made := captured(calls[name]))}
        row["graph_ms"] = this.times(graphs)
    row["errors"] = errors
    for one in running:
        one.close()
    return row


def ratios(ms: dict[str, float]) -> dict[str, float]:
    """How the best of ditron's ways compares."""
    best = min(t for name, t in ms.items() if name.startswith("ditron"))
    chosen = ms["ditron chosen"]
    bound = max(ms["collective"], ms["cublas"])
    found = {
        "of ceiling": bound / chosen,
        "over in turn": ms["in turn"] / chosen,
        "best over in turn": ms["in turn"] / best,
        "at most": ms["in turn"] / bound,
    }
    if "async tp" in ms:
        found["over async tp"] = ms["async tp"] / chosen
    return {name: round(value, 3) for name, value in found.items()}


def reduce(this: Ranks, size: int, ways: list[Way]) -> dict[str, Any]:
    """All-reduces of some bytes beside NCCL's."""
    calls: dict[str, Callable[[], object]] = {}
    row: dict[str, Any] = {"choices": {}}
    running: list[Running] = []
    for way in ways:
        one = Running(this, way)
        (spec,) = one.specs.values()
        generator = torch.Generator("cuda").manual_seed(this.rank)
        own = torch.randn(spec.shape, generator=generator, device="cuda").bfloat16()
        parts = [
            torch.randn(spec.shape, generator=torch.Generator("cuda").manual_seed(r), device="cuda")
            .bfloat16().float()
            for r in range(this.ranks)
        ]  # fmt: skip
        got = one.exe.run_local({"x": own})["y"].float()
        torch.testing.assert_close(got, sum(parts), rtol=TOLERANCE, atol=TOLERANCE)
        calls[f"ditron {way.name}"] = one.again
        row["choices"][way.name] = choices(one.exe)
        row.setdefault("predicted_ms", {})[way.name] = predicted_ms(one.exe)
        running.append(one)
    graphs = {
        f"{name} graph": graph.replay for name, call in calls.items() if (graph := captured(call))
    }
    if this.nccl:
        tensor = torch.zeros(size // 2, device="cuda").bfloat16()
        theirs: Callable[[], object] = partial(ALL_REDUCE, tensor)
        calls["nccl"] = theirs
        if graph := captured(theirs):
            graphs["nccl graph"] = graph.replay
    row["ms"] = this.times({**calls, **graphs})
    if this.nccl:
        ms = row["ms"]
        row["ratios"] = {"over nccl": round(ms["nccl"] / ms["ditron chosen"], 3)}
        if "ditron chosen graph" in ms and "nccl graph" in ms:
            row["ratios"]["in graphs"] = round(ms["nccl graph"] / ms["ditron chosen graph"], 3)
    for one in running:
        one.close()
    return row


def captured(call: Callable[[], object]) -> torch.cuda.CUDAGraph | None:
    """A graph of a call, where that can be captured."""
    call()
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            call()
    except (DitronError, RuntimeError):
        return None
    return graph


def choices(exe: dt.Executable) -> list[str]:
    """What was chosen for each op."""
    text = next(exe.stages[name] for name in exe.stages if name.endswith("-choose-algorithms"))
    return [part.split(" cost_ns")[0].split(">")[0] for part in text.split("#task.choice<")[1:]]


def predicted_ms(exe: dt.Executable) -> float:
    """What the timeline engine says of a launch."""
    return round(simulate(exe.plan, load_machine("h200")).makespan_us / 1e3, 4)


def line(row: dict[str, Any]) -> str:
    """A row in words."""
    ms = ", ".join(f"{name} {value:.4f}" for name, value in row.get("ms", {}).items())
    ms += f" graphs {row['graph_ms']}" if "graph_ms" in row else ""
    rest = {
        k: v
        for k, v in row.items()
        if k
        in (
            "error",
            "replays",
            "compiled_s",
            "ratios",
            "file",
            "choices",
            "predicted_ms",
            "host_ms",
        )
    }
    return f"{rest} {ms}"
