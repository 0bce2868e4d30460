"""Compiles the emitted Python source of a plan's kernels."""

from __future__ import annotations

import linecache
import zlib
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

Kernel = Callable[..., None]


def gather(ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Rows of a table; zeros for an id that it has not."""
    rows = table.new_zeros((*ids.shape, table.shape[1]))
    known = (ids >= 0) & (ids < table.shape[0])
    rows[known] = table[ids[known]]
    return rows


def store_at(view: torch.Tensor, tile: torch.Tensor, at: int, dim: int) -> None:
    """Write over part of a dimension; what is beyond the view is left out."""
    first, end = max(at, 0), min(at + tile.shape[dim], view.shape[dim])
    if first < end:
        view.narrow(dim, first, end - first).copy_(tile.narrow(dim, first - at, end - first))


def compile_kernels(source: str) -> dict[str, Kernel]:
    """The kernels of a source: its table `KERNELS`, or else its functions, by name.

    Each takes the torch views of a task's accesses in order. The source is put in `linecache`, so
    that a traceback shows the line that failed.
    """
    file = f"<ditron kernels {zlib.crc32(source.encode()):08x}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope: dict[str, Any] = {"torch": torch, "gather": gather, "store_at": store_at}
    exec(compile(source, file, "exec"), scope)
    if "KERNELS" in scope:
        return scope["KERNELS"]
    return {k: v for k, v in scope.items() if isinstance(v, FunctionType)}
