"""ditron: tensor programs on many devices, overlapped, proved right, then run.

```python
import ditron as dt

with dt.Program("ag_gemm", dt.Mesh(tp=4)) as p:
    x = p.input("x", (2048, 1024), dt.bf16, dt.Shard(0))
    w = p.input("w", (1024, 2048), dt.bf16, dt.Shard(1))
    p.output("y", dt.matmul(dt.all_gather(x, dim=0), w))
```

Importing it needs neither torch nor a compiler: what compiles and runs is loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ditron import errors
from ditron.builder.call import call, like
from ditron.builder.collectives import (
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    redistribute,
    reduce_scatter,
    shard,
    shift,
)
from ditron.builder.core import Kernel, kernel
from ditron.builder.device import DeviceProgram
from ditron.builder.grid import Grid
from ditron.builder.indices import Index
from ditron.builder.layers import (
    amax,
    argmax,
    attention,
    embedding,
    rms_norm,
    rope,
    softmax,
)
from ditron.builder.memory import Buffer, Signals, View
from ditron.builder.task import Program
from ditron.builder.value import Value, add, cast, exp, gelu, matmul, mul, relu, silu, sub
from ditron.builder.views import concat, reshape, slice, split, transpose, update  # noqa: A004
from ditron.errors import DitronError
from ditron.plan.dtypes import DType, bf16, f16, f32, i32, i64
from ditron.plan.dtypes import bool_ as bool  # noqa: A004 - the public name, as torch has it
from ditron.plan.options import OpOptions, Options
from ditron.plan.placement import Mesh, Partial, Replicate, Shard

if TYPE_CHECKING:
    from ditron import models as models
    from ditron.buckets import BucketedExecutable
    from ditron.compiler import compile as compile  # noqa: A004
    from ditron.executable import Executable

__all__ = [
    "BucketedExecutable",
    "Buffer",
    "DType",
    "DeviceProgram",
    "DitronError",
    "Executable",
    "Grid",
    "Index",
    "Kernel",
    "Mesh",
    "OpOptions",
    "Options",
    "Partial",
    "Program",
    "Replicate",
    "Shard",
    "Signals",
    "Value",
    "View",
    "add",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "amax",
    "argmax",
    "attention",
    "bf16",
    "bool",
    "broadcast",
    "call",
    "cast",
    "compile",
    "concat",
    "embedding",
    "errors",
    "exp",
    "f16",
    "f32",
    "gelu",
    "i32",
    "i64",
    "kernel",
    "like",
    "matmul",
    "models",
    "mul",
    "redistribute",
    "reduce_scatter",
    "relu",
    "reshape",
    "rms_norm",
    "rope",
    "shard",
    "shift",
    "silu",
    "slice",
    "softmax",
    "split",
    "sub",
    "transpose",
    "update",
]


def __getattr__(name: str) -> object:
    if name == "models":
        value = import_module("ditron.models")
    elif name in ("BucketedExecutable", "Executable", "compile"):
        value = getattr(import_module("ditron.compiler"), name)
    else:
        message = f"module 'ditron' has no attribute {name!r}"
        raise AttributeError(message)
    globals()[name] = value
    return value
