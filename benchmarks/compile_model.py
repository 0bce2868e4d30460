"""How long compiling a whole model takes: a decode step of Qwen3-32B on 8 ranks, by layers.

    python -m benchmarks.compile_model --layers 8,16,32,64
    python -m benchmarks.compile_model --model qwen3-8b --tp 1 --target sm_90 --layers 4,12,36

Weights are never made: the program comes from the configuration alone. Prints the CPU seconds of
building the program and of compiling it (passes, proofs, code), the peak memory of the process, and
how many bytes of a rank's heap activations take: with places used again, and each on its own.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

import ditron as dt
from ditron.plan.tables import Plan, Role

MODELS = {
    "qwen3-32b": {
        "model_type": "qwen3",
        "hidden_size": 5120,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 25600,
        "vocab_size": 151936,
        "tie_word_embeddings": False,
    },
    "qwen3-8b": {
        "model_type": "qwen3",
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 12288,
        "vocab_size": 151936,
        "tie_word_embeddings": False,
    },
    "qwen3-0.6b": {
        "model_type": "qwen3",
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 3072,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    },
}


def main() -> None:
    """Print a line for each number of layers."""
    parser = argparse.ArgumentParser(description="compile time and memory of a whole model")
    parser.add_argument("--model", default="qwen3-32b", choices=MODELS)
    parser.add_argument("--layers", default="8,16,32,64")
    parser.add_argument("--tp", type=int, default=8)
    parser.add_argument("--ctx", type=int, default=512)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--megakernel", action="store_true", help="one kernel a step, for GPUs")
    given = parser.parse_args()
    counts = [int(n) for n in given.layers.split(",")]
    if len(counts) > 1:  # each in a process of its own, whose peak memory is its own
        sys.stdout.write(f"{HEADER}\n")
        sys.stdout.flush()
        for layers in counts:
            command = [sys.executable, __file__, "--layers", str(layers)]
            for name in ("model", "tp", "ctx", "batch", "target"):
                command += [f"--{name}", str(getattr(given, name))]
            command += ["--megakernel"] * given.megakernel
            subprocess.run(command, check=True)
        return
    sys.stdout.write(f"{row(given, counts[0])}\n")


HEADER = (
    "layers  grids    tasks   cells  build_s  compile_s  proofs_s  peak_MB"
    "  scratch_MB  of_MB  slots"
)


def row(given: argparse.Namespace, layers: int) -> str:
    """What building and compiling a model of so many layers takes."""
    config = dt.models.read_config({**MODELS[given.model], "num_hidden_layers": layers})
    step = dt.models.Shape(batch=given.batch, tokens=1, ctx=given.ctx, dtype=dt.bf16)
    begin = time.process_time()
    program = dt.models.decoder(config, dt.Mesh(tp=given.tp), step)
    built = time.process_time()
    options = dt.Options(megakernel=given.megakernel)
    with dt.compile(program, target=given.target, options=options) as exe:
        end = time.process_time()
        report, plan = exe.report, exe.plan
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    used, alone, slots = scratch(plan)
    return (
        f"{layers:6} {len(plan.ops):6} {report.tasks:8} {report.cells:7} {built - begin:8.2f}"
        f" {end - built:10.2f} {report.seconds:9.2f} {peak:8.0f} {used / 1e6:11.3f}"
        f" {alone / 1e6:6.2f} {slots:6}"
    )


def scratch(plan: Plan) -> tuple[int, int, int]:
    """Bytes that activations take, what they would alone, and how many places they have."""
    ours = [b for b in plan.buffers if b.role is Role.SCRATCH]
    spans = sorted((b.offset_bytes, b.offset_bytes + b.copies * b.size_bytes) for b in ours)
    used, end, slots = 0, -1, 0
    for lo, hi in spans:
        slots += lo >= end
        used += max(0, hi - max(lo, end))
        end = max(end, hi)
    return used, sum(b.copies * b.size_bytes for b in ours), slots


if __name__ == "__main__":
    main()
