"""Tensors for a program: seeded normals, or a safetensors file."""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path

import safetensors
import torch
from safetensors.torch import load
from xdsl.ir import SSAValue

from ditron.errors import OptionError
from ditron.ir import task
from ditron.plan.dtypes import DTYPES, Kind
from ditron.plan.spec import TensorSpec

Tensors = dict[str, torch.Tensor]

INTEGER_RANGE = 4
"""Integer inputs lie in -4..4."""


def load_inputs(path: Path) -> Tensors:
    """Tensors by name, from a safetensors file.

    Raises:
        OptionError: there is no such file, or it is none.
    """
    try:
        return load(path.read_bytes())
    except (OSError, safetensors.SafetensorError) as error:
        msg = f"cannot read inputs from {path}: {error}"
        raise OptionError(msg) from error


def make_inputs(program: task.ProgramOp, seed: int) -> Tensors:
    """Every input, weight and number of a program: normals scaled by 1/sqrt(K), by a seed.

    K is the length of the sums that a tensor takes part in, so that results stay below 1 at any
    size. Each tensor's values depend on its name and shape only, not on the others.
    """
    lengths = _contractions(program)
    rows = {
        op.ids: task.spec_of(op.table).shape[0]
        for op in program.body.block.ops
        if isinstance(op, task.EmbeddingOp)
    }
    tensors: Tensors = {}
    for op in (*program.inputs, *program.scalars):
        name, spec = op.tensor_name.data, task.spec_of(op.result)
        most = op.most if isinstance(op, task.ScalarOp) else None
        below = rows.get(op.result) if most is None else most + 1
        tensors[name] = (
            _random(spec, lengths.get(op.result, 1), seed, name)
            if below is None
            else _numbers(spec, below, seed, name)
        )
    return tensors


def make_tensors(specs: Mapping[str, TensorSpec], seed: int) -> Tensors:
    """Tensors by name as `make_inputs` makes them, where it is not known what becomes of them."""
    return {name: _random(spec, 1, seed, name) for name, spec in specs.items()}


def _numbers(spec: TensorSpec, below: int, seed: int, name: str) -> torch.Tensor:
    """Ids and positions: whole numbers from 0 on."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
    values = torch.randint(0, max(below, 1), spec.shape, generator=generator)
    return values.to(getattr(torch, DTYPES[spec.dtype].torch_name))


def _random(spec: TensorSpec, length: int, seed: int, name: str) -> torch.Tensor:
    dtype: torch.dtype = getattr(torch, DTYPES[spec.dtype].torch_name)
    # Torch's generator takes 32 bits of a seed.
    generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
    match DTYPES[spec.dtype].kind:
        case Kind.FLOAT:
            values = torch.randn(spec.shape, generator=generator)
            return (values / math.sqrt(max(length, 1))).to(dtype)
        case Kind.INT:
            bounds = (-INTEGER_RANGE, INTEGER_RANGE + 1)
            return torch.randint(*bounds, spec.shape, generator=generator).to(dtype)
        case Kind.BOOL:
            return torch.randint(0, 2, spec.shape, generator=generator).to(dtype)


def _contractions(program: task.ProgramOp) -> dict[SSAValue, int]:
    """For each input that reaches a matmul, the length K of that matmul's sums."""
    lengths: dict[SSAValue, int] = {}
    origins: dict[SSAValue, frozenset[SSAValue]] = {}  # inputs with no matmul between
    for op in program.body.block.ops:
        reached = frozenset[SSAValue]().union(*(origins[value] for value in op.operands))
        if isinstance(op, task.MatmulOp):
            lengths |= dict.fromkeys(reached, task.spec_of(op.lhs).shape[-1])
            reached = frozenset[SSAValue]()
        for result in op.results:
            source = isinstance(op, task.InputOp | task.WeightOp)
            origins[result] = frozenset({result}) if source else reached
    return lengths


def split_weights(
    names: Collection[str], tensors: Mapping[str, torch.Tensor]
) -> tuple[Tensors, Tensors]:
    """The tensors as (inputs, weights), which have these names."""
    inputs = {name: tensor for name, tensor in tensors.items() if name not in names}
    return inputs, {name: tensor for name, tensor in tensors.items() if name in names}
