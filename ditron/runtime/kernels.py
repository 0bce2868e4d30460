"""Compiles the emitted Python source of a plan's kernels."""

from __future__ import annotations

import linecache
import zlib
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

Kernel = Callable[..., None]


def compile_kernels(source: str) -> dict[str, Kernel]:
    """The kernels of a source: its table `KERNELS`, or else its functions, by name.

    Each takes the torch views of a task's accesses in order. The source is put in `linecache`, so
    that a traceback shows the line that failed.
    """
    file = f"<ditron kernels {zlib.crc32(source.encode()):08x}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope: dict[str, Any] = {"torch": torch}
    exec(compile(source, file, "exec"), scope)
    if "KERNELS" in scope:
        return scope["KERNELS"]
    return {k: v for k, v in scope.items() if isinstance(v, FunctionType)}
