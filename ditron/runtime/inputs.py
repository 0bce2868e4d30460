"""What a program is given: tensors and numbers, checked against what it declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch

from ditron.errors import InputError
from ditron.ir import task
from ditron.plan.dtypes import DTYPES, Kind
from ditron.plan.spec import TensorSpec

Tensors = dict[str, torch.Tensor]


def check_inputs(program: task.ProgramOp, inputs: Mapping[str, torch.Tensor | float]) -> Tensors:
    """All inputs as tensors; names, shapes and dtypes must be exactly the program's.

    Raises:
        InputError: they are not.
    """
    check_mapping("input", inputs)
    specs = {op.tensor_name.data: task.spec_of(op.result) for op in program.sources}
    states = [op.tensor_name.data for op in program.states]
    zeros = {name: zeros_of(specs[name]) for name in states}
    scalars = {
        op.tensor_name.data: scalar_tensor(op, inputs[op.tensor_name.data])
        for op in program.scalars
        if op.tensor_name.data in inputs
    }
    given = cast("dict[str, torch.Tensor]", {**zeros, **inputs, **scalars})
    check_tensors(program.program_name, "input", specs, given)
    return given


def zeros_of(spec: TensorSpec) -> torch.Tensor:
    """What a state holds at first."""
    return torch.zeros(spec.shape, dtype=torch_dtype(spec.dtype))


def scalar_tensor(op: task.ScalarOp, number: torch.Tensor | float) -> torch.Tensor:
    """A run-time number as the tensor that stands for it.

    Raises:
        InputError: it does not fit the scalar's dtype, or is beyond its max.
    """
    return as_scalar(op.tensor_name.data, task.spec_of(op.result), op.most, number)


def as_scalar(
    name: str, spec: TensorSpec, most: int | None, number: torch.Tensor | float
) -> torch.Tensor:
    """The same, of a scalar by its name, spec and largest number."""
    if isinstance(number, torch.Tensor):
        tensor = number.reshape(1) if not number.shape else number
        if tensor.shape != (1,):
            return tensor  # for `check_tensors` to refuse
    else:
        whole = DTYPES[spec.dtype].kind is Kind.FLOAT or isinstance(number, int)
        if not whole or (most is None and not _fits(number, spec)):
            message = f'scalar "{name}" is of dtype {spec.dtype}, got {number!r}'
            raise InputError(message)
        bounded = number if most is None else min(max(number, -1), most + 1)
        tensor = torch.tensor([bounded], dtype=torch_dtype(spec.dtype))
    if most is not None and not 0 <= int(tensor) <= most:
        message = f'scalar "{name}" should be 0 to {most}, got {number}'
        raise InputError(message)
    return tensor


def _fits(number: float, spec: TensorSpec) -> bool:
    if DTYPES[spec.dtype].kind is not Kind.INT:
        return True
    info = torch.iinfo(torch_dtype(spec.dtype))
    return info.min <= number <= info.max


def check_tensors(
    program: str, what: str, specs: Mapping[str, TensorSpec], given: Mapping[str, torch.Tensor]
) -> None:
    """Tensors must be exactly those that the specs describe.

    Raises:
        InputError: a name is missing or unknown, or a shape or dtype is another.
    """
    check_mapping(what, given)
    if given.keys() != specs.keys():
        missing = ", ".join(sorted(specs.keys() - given.keys())) or "none"
        unknown = ", ".join(sorted(given.keys() - specs.keys())) or "none"
        message = (
            f'program "{program}" takes {what}s {", ".join(specs) or "none"};'
            f" missing: {missing}, unknown: {unknown}"
        )
        raise InputError(message)
    for name, spec in specs.items():
        tensor = given[name]
        if not isinstance(tensor, torch.Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(
                f'{what} "{name}" should be a torch tensor, got {type(tensor).__name__}'
            )
        if tensor.layout != torch.strided or tensor.device.type == "meta":
            raise InputError(f'{what} "{name}" should be a strided tensor with data')
        if tuple(tensor.shape) != spec.shape or tensor.dtype != torch_dtype(spec.dtype):
            message = (
                f'{what} "{name}" should have shape {spec.shape} and dtype'
                f" {torch_dtype(spec.dtype)}, got {tuple(tensor.shape)} and {tensor.dtype}"
            )
            raise InputError(message)


def check_mapping(what: str, given: object) -> None:
    """Tensors are given by name, else an InputError."""
    if not isinstance(given, Mapping):
        raise InputError(f"{what}s are a dict of tensors by name, got {type(given).__name__}")


def torch_dtype(dtype: str) -> torch.dtype:
    """Torch's dtype of a ditron dtype's name."""
    return getattr(torch, DTYPES[dtype].torch_name)
