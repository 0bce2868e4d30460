"""Predicted against measured on an H200, no GPU needed: `python -m benchmarks.gpu_predicted`.

The programs behind benchmarks/results/gpu_gemm.json and gpu_overlap.json are compiled again,
and their plans are played on machines/h200.yaml; in gpu_overlap the peers are
behind PCIe, so their link has its rate. `--decode` adds a decode step of Qwen3-8B, which takes
longer to compile. Times in ms; the ratio is predicted over measured.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from msgspec.structs import replace

import ditron as dt
from benchmarks import gpu_decode, gpu_gemm, gpu_overlap
from benchmarks.gpu_first_run import say
from ditron.analysis.timeline import play
from ditron.plan.machine import Machine, load_machine
from ditron.plan.tables import Plan

PCIE_GBYTES_S = 55.0  # pinned memory of the host, one way

Pair = tuple[str, float, float]
"""What it is; predicted and measured ms."""


def results(path: Path) -> dict[str, Any]:
    """A file of results."""
    return json.loads(path.read_text(encoding="utf-8"))


def predicted_ms(plan: Plan, machine: Machine) -> float:
    """A launch of a plan."""
    return play(plan, machine).makespan_us / 1e3


def behind_pcie(machine: Machine) -> Machine:
    """The machine with peers at PCIe's rate, which copy engines then reach."""
    copy = replace(machine.engines["copy"], gbytes_s=PCIE_GBYTES_S)
    return replace(
        machine,
        topology=replace(machine.topology, gbytes_s=PCIE_GBYTES_S),
        engines={**machine.engines, "copy": copy},
    )


def products(machine: Machine) -> Iterator[Pair]:
    """Emitted products of one rank."""
    for row in results(gpu_gemm.RESULTS)["rows"]:
        shape = (row["m"], row["n"], row["k"])
        with dt.compile(gpu_gemm.program_of(shape), target="sm_90") as exe:
            predicted = predicted_ms(exe.plan, machine)
        yield "GEMM {}, {}, {}".format(*shape), predicted, row["ditron_ms"]


def overlaps(machine: Machine) -> Iterator[Pair]:
    """AG+GEMM and GEMM+RS beside copies over PCIe."""
    for row in results(gpu_overlap.RESULTS)["rows"]:
        program, options = gpu_overlap.asked(row["shape"], machine.engines["sm"].lanes)
        with dt.compile(program, target="sm_90", options=options) as exe:
            predicted = predicted_ms(exe.plan, behind_pcie(machine))
        yield row["shape"], predicted, row["overlapped"]


def decode(machine: Machine) -> Iterator[Pair]:
    """A step of a whole model, a kernel a grid."""
    plan, _ = gpu_decode.compiled(36, megakernel=False)
    measured = results(gpu_decode.RESULTS)["ms"]["ditron"]
    yield "decode step, 36 layers", predicted_ms(plan, machine), measured


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decode", action="store_true", help="a decode step too")
    given = parser.parse_args()
    machine = load_machine("h200")
    kinds = (products, overlaps, decode) if given.decode else (products, overlaps)
    for kind in kinds:
        ratios: list[float] = []
        for what, predicted, measured in kind(machine):
            ratios.append(predicted / measured)
            say(
                f"{what:<24} predicted {predicted:6.3f}, measured {measured:6.3f}: {ratios[-1]:.2f}"
            )
        mean = geometric_mean(ratios)
        say(f"geometric mean {mean:.2f}, from {min(ratios):.2f} to {max(ratios):.2f}")


if __name__ == "__main__":
    main()
