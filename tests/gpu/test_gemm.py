"""Matmuls of sizes that fit no tile, on one rank, against torch; by hand, where a GPU is.

python -m pytest -m gpu tests/gpu
"""

from __future__ import annotations

import pytest
import torch

import ditron as dt
from ditron.ir import task
from ditron.tools.inputs import make_inputs

# (M, N, K): K or N that no descriptor serves, blocks beyond all ends, a last wave cut finer.
SIZES = [
    (997, 1376, 520),
    (300, 1000, 1001),
    (257, 130, 64),
    (1, 4096, 72),
    (8192, 1792, 1024),
    (7976, 1376, 4096),
]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [dt.bf16, dt.f16, dt.f32], ids=str)
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_sizes(m: int, n: int, k: int, transpose: bool, dtype: dt.DType) -> None:
    with dt.Program("gemm", dt.Mesh(tp=1)) as program:
        x = program.input("x", (m, k), dtype, dt.Replicate())
        w = program.input("w", (n, k) if transpose else (k, n), dtype, dt.Replicate())
        program.output("y", dt.matmul(x, w, transpose_b=transpose))
    inputs = make_inputs(
        next(op for op in program.ir.ops if isinstance(op, task.ProgramOp)), seed=0
    )
    with dt.compile(program, target="cuda") as exe:
        got = exe.run(inputs)["y"]
    x64, w64 = (inputs[name].double() for name in "xw")
    want = x64 @ (w64.T if transpose else w64)
    rounding = torch.finfo(got.dtype).eps * want.abs().max()
    assert (got.double() - want).abs().max() <= rounding
