"""Calls of tile kernels (`@dt.kernel`) as ops of a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ditron.builder.arguments import as_name, as_placements, as_shape, at_user_line
from ditron.builder.core import Kernel
from ditron.builder.value import Value, emit, program_of
from ditron.errors import ProgramError
from ditron.ir import task
from ditron.ir.task_program import CommonArgs
from ditron.plan.dtypes import DType, as_dtype
from ditron.plan.placement import Placement
from ditron.plan.spec import TensorSpec, check_spec

if TYPE_CHECKING:
    import torch


@at_user_line()
def call(
    kernel: Kernel,
    *args: Value,
    out: Value | TensorSpec,
    name: str | None = None,
    **options: Any,  # noqa: ANN401 - whatever the kernel takes
) -> Value:
    """Run a tile kernel (`@dt.kernel`) on each tile of a result that is typed like `out`.

    Placements: an operand that is cut along with the result lies as it does or is a replica; one
    that is read whole is a replica. `options` are the kernel's own, by keyword.
    """
    if not isinstance(kernel, Kernel):  # pyright: ignore[reportUnnecessaryIsInstance]
        message = f"call takes a kernel, made by @dt.kernel, got {kernel!r}"
        raise ProgramError(message)
    values = [*args, out] if isinstance(out, Value) else list(args)
    program = program_of(f"call of {kernel.name}", *values)
    if name is not None:
        as_name(name, f"call of {kernel.name}")
    spec = out.spec if isinstance(out, Value) else out
    traced = kernel.trace([a.spec for a in args], spec, options)
    operands = [args[i] for i in traced.sources]
    names = [args[i].name or kernel.tensors[i] for i in traced.sources]
    func = program.add_kernel(traced.func)
    common: CommonArgs = {"op_name": name, "names": names}
    op = task.CallOp(func, [v.ssa for v in operands], traced.cuts, spec, **common)
    return emit(values[0], op)


@at_user_line()
def like(
    x: Value,
    *,
    shape: Sequence[int] | None = None,
    dtype: DType | torch.dtype | None = None,
    placements: Placement | Sequence[Placement] | None = None,
) -> TensorSpec:
    """What `call` may be given as `out`: a tensor like `x`, with some things other than its."""
    program = program_of("like", x)
    dims = x.shape if shape is None else as_shape(shape, "like")
    layout = x.placements
    if placements is not None:
        layout = as_placements(placements, program.mesh, len(dims), "like")
    element = x.dtype if dtype is None else as_dtype(dtype)
    spec = TensorSpec(dims, element.name, layout)
    check_spec(spec, len(program.mesh.axes), "like")
    return spec
