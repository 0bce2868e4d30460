"""A decode step of Qwen3-8B on one GPU, beside transformers: `python -m benchmarks.gpu_decode`.

    python -m benchmarks.gpu_decode               # 36 layers; compiling takes minutes
    python -m benchmarks.gpu_decode --layers 2 --batch 1 8

bfloat16, a cache of 512 places, random weights. ditron's step is its kernels one after
another in a captured graph that finds the position in device memory, so one graph serves every
token; and as one persistent kernel, whose outputs have to be the same to the last bit. Transformers
runs the same model eagerly, in a CUDA graph and under torch.compile. Times are
medians between events, in ms, in one process; the fraction is of the time that reading all weights
once takes at the memory rate of the machine file. That tokens are right is shown by
`tests/gpu/test_gpu_models.py`. Results of several sequences lie in a file of their own.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any
from zlib import crc32

import torch

import ditron as dt
from benchmarks.gpu_first_run import say
from ditron.backends.triton import CrossExecutor
from ditron.plan.machine import load_machine
from ditron.plan.tables import Plan, Role
from ditron.runtime.gpu_program import TritonProgram
from ditron.runtime.gpu_rank import GpuRank
from ditron.runtime.gpu_source import write_source

RESULTS = Path(__file__).resolve().parent / "results" / "gpu_decode.json"
FIELDS: dict[str, Any] = {
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}
CTX, PLACE, ROUNDS = 512, 500, 40
WAIT_BOUND_S = 30.0


def results(batch: int) -> Path:
    """Where the results of so many sequences lie."""
    return RESULTS if batch == 1 else RESULTS.with_stem(f"{RESULTS.stem}_{batch}")


def compiled(layers: int, batch: int = 1, *, megakernel: bool) -> tuple[Plan, TritonProgram]:
    """The plan and the kernels of a step of `batch` sequences, or its kernel."""
    config = dt.models.read_config({"model_type": "qwen3", "num_hidden_layers": layers, **FIELDS})
    step = dt.models.Shape(batch=batch, tokens=1, ctx=CTX, dtype=dt.bf16)
    program = dt.models.decoder(config, dt.Mesh(tp=1), step, outputs=["next", "logits"])
    start = time.perf_counter()
    options = dt.Options(library=False, megakernel=megakernel)
    exe = dt.compile(program, target="sm_90", options=options)
    say(f"compiled and proved in {time.perf_counter() - start:.0f} s: {len(exe.plan.tasks)} tasks")
    executor = exe._executor  # pyright: ignore[reportPrivateUsage]
    assert isinstance(executor, CrossExecutor)
    return exe.plan, executor.program


def ours(plan: Plan, program: TritonProgram) -> tuple[float, int, list[torch.Tensor]]:
    """The median of a step, the bytes of the weights that it reads, and some outputs."""
    gpu = GpuRank(plan, program, 0, WAIT_BOUND_S)
    source = write_source(program.source, Path(tempfile.mkdtemp()))
    gpu.connect(source, [gpu.heap.address])
    read = 0
    for buffer in plan.buffers:
        if buffer.role is not Role.WEIGHT:
            continue
        weight = gpu.memory.buffer(buffer.name)
        torch.manual_seed(crc32(buffer.name.encode()))
        if not weight.is_floating_point():
            weight.copy_(torch.arange(weight.numel(), device="cuda").view(weight.shape))
        elif weight.dim() == 1:
            weight.fill_(1)
        else:
            weight.normal_(0, 0.02)
            read += 0 if buffer.name.startswith(("embed", "cos", "sin")) else weight.nbytes
    ids = gpu.memory.buffer("ids")
    ids.copy_(torch.arange(77, 77 + ids.numel(), device="cuda").view(ids.shape))
    gpu.memory.buffer("pos").fill_(0)
    gpu.enqueue()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=gpu.main):
        gpu.enqueue()
    found: list[torch.Tensor] = []
    for place in (0, 1, 2, 3, PLACE):
        gpu.memory.buffer("pos").fill_(place)
        graph.replay()
        torch.cuda.synchronize()
        chosen, logits = gpu.memory.buffer("next"), gpu.memory.buffer("logits").float()
        assert torch.isfinite(logits).all()
        assert torch.equal(chosen.flatten().long(), first_largest(logits))
        found.append(logits.cpu())
    return timed(graph.replay), read, found


def first_largest(logits: torch.Tensor) -> torch.Tensor:
    """The first place of each row's greatest: of several, torch's `argmax` may take any."""
    rows = logits.reshape(-1, logits.shape[-1])
    places = torch.arange(rows.shape[-1], device=rows.device)
    return torch.where(rows == rows.amax(-1, keepdim=True), places, rows.shape[-1]).amin(-1)


def theirs(layers: int, batch: int) -> dict[str, float]:
    """Medians of transformers' step: eager, in a CUDA graph, compiled."""
    from transformers import Qwen3Config, Qwen3ForCausalLM, StaticCache  # noqa: PLC0415

    torch.set_default_dtype(torch.bfloat16)
    config = Qwen3Config(num_hidden_layers=layers, max_position_embeddings=4096, **FIELDS)
    with torch.device("cuda"):
        model: Any = Qwen3ForCausalLM(config).eval()
    cache = StaticCache(config=config, max_cache_len=CTX)
    given: dict[str, Any] = {"past_key_values": cache, "use_cache": True}
    place = torch.tensor([16], device="cuda")
    token = torch.arange(77, 77 + batch, device="cuda")[:, None]

    def step() -> object:
        return model(
            input_ids=token, cache_position=place, position_ids=place.expand(batch, 1), **given
        ).logits

    found: dict[str, float] = {}
    with torch.no_grad():
        model(input_ids=torch.full((batch, 16), 5, device="cuda"), **given)
        found["eager"] = timed(step)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        found["CUDA graph"] = timed(graph.replay)
        found["torch.compile"] = timed(torch.compile(step, mode="reduce-overhead"))
    return found


def timed(call: Callable[[], object]) -> float:
    """The median of some calls, in ms."""
    for _ in range(3):
        call()
    times: list[float] = []
    for _ in range(ROUNDS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return median(times)


def measure(layers: int, batch: int) -> dict[str, object]:
    """All of them for so many sequences, printed."""
    mine, read, outputs = ours(*compiled(layers, batch, megakernel=False))
    whole, _, same = ours(*compiled(layers, batch, megakernel=True))
    assert all(map(torch.equal, outputs, same))
    floor = read / load_machine("h200").rates.memory_gbytes_s / 1e6
    found = {"ditron": mine, "one kernel": whole, **theirs(layers, batch)}
    say(f"{layers} layers, batch {batch}, {read / 1e9:.2f} GB of weights, floor {floor:.2f} ms")
    for name, ms in found.items():
        say(f"{name:16} {ms:8.3f} ms  {ms / mine:6.2f} x ditron  {floor / ms:5.2f} of the floor")
    return {"ms": found, "weights_bytes": read, "floor_ms": floor}


def main() -> None:
    """Print the tables, and write them where all layers ran."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=36)
    parser.add_argument("--batch", type=int, nargs="+", default=[1])
    asked = parser.parse_args()
    for batch in asked.batch:
        data = measure(asked.layers, batch)
        if asked.layers == parser.get_default("layers"):
            used = ("torch", "triton", "transformers")
            data["versions"] = {name: version(name) for name in used}
            data["gpu"] = torch.cuda.get_device_name()
            results(batch).write_text(json.dumps(data, indent=2) + "\n")


if __name__ == "__main__":
    main()
