"""What a library computes of a plan: torch's products (cuBLAS) and sums, a call a task.

A call is made once, on the task's own boxes, and then enqueues on the current stream.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator
from contextlib import contextmanager

import torch

ROUNDING = ("allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction")
STREAM_KERNELS = "ditron.backends.copy_engine.kernels"

Call = Callable[[], object]


def bind(what: str, views: list[torch.Tensor]) -> Call:
    """The call of a task.

    Args:
        what: "product", "product-transposed" or "sum".
        views: the task's boxes, the last one is written.
    """
    *parts, target = views
    if what == "sum":
        return _sum(parts, target)
    lhs, rhs = parts
    if what == "product-transposed":
        rhs = rhs.t()

    def multiply() -> None:
        with _float32_sums():
            torch.mm(lhs, rhs, out=target)

    return multiply


@contextmanager
def _float32_sums() -> Generator[None]:
    """By default cuBLAS may round partial sums of a product to its operands' type."""
    flags = torch.backends.cuda.matmul
    before = [getattr(flags, name) for name in ROUNDING]
    for name in ROUNDING:
        setattr(flags, name, False)
    try:
        yield
    finally:
        for name, value in zip(ROUNDING, before, strict=True):
            setattr(flags, name, value)


def _sum(parts: list[torch.Tensor], target: torch.Tensor) -> Call:
    """Added in float32 from first to last and rounded once."""
    if len(parts) == 1:
        return lambda: target.copy_(parts[0])
    if len(parts) == 2 or target.dtype == torch.float32:

        def add() -> None:
            torch.add(parts[0], parts[1], out=target)
            for part in parts[2:]:
                target.add_(part)

        return add
    return importlib.import_module(STREAM_KERNELS).adder(parts, target)
