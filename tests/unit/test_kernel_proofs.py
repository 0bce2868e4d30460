"""Delivery of calls of tile kernels: the proof reads the kernel, not its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

import ditron as dt
from ditron.analysis.expand import expand
from ditron.analysis.report import prove
from ditron.analysis.symbols import called_kernels, find_task_program, kernels
from ditron.errors import DeliveryError
from ditron.ir import core
from ditron.ir.attrs import dtype_attr
from ditron.pipelines import default_pipeline


@dt.kernel
def blend(k: Any, x: Any, w: Any, s: Any, y: Any):  # x [M, K], w [K, N], s [N], y [M, N]
    i, j = k.tile(y, (4, 8))
    product = k.load(x, (i, 0), (4, x.shape[1])) @ k.load(w, (0, j), (w.shape[0], 8))
    k.store(y, (i, j), k.silu(product) * 0.5 - k.load(s, (j,), (8,)))


def lowered() -> ModuleOp:
    with dt.Program("p", dt.Mesh(tp=3)) as p:
        x = p.input("x", (11, 6), dt.bf16, dt.Shard(0))
        w = p.input("w", (6, 20), dt.bf16, dt.Shard(1))
        s = p.input("s", (20,), dt.bf16, dt.Shard(0))
        whole = dt.all_gather(x, dim=0)
        out = dt.like(whole, shape=(11, 20), placements=dt.Shard(1))
        p.output("y", dt.call(blend, whole, w, s, out=out))
    module = p.ir
    for one in default_pipeline(dt.Options(workers=1, copy_lanes=1), "cpu"):
        one.apply(Context(), module)
    return module


def check(module: ModuleOp) -> None:
    assert prove(expand(module), kernels(module), find_task_program(module)).delivery is not None


def ops(module: ModuleOp, kind: type[Any]) -> list[Any]:
    """The ops of a kind in the kernels that tasks run."""
    return [op for func in called_kernels(module) for op in func.walk() if isinstance(op, kind)]


def replace(op: Any, new: Any) -> None:
    block = op.parent_block()
    block.insert_op_before(new, op)
    op.result.replace_all_uses_with(new.result)
    op.detach()
    op.erase()


def test_the_call_is_proved():
    check(lowered())


def other_function(module: ModuleOp) -> None:
    (silu,) = ops(module, core.SiluOp)
    replace(silu, core.GeluOp(silu.operand))


def other_number(module: ModuleOp) -> None:
    (half,) = ops(module, core.ConstantOp)
    replace(half, core.ConstantOp(0.25, dtype_attr("f32"), 2))


def other_sign(module: ModuleOp) -> None:
    (sub,) = ops(module, core.SubOp)
    replace(sub, core.AddOp(sub.lhs, sub.rhs))


def left_out(module: ModuleOp) -> None:
    (mul,) = ops(module, core.MulOp)
    mul.result.replace_all_uses_with(mul.lhs)


@pytest.mark.parametrize("broken", [other_function, other_number, other_sign, left_out])
def test_another_kernel_is_refused(broken: Callable[[ModuleOp], None]):
    module = lowered()
    broken(module)
    module.verify()
    with pytest.raises(DeliveryError, match="output 'y'"):
        check(module)
