"""What melts into products of one row: compiled for both vendors, and interpreted against torch."""

from __future__ import annotations

import pytest
import torch
from triton_support import cross, interpreted, random_inputs, run

import ditron as dt
from ditron.backends.triton import compile as compiling
from ditron.backends.triton.interpreted import Worker
from ditron.plan.dtypes import DType
from ditron.runtime.inputs import torch_dtype

R = dt.Replicate()


def program(dtype: DType, rows: int = 1, k: int = 1100, n: int = 40) -> dt.Program:
    """A norm, two column blocks of a product, what is made of them, a product and a residual."""
    with dt.Program("gated", dt.Mesh(tp=1)) as p:
        x, gain = p.input("x", (rows, k), dtype, R), p.weight("gain", (k,), dtype, R)
        up, down = (p.weight(name, (2 * n, k), dtype, R) for name in ("up", "down"))
        both = dt.matmul(dt.rms_norm(x, gain), up, transpose_b=True)
        inner = dt.silu(dt.slice(both, 1, 0, n)) * dt.slice(both, 1, n, n)
        p.output("y", dt.matmul(inner, dt.slice(down, 0, 0, n)) + x)
    return p


@pytest.mark.parametrize("dtype", [dt.f32, dt.bf16, dt.f16])
def test_fused_rows_agree(worker: Worker, dtype: DType) -> None:
    gated = program(dtype)
    exe = dt.compile(gated, target="sm_90", options=dt.Options(workers=2))
    assert len(cross(exe).program.launches) == 2
    interpreted(exe, worker)
    inputs = {name: x.to(torch_dtype(dtype.name)) for name, x in random_inputs(exe, 1).items()}
    exact = gated.reference(inputs, compute=torch.float64)["y"]
    theirs, ours = gated.reference(inputs)["y"], run(exe, inputs)["y"]
    assert error(ours, exact) <= 2 * error(theirs, exact) + torch.finfo(ours.dtype).eps


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    """As a part of the largest."""
    return float((found.double() - exact).abs().max() / exact.abs().max())


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
@pytest.mark.parametrize("dtype", [dt.f32, dt.bf16])
def test_fused_rows_compile(target: str, dtype: DType) -> None:
    exe = dt.compile(program(dtype), target=target, options=dt.Options(workers=4))
    assert len(compiling.compile_program(cross(exe).program)) == 2


def test_a_scale_is_multiplied_after_the_product() -> None:
    """The loop makes the norm's sum beside the product's; float16 might overflow without it."""
    source = cross(dt.compile(program(dt.bf16), target="sm_90")).program.source
    assert source.count("added +=") == 1
    assert "* rsqrt" in source.split("tl.sum(added)")[1]
    source = cross(dt.compile(program(dt.f16), target="sm_90")).program.source
    assert "added" not in source


def test_matrices_keep_their_operands_in_memory() -> None:
    exe = dt.compile(program(dt.bf16, rows=64), target="sm_90")
    assert next(launch.kernel for launch in cross(exe).program.launches) == "rms_norm"
