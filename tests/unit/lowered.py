"""Small programs, and the IR and plan that they are after some pass, for tests of single passes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

import ditron as dt
from ditron.analysis.expand import expand
from ditron.analysis.symbols import find_task_program, kernels
from ditron.backends.cpu.emit import emit_kernels
from ditron.ir import task
from ditron.pipelines import default_pipeline
from ditron.plan.dtypes import DType
from ditron.plan.tables import Plan
from ditron.runtime.interleave import run_interleaved
from ditron.runtime.kernels import compile_kernels
from ditron.tools.loading import parse_dump


def ag_gemm(ranks: int, m: int = 8, n: int = 8, k: int = 4, dtype: DType = dt.f32) -> dt.Program:
    """x [m, k] by rows is gathered, times w [k, n] by columns."""
    with dt.Program("ag_gemm", dt.Mesh(tp=ranks)) as p:
        x = p.input("x", (m, k), dtype, dt.Shard(0))
        w = p.input("w", (k, n), dtype, dt.Shard(1))
        p.output("y", dt.matmul(dt.all_gather(x, dim=0), w))
    return p


def gemm_rs(ranks: int, m: int = 8, n: int = 8, k: int = 8) -> dt.Program:
    """x [m, k] by columns times w [k, n] by rows, summed to rows of [m, n]."""
    with dt.Program("gemm_rs", dt.Mesh(tp=ranks)) as p:
        x = p.input("x", (m, k), dt.f32, dt.Shard(1))
        w = p.input("w", (k, n), dt.f32, dt.Shard(0))
        p.output("y", dt.reduce_scatter(dt.matmul(x, w), dim=0))
    return p


def gemm_ar(ranks: int, m: int = 8, n: int = 8, k: int = 8) -> dt.Program:
    """x [m, k] by columns times w [k, n] by rows, summed on every rank."""
    with dt.Program("gemm_ar", dt.Mesh(tp=ranks)) as p:
        x = p.input("x", (m, k), dt.f32, dt.Shard(1))
        w = p.input("w", (k, n), dt.f32, dt.Shard(0))
        p.output("y", dt.all_reduce(dt.matmul(x, w)))
    return p


def mlp(ranks: int, layers: int = 1, m: int = 8, hidden: int = 4, inner: int = 8) -> dt.Program:
    """Layers of gather, two matmuls, silu and product, matmul, reduce-scatter."""
    with dt.Program("mlp", dt.Mesh(tp=ranks)) as p:
        x = p.input("x", (m, hidden), dt.f32, dt.Shard(0))
        for i in range(layers):
            gate = p.weight(f"gate{i}", (hidden, inner), dt.f32, dt.Shard(1))
            up = p.weight(f"up{i}", (hidden, inner), dt.f32, dt.Shard(1))
            down = p.weight(f"down{i}", (inner, hidden), dt.f32, dt.Shard(0))
            rows = dt.all_gather(x, dim=0)
            h = dt.silu(dt.matmul(rows, gate)) * dt.matmul(rows, up)
            x = dt.reduce_scatter(dt.matmul(h, down), dim=0)
        p.output("y", x)
    return p


PROGRAMS: dict[str, Callable[[int], dt.Program]] = {
    "ag_gemm": ag_gemm,
    "gemm_rs": gemm_rs,
    "gemm_ar": gemm_ar,
    "mlp": mlp,
}


def lower(program: dt.Program, options: dt.Options | None = None, until: str = "") -> ModuleOp:
    """The program after the default pipeline, up to and with a pass."""
    module, context = program.ir.clone(), Context()
    for one in default_pipeline(options or dt.Options(), "cpu"):
        one.apply(context, module)
        module.verify()
        if one.name == until:
            break
    return module


def plan_of(program: dt.Program, options: dt.Options | None = None, until: str = "") -> Plan:
    """The plan of the program after a pass."""
    return expand(lower(program, options, until))


def parse(text: str) -> ModuleOp:
    """IR text, verified; ops know their lines of `test.mlir`."""
    return parse_dump(text, "test.mlir")


def find(module: Operation, name: str) -> list[Operation]:
    """The ops of a name, in program order."""
    return [op for op in module.walk() if op.name == name]


def run(
    program: dt.Program, options: dt.Options, inputs: dict[str, torch.Tensor], seed: int = 0
) -> dict[tuple[str, int], torch.Tensor]:
    """One launch in one process, in an order that the seed picks: (output, rank) -> its part."""
    module = lower(program, options)
    plan, source = expand(module), emit_kernels(kernels(module).values())
    task_program = find_task_program(module)
    assert task_program is not None
    specs = {op.tensor_name.data: task.spec_of(op.result) for op in task_program.inputs}
    feed = {
        (name, rank): part(specs[name].placements[0], tensor, rank, plan.ranks)
        for name, tensor in inputs.items()
        for rank in range(plan.ranks)
    }
    done = run_interleaved(plan, compile_kernels(source), feed, seed=seed)
    return {(name, rank): local for (_, name, rank), local in done.outputs.items()}


def part(placement: object, tensor: torch.Tensor, rank: int, ranks: int) -> torch.Tensor:
    """What a rank holds of a global tensor, as torch.chunk cuts it."""
    if not isinstance(placement, dt.Shard):
        return tensor
    size = tensor.shape[placement.dim]
    shard = -(-size // ranks)
    start = min(rank * shard, size)
    return tensor.narrow(placement.dim, start, min(shard, size - start))
