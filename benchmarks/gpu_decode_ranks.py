"""A decode step of Qwen3-8B's shapes on several ranks: `python -m benchmarks.gpu_decode_ranks`.

    python -m benchmarks.gpu_decode_ranks --layers 4 --ranks 1 2 4

bfloat16, batch 1, a cache of 512 places, random weights, tensor-parallel: each layer has two
all-reduces. Ranks take a GPU each where there are enough, else they share one under MPS, whose SMs
are then split between them, so that no step can be faster than that of one rank. Each number of
ranks is measured as a kernel a grid and as one persistent kernel a rank; medians of the slowest
rank's device time, in ms. Logits are compared with those of one rank.
"""

from __future__ import annotations

import argparse
from math import prod
from statistics import median

import torch

import ditron as dt
from benchmarks.gpu_decode import CTX, FIELDS, PLACE
from benchmarks.gpu_first_run import say
from ditron.errors import DitronError
from ditron.plan.tables import Role

REPEATS, PROGRAMS = 40, 264
TOKEN = 77
NOISE = (1 << 22) + 1  # numbers drawn, and repeated in large weights


def step(layers: int, ranks: int) -> dt.Program:
    """The program of a step."""
    config = dt.models.read_config({"model_type": "qwen3", "num_hidden_layers": layers, **FIELDS})
    shape = dt.models.Shape(batch=1, tokens=1, ctx=CTX, dtype=dt.bf16)
    return dt.models.decoder(config, dt.Mesh(tp=ranks), shape, outputs=["next", "logits"])


def weights_of(exe: dt.Executable) -> dict[str, torch.Tensor]:
    """Seeded weights: gains are 1, and positions turn nothing."""
    generator = torch.Generator().manual_seed(5)
    noise = torch.randn(NOISE, generator=generator).mul_(0.02).to(torch.bfloat16)
    found: dict[str, torch.Tensor] = {}
    for name, spec in exe.tensors(Role.WEIGHT).items():
        if str(spec.dtype) == "i64":
            found[name] = torch.arange(prod(spec.shape)).view(spec.shape)
        elif name in ("cos", "sin"):
            found[name] = torch.full(spec.shape, float(name == "cos"))
        elif len(spec.shape) == 1:
            found[name] = torch.ones(spec.shape, dtype=torch.bfloat16)
        else:
            found[name] = noise.repeat(-(-prod(spec.shape) // len(noise)))[: prod(spec.shape)]
            found[name] = found[name].view(spec.shape)
    return found


def measured(
    layers: int, ranks: int, weights: dict[str, torch.Tensor], *, megakernel: bool
) -> tuple[float, torch.Tensor]:
    """The median step in ms, and its logits; weights are drawn by the first call."""
    shared = -(-ranks // torch.cuda.device_count())
    workers = None if shared == 1 else (PROGRAMS if megakernel else PROGRAMS // 2) // shared
    options = dt.Options(library=False, megakernel=megakernel, workers=workers)
    with dt.compile(step(layers, ranks), target="cuda", options=options) as exe:
        weights |= {} if weights else weights_of(exe)
        shape = exe.tensors(Role.WEIGHT)["tokens"].shape  # cut by ranks
        exe.bind({**weights, "tokens": weights["tokens"].view(shape)})
        inputs = {"ids": torch.tensor([[TOKEN]]), "pos": PLACE}
        logits = exe.run(inputs)["logits"].float()
        return 1e3 * median(exe.measure(inputs, REPEATS)), logits


def main() -> None:
    """Print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    given = parser.parse_args()
    weights: dict[str, torch.Tensor] = {}
    alone: dict[bool, tuple[float, torch.Tensor]] = {}
    for ranks in given.ranks:
        for whole in (False, True):
            what = f"{given.layers} layers, {ranks} ranks, {'one kernel' if whole else 'kernels'}"
            try:
                ms, logits = measured(given.layers, ranks, weights, megakernel=whole)
            except DitronError as error:
                say(f"{what}: {error}")
                continue
            first_ms, first = alone.setdefault(whole, (ms, logits))
            apart = ((logits - first).square().sum() / first.square().sum()).sqrt().item()
            say(f"{what}: {ms:.3f} ms, {ms / first_ms:.2f} of one rank's, logits {apart:.1e} apart")


if __name__ == "__main__":
    main()
