"""One executable launched again and again: the same bits, no growth; weights bound again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from test_end_to_end import mlp, rank_pids

import ditron as dt
from ditron.plan.tables import Role
from ditron.tools.check import bit_equal


def tensors(exe: dt.Executable, role: Role, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(spec.shape, generator=generator)
        for name, spec in exe.tensors(role).items()
    }


def resources(processes: list[int]) -> Iterator[tuple[int, int]]:
    """Of each process its resident kilobytes, shared ones left out, and how many files it has."""
    for pid in processes:
        status = Path(f"/proc/{pid}/status").read_text()
        private = next(line for line in status.splitlines() if line.startswith("RssAnon"))
        yield int(private.split()[1]), len(os.listdir(f"/proc/{pid}/fd"))


def launch_again(many: int) -> None:
    with dt.compile(mlp(2, dt.f32)) as exe:
        exe.bind(tensors(exe, Role.WEIGHT, 0))
        inputs = tensors(exe, Role.INPUT, 1)
        first = exe.run(inputs)
        processes = [os.getpid(), *rank_pids(exe)]
        before = list[tuple[int, int]]()
        for number in range(many):
            if number == many // 10:
                before = list(resources(processes))
            again = exe.run(inputs)
            assert all(bit_equal(first[name], again[name]) for name in first), number
        for (kilobytes, files), (old, had) in zip(resources(processes), before, strict=True):
            assert kilobytes - old < 4096
            assert files == had


def test_some_launches():
    launch_again(500)


@pytest.mark.exhaustive
def test_100_000_launches():
    launch_again(100_000)


@pytest.mark.parametrize("algorithm", ["mesh-in-place", "mesh-pull", "mesh-push"])
def test_weights_that_peers_pull_may_be_bound_again(algorithm: str):
    with dt.Program("gathered", dt.Mesh(tp=3)) as p:
        x = p.input("x", (6, 8), dt.f32, dt.Replicate())
        w = p.weight("w", (8, 7), dt.f32, dt.Shard(1))
        p.output("y", dt.matmul(x, dt.all_gather(w, dim=1)))
    with dt.compile(p, options=dt.Options(algorithm=algorithm)) as exe:
        inputs = {"x": torch.eye(6, 8)}
        for seed in range(4):
            weights = tensors(exe, Role.WEIGHT, seed)
            exe.bind(weights)
            for _ in range(3):
                assert torch.equal(exe.run(inputs)["y"], weights["w"][:6])
