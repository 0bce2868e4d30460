"""The core level: a function on tiles, traced to a `core.func`.

```python
@dt.kernel
def bias_gelu(k, x, b, y, *, block=(64, 128)):       # x [M, N], b [N], y [M, N]
    i, j = k.tile(y, block)
    k.store(y, (i, j), k.gelu(k.load(x, (i, j), block) + k.load(b, (j,), block[1:])))
```

The function runs once for each call in a program, on stand-ins for tensors; what it does to tiles
becomes the kernel that runs for every tile of the result.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain, count
from typing import Any, NoReturn

from xdsl.dialects.builtin import StringAttr

from ditron.builder.kernel_context import Argument, CallContext, Traced, ViewContext
from ditron.errors import ProgramError
from ditron.ir import core
from ditron.ir.attrs import dtype_name
from ditron.plan.callsite import user_line
from ditron.plan.dtypes import DTYPES
from ditron.plan.spec import TensorSpec

_NO_NAME = re.compile(r"[^A-Za-z0-9_]")  # what a symbol's name does not have


class Kernel:
    """A tile kernel, made by `@dt.kernel`; run it by `dt.call` or, in a grid, by `g.call`."""

    def __init__(self, function: Callable[..., object]) -> None:
        self.name = _NO_NAME.sub("_", function.__name__).strip("_") or "kernel"
        self._function = function
        parameters = list(inspect.signature(function).parameters.values())
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        named = [p.name for p in parameters if p.kind in positional]
        options = [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
        if len(named) < 2 or len(named) + len(options) != len(parameters):
            message = (
                f"kernel {self.name} should take k, its tensors with the result last, and options"
                f" by keyword only, as in `def {self.name}(k, x, y, *, block=(64, 128))`"
            )
            raise ProgramError(message, user_line())
        self.tensors: tuple[str, ...] = tuple(named[1:])
        self.options: tuple[str, ...] = tuple(options)
        self.__doc__ = function.__doc__

    def __call__(self, *args: object, **options: object) -> NoReturn:
        message = f"kernel {self.name} runs by dt.call({self.name}, ..., out=...)"
        raise ProgramError(message, user_line())

    def __repr__(self) -> str:
        return f"<kernel {self.name}({', '.join(self.tensors)})>"

    def trace(
        self, inputs: Sequence[TensorSpec], out: TensorSpec, options: Mapping[str, Any]
    ) -> Traced:
        """The kernel for tensors of these shapes and dtypes."""
        self._check(len(inputs) + 1, options, f"{len(inputs)} and out")
        specs = zip(self.tensors, [*inputs, out], strict=True)
        args = [Argument(name, s.shape, DTYPES[s.dtype]) for name, s in specs]
        context = CallContext(self.name, args)
        self._function(context, *args, **options)
        return context.finish()

    def trace_views(
        self, views: Sequence[core.ViewType], options: Mapping[str, Any]
    ) -> core.FuncOp:
        """The kernel for views of these types; each is loaded and stored whole."""
        self._check(len(views), options, f"{len(views)} views")
        types = zip(self.tensors, views, strict=True)
        args = [Argument(n, t.dims, DTYPES[dtype_name(t.element_type)]) for n, t in types]
        context = ViewContext(self.name, args)
        self._function(context, *args, **options)
        return context.finish()

    def _check(self, count: int, options: Mapping[str, object], came: str) -> None:
        if count != len(self.tensors):
            message = (
                f"kernel {self.name} takes {len(self.tensors)} tensors, {', '.join(self.tensors)},"
                f" the last of which is its result; got {came}"
            )
            raise ProgramError(message)
        for name in options:
            if name not in self.options:
                message = (
                    f"kernel {self.name} has no option {name!r}; it has"
                    f" {', '.join(self.options) or 'none'}"
                )
                raise ProgramError(message)


def kernel(function: Callable[..., object]) -> Kernel:
    """Make a tile kernel of a function; see `ditron.builder.core`."""
    return Kernel(function)


def distinct_kernel(
    kernels: dict[str, core.FuncOp], func: core.FuncOp, taken: Collection[str]
) -> str:
    """Add a function to others, under a name of its own, unless it is one of them; its name."""
    wanted = func.kernel_name
    for name, known in kernels.items():
        if name.startswith(wanted) and func.body.is_structurally_equivalent(known.body):
            return name
    names = chain([wanted], (f"{wanted}_{i}" for i in count(1)))
    name = next(n for n in names if n not in kernels and n not in taken)
    func.sym_name = StringAttr(name)
    kernels[name] = func
    return name
