"""Triton's interpreter, mended and made interruptible. Importing this changes it for good.

* bf16 arithmetic and rounding are wrong in Triton 3.6 to 3.9 (bf16 is held as integers): here it is
  numpy's with `ml_dtypes`.
* `triton.language` is patched once and stays so, since programs are interleaved.
* Every atomic calls `after_atomic`, and inline assembly of `library/` gives its known result.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
    raise ImportError("Triton is here already: set TRITON_INTERPRET=1 before it is first imported")
os.environ["TRITON_INTERPRET"] = "1"
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import ml_dtypes
import numpy as np
import triton.language as tl
from triton.runtime import interpreter

from ditron.backends.triton.library import cuda, hip

Handle = interpreter.TensorHandle
Builder: Any = interpreter.InterpreterBuilder
BF16 = np.dtype(ml_dtypes.bfloat16)

# Called after each atomic: whether it could have changed memory, and the address.
after_atomic: list[Callable[[bool, bytes], None]] = []

_numpy_dtype = interpreter._get_np_dtype
_atomic_rmw = Builder.create_atomic_rmw
_patch_lang = interpreter._patch_lang
_patched: set[int] = set()


def _dtype(type_: Any) -> np.dtype[Any]:
    element = type_.element_ty if isinstance(type_, tl.block_type) else type_
    if isinstance(element, tl.pointer_type):
        return np.dtype(np.uint64)
    return BF16 if element == tl.bfloat16 else _numpy_dtype(type_)


def _raw(data: Any) -> Any:
    return data.view(np.uint16) if data.dtype == BF16 else data


def _load(self: Any, pointers: Any, mask: Any, other: Any, *_: Any, **__: Any) -> Any:
    type_ = pointers.get_element_ty()
    dtype = _dtype(type_)
    raw = np.dtype(np.uint16) if dtype == BF16 else dtype
    fill = np.zeros(pointers.data.shape, raw) if other is None else _raw(other.data)
    data = interpreter._interpreter.load(pointers.data, mask.data.astype(np.bool_), fill, raw)
    return Handle(data.view(dtype), type_)


def _store(self: Any, pointers: Any, value: Any, mask: Any, *_: Any, **__: Any) -> Any:
    inside = mask.data.astype(np.bool_)  # a scalar that was spread is of another type
    return interpreter._interpreter.store(pointers.data, _raw(value.data), inside)


def _cast(self: Any, source: Any, target: Any, *_: Any) -> Any:
    with np.errstate(all="ignore"):
        return Handle(source.data.astype(_dtype(target)), target.scalar)


def _bitcast(self: Any, source: Any, target: Any) -> Any:
    return Handle(np.ascontiguousarray(source.data).view(_dtype(target)), target.scalar)


def _dot(self: Any, a: Any, b: Any, sums: Any, *_: Any) -> Any:
    product = a.data.astype(np.float32) @ b.data.astype(np.float32)
    return Handle((product + sums.data).astype(sums.data.dtype), sums.dtype.scalar)


class _Results:
    def __init__(self, *handles: Any) -> None:
        self._handles = handles

    def get_result(self, index: int) -> Any:
        return self._handles[index]


def _asm(self: Any, text: Any, constraints: Any, values: Any, type_: Any, *_: Any) -> Any:
    known = {**cuda.HOOKS, **hip.HOOKS}
    kind, number = next(known[start] for start in known if str(text).startswith(start))
    if kind == "clock":
        return _Results(Handle(np.full(values[0].data.shape, time.monotonic_ns()), tl.int64))
    data = values[number].data if kind == "operand" else np.full_like(values[0].data, number)
    return _Results(Handle(data.astype(np.int32), tl.int32))


def _rmw(self: Any, op: Any, pointer: Any, value: Any, mask: Any, sem: Any, scope: Any) -> Any:
    result = _atomic_rmw(self, op, pointer, value, mask, sem, scope)
    polled = not np.any(value.data) and "ADD" in str(op)
    for hook in after_atomic:
        hook(not polled, pointer.data.tobytes())
    return result


class _Kept:
    def restore(self) -> None:
        """Nothing: patches stay."""


def _patch_once(fn: Any) -> _Kept:
    if id(fn.__globals__) not in _patched:
        _patched.add(id(fn.__globals__))
        _patch_lang(fn)
    return _Kept()


interpreter._get_np_dtype = _dtype
interpreter._patch_lang = _patch_once
Builder.create_masked_load = _load
Builder.create_masked_store = _store
Builder.cast_impl = _cast
for _name in ("si_to_fp", "ui_to_fp", "fp_to_si", "fp_to_ui", "fp_ext", "fp_trunc", "fp_to_fp"):
    setattr(Builder, f"create_{_name}", _cast)
Builder.create_bitcast = Builder.create_int_to_ptr = Builder.create_ptr_to_int = _bitcast
Builder.create_dot = _dot
Builder.create_inline_asm = _asm
Builder.create_atomic_rmw = _rmw
