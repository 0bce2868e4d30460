"""How close outputs come to the true result, and whether replicas agree to the bit.

The truth is the program in float64 without any rounding. An output may be wrong by twice what
torch's own result is wrong by, plus one unit in the last place of the output's largest value: torch
and ditron add in different orders, so neither is the other's truth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from ditron.ir import task
from ditron.plan.placement import Replicate
from ditron.runtime.reference import reference

MARGIN = 2.0
"""How many times torch's own error is allowed."""

ReadLocal = Callable[[str, int], torch.Tensor]
"""An output's local tensor on a rank."""


@dataclass(frozen=True)
class Agreement:
    """One output against float64. Errors are the largest absolute ones."""

    output: str
    error: float
    torch_error: float
    ulp: float
    replicas: int
    replicas_equal: bool

    @property
    def bound(self) -> float:
        return MARGIN * self.torch_error + self.ulp

    @property
    def agrees(self) -> bool:
        return self.error <= self.bound and self.replicas_equal

    def __str__(self) -> str:
        verdict = "agrees" if self.error <= self.bound else "DIFFERS"
        text = (
            f"{self.output} {verdict} with float64: error {self.error:.3e}, torch's own"
            f" {self.torch_error:.3e}, allowed {self.bound:.3e}"
        )
        if self.replicas > 1:
            equal = "are bit-equal" if self.replicas_equal else "DIFFER"
            text += f"; {self.replicas} replicas {equal}"
        return text


def check_outputs(
    program: task.ProgramOp,
    inputs: Mapping[str, torch.Tensor],
    outputs: Mapping[str, torch.Tensor],
    read_local: ReadLocal,
) -> list[Agreement]:
    """Compare every output with the float64 reference, and replicas with each other."""
    theirs = reference(program, inputs)
    truth = reference(program, inputs, compute=torch.float64)
    found: list[Agreement] = []
    for op in program.outputs:
        name = op.tensor_name.data
        ranks = _replicas(op, program.mesh.ranks)
        first = [read_local(name, rank) for rank in ranks]
        found.append(
            Agreement(
                name,
                largest_error(outputs[name], truth[name]),
                largest_error(theirs[name], truth[name]),
                last_place(truth[name], outputs[name].dtype),
                max(len(ranks), 1),
                all(bit_equal(first[0], other) for other in first[1:]),
            )
        )
    return found


def _replicas(op: task.OutputOp, ranks: int) -> range:
    """The ranks that hold the whole output, where they all do."""
    whole = all(p == Replicate() for p in task.spec_of(op.operand).placements)
    return range(ranks if whole else 0)


def largest_error(result: torch.Tensor, truth: torch.Tensor) -> float:
    """The largest |result - truth|; infinite where only one of them is finite."""
    if truth.numel() == 0:
        return 0.0
    a, b = result.to(torch.float64), truth.to(torch.float64)
    same = (a == b) | (a.isnan() & b.isnan())
    difference = (a - b).abs().nan_to_num(nan=math.inf, posinf=math.inf)
    return float(torch.where(same, 0.0, difference).max())


def last_place(truth: torch.Tensor, dtype: torch.dtype) -> float:
    """One unit in the last place, in `dtype`, of the largest finite value; 0 for integers."""
    if not dtype.is_floating_point:
        return 0.0
    info = torch.finfo(dtype)
    values = truth[truth.isfinite()]
    largest = float(values.abs().max()) if values.numel() else 0.0
    _, exponent = math.frexp(max(largest, info.tiny))
    return math.ldexp(info.eps, exponent - 1)


def bit_equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors hold the same bytes, NaNs included."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.numel() == 0:
        return True
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))
