"""How wrong an output may be: a bound on rounding, carried through a program beside the truth.

Each value has its true elements (float64), a bound on their error, and the mass: a bound on the sum
of the magnitudes of what the ranks hold of it, which is what rounding the terms of a partial sum
costs. Every op may round its result once on every rank, and what it computes in float32 may be off
by some units of float32; what fusion leaves out only makes results better.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from xdsl.ir import SSAValue

from ditron.ir import task
from ditron.plan.dtypes import DTYPES, Kind
from ditron.plan.placement import Partial
from ditron.plan.spec import TensorSpec
from ditron.runtime.reference import _compute, torch_dtype

F32 = torch.finfo(torch.float32)
FUNCTION_ULPS = 16.0
"""How far off float32 functions may be."""

STEEPEST = {"silu": 1.1, "gelu": 1.13, "relu": 1.0}
"""The largest slope of each function."""

MOVES = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast", "shift", "shard")
"""What changes where elements lie, but for sums of partial terms not what they are."""


@dataclass(frozen=True)
class Bounded:
    """True elements, how far off they may be, and the mass."""

    true: torch.Tensor
    error: torch.Tensor
    mass: torch.Tensor


def bounded_outputs(
    program: task.ProgramOp, inputs: Mapping[str, torch.Tensor]
) -> dict[str, Bounded]:
    """Every output by name."""
    values: dict[SSAValue, Bounded] = {}
    found: dict[str, Bounded] = {}
    for op in program.body.block.ops:
        match op:
            case task.SourceOp():
                true = inputs[op.tensor_name.data].double()
                values[op.result] = Bounded(true, torch.zeros_like(true), true.abs())
            case task.OutputOp():
                result, spec = values[op.operand], task.spec_of(op.operand)
                if Partial() in spec.placements:  # the host adds in float32 and rounds once more
                    result = _rounded(_summed(result, program.mesh.ranks), spec, 1)
                found[op.tensor_name.data] = result
            case task.ComputeOp():
                result = _step(op, [values[o] for o in op.operands], program.mesh.ranks)
                values[op.result] = _rounded(result, task.spec_of(op.result), program.mesh.ranks)
            case _:
                pass
    return found


def _step(op: task.ComputeOp, operands: list[Bounded], ranks: int) -> Bounded:
    """An op before its result is rounded."""
    a, b = operands[0], operands[-1]
    name = op.name.removeprefix("task.")
    if name in MOVES:
        moved = (_compute(op, [part]) for part in (a.true, a.error, a.mass))
        return _summed(Bounded(*moved), ranks)
    true = _compute(op, [o.true for o in operands])
    match name:
        case "matmul":
            error, mass = _matmul(op, a, b)
        case "add" | "sub":
            error, mass = a.error + b.error, a.mass + b.mass
        case "mul":
            error = a.true.abs() * b.error + b.true.abs() * a.error + a.error * b.error
            mass = a.mass * b.mass
        case "exp":
            error, mass = true * torch.expm1(a.error), true
        case "cast":
            true = (true != 0).double() if task.spec_of(op.result).kind is Kind.BOOL else true
            error, mass = a.error, a.mass
        case _:
            error, mass = STEEPEST[name] * a.error, true.abs()
    return Bounded(true, error, mass)


def _matmul(op: task.ComputeOp, a: Bounded, b: Bounded) -> tuple[torch.Tensor, torch.Tensor]:
    """Error and mass of a product."""

    def times(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return _compute(op, [x, y])

    k = a.true.shape[-1]
    mass = times(a.mass + a.error, b.mass + b.error)
    error = times(a.true.abs(), b.error) + times(a.error, b.true.abs() + b.error)
    return error + (k + 2) * F32.eps * mass, mass


def _summed(x: Bounded, ranks: int) -> Bounded:
    return Bounded(x.true, x.error + ranks * F32.eps * x.mass, x.true.abs())


def _rounded(x: Bounded, spec: TensorSpec, ranks: int) -> Bounded:
    """In the dtype of the spec; on every rank where it is a term of a sum."""
    partial = Partial() in spec.placements
    mass = x.mass + x.error if partial else x.true.abs() + x.error
    error = x.error
    if DTYPES[spec.dtype].kind is Kind.FLOAT:
        info = torch.finfo(torch_dtype(spec.dtype))
        lost = info.eps + FUNCTION_ULPS * F32.eps
        error = error + lost * mass + (ranks if partial else 1) * info.smallest_normal * info.eps
    return Bounded(x.true, error, mass)
