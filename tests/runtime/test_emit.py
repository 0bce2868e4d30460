"""Core kernels as torch source."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from xdsl.dialects.builtin import BFloat16Type, Float32Type
from xdsl.ir import Operation, SSAValue

from ditron.backends.cpu.emit import compile_kernels, emit_kernels
from ditron.ir import core

F32, BF16 = Float32Type(), BFloat16Type()

Build = Callable[[Callable[[Operation], SSAValue], Sequence[SSAValue]], None]


def kernel(name: str, views: Sequence[core.ViewType], build: Build) -> core.FuncOp:
    func = core.FuncOp.empty(name, views)
    for arg, hint in zip(func.body.block.args, "abcdefgh", strict=False):
        arg.name_hint = hint

    def add(op: Operation) -> SSAValue:
        func.body.block.add_op(op)
        return op.results[0] if op.results else func.body.block.args[0]

    build(add, func.body.block.args)
    func.verify()
    return func


def matmul(dtype: Float32Type | BFloat16Type, *, transpose_b: bool = False) -> core.FuncOp:
    b = (32, 16) if transpose_b else (16, 32)

    def build(add: Callable[[Operation], SSAValue], args: Sequence[SSAValue]) -> None:
        x, y = (add(core.LoadOp(a)) for a in args[:2])
        z = add(core.DotOp(x, y, transpose_b=transpose_b))
        if dtype is BF16:
            z = add(core.CastOp(z, dtype))
        add(core.StoreOp(z, args[2]))

    shapes = ((8, 16), b, (8, 32))
    return kernel("mm", [core.ViewType.get(s, dtype) for s in shapes], build)


def total(count: int, dtype: Float32Type | BFloat16Type) -> core.FuncOp:
    def build(add: Callable[[Operation], SSAValue], args: Sequence[SSAValue]) -> None:
        tiles = [add(core.LoadOp(a)) for a in args[:-1]]
        if dtype is BF16:
            tiles = [add(core.CastOp(t, F32)) for t in tiles]
        result = tiles[0]
        for tile in tiles[1:]:
            result = add(core.AddOp(result, tile))
        if dtype is BF16:
            result = add(core.CastOp(result, dtype))
        add(core.StoreOp(result, args[-1]))

    return kernel("layers.0.sum", [core.ViewType.get((4, 4), dtype)] * (count + 1), build)


def test_bf16_is_multiplied_in_f32_and_rounded_by_the_copy() -> None:
    assert emit_kernels([matmul(BF16)]) == (
        "import torch\n"
        "\n\n"
        "def mm(a, b, c):\n"
        '    """a: 8x16xbf16, b: 16x32xbf16, c: 8x32xbf16"""\n'
        "    v0 = torch.mm(a.float(), b.float())\n"
        "    c.copy_(v0)\n"
        "\n\n"
        "KERNELS = {\n"
        "    'mm': mm,\n"
        "}\n"
    )


def test_f32_goes_straight_to_the_view() -> None:
    assert "    torch.mm(a, b.t(), out=c)\n" in emit_kernels([matmul(F32, transpose_b=True)])


def test_a_sum_reuses_its_temporary() -> None:
    assert emit_kernels([total(4, F32)]).splitlines()[5:8] == [
        "    v0 = torch.add(a, b)",
        "    v1 = v0.add_(c)",
        "    torch.add(v1, d, out=e)",
    ]
    assert emit_kernels([total(3, BF16)]).splitlines()[5:] == [
        "    v0 = a.to(torch.float32)",
        "    v1 = b.to(torch.float32)",
        "    v2 = c.to(torch.float32)",
        "    v3 = v0.add_(v1)",
        "    v4 = v3.add_(v2)",
        "    d.copy_(v4)",
        "",
        "",
        "KERNELS = {",
        "    'layers.0.sum': layers_0_sum,",
        "}",
    ]


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_what_runs_is_what_torch_says(dtype: Float32Type | BFloat16Type) -> None:
    torch_dtype = torch.float32 if dtype is F32 else torch.bfloat16
    g = torch.Generator().manual_seed(0)
    a, b = (torch.randn(s, generator=g).to(torch_dtype) for s in ((8, 16), (16, 32)))
    wide = torch.full((8, 64), 7.0, dtype=torch_dtype)
    compile_kernels(emit_kernels([matmul(dtype)]))["mm"](a, b, wide[:, :32])
    assert wide[:, :32].equal((a.float() @ b.float()).to(torch_dtype))
    assert (wide[:, 32:] == 7).all()
    parts = [torch.randn(4, 4, generator=g).to(torch_dtype) for _ in range(3)]
    before = [p.clone() for p in parts]
    out = torch.empty(4, 4, dtype=torch_dtype)
    compile_kernels(emit_kernels([total(3, dtype)]))["layers.0.sum"](*parts, out)
    x, y, z = (p.float() for p in parts)
    assert out.equal((x + y + z).to(torch_dtype))
    assert all(p.equal(q) for p, q in zip(parts, before, strict=True))


def test_a_tile_keeps_its_value_when_its_view_is_stored_to() -> None:
    def swap(add: Callable[[Operation], SSAValue], args: Sequence[SSAValue]) -> None:
        x, y = (add(core.LoadOp(a)) for a in args)
        add(core.StoreOp(y, args[0]))
        add(core.StoreOp(x, args[1]))

    func = kernel("swap", [core.ViewType.get((2, 2), F32)] * 2, swap)
    a, b = torch.ones(2, 2), torch.zeros(2, 2)
    compile_kernels(emit_kernels([func]))["swap"](a, b)
    assert a.equal(torch.zeros(2, 2))
    assert b.equal(torch.ones(2, 2))


def test_a_matmul_onto_its_own_operand_reads_before_it_writes() -> None:
    def square(add: Callable[[Operation], SSAValue], args: Sequence[SSAValue]) -> None:
        x = add(core.LoadOp(args[0]))
        add(core.StoreOp(add(core.DotOp(x, x)), args[0]))

    func = kernel("square", [core.ViewType.get((3, 3), F32)], square)
    a = torch.arange(9.0).reshape(3, 3)
    expected = a @ a
    compile_kernels(emit_kernels([func]))["square"](a)
    assert a.equal(expected)


POINTWISE: list[tuple[type[core.UnaryOp], Callable[[torch.Tensor], torch.Tensor]]] = [
    (core.SiluOp, torch.nn.functional.silu),
    (core.GeluOp, torch.nn.functional.gelu),
    (core.ReluOp, torch.relu),
    (core.ExpOp, torch.exp),
]


@pytest.mark.parametrize(("op", "function"), POINTWISE, ids=lambda p: getattr(p, "name", ""))
def test_pointwise(
    op: type[core.UnaryOp], function: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    def twice(add: Callable[[Operation], SSAValue], args: Sequence[SSAValue]) -> None:
        x = add(core.LoadOp(args[0]))
        y = add(core.MulOp(add(op(add(op(x)))), x))
        add(core.StoreOp(add(core.SubOp(y, x)), args[1]))

    func = kernel("f", [core.ViewType.get((4, 4), F32)] * 2, twice)
    a = torch.linspace(-2, 2, 16).reshape(4, 4)
    out = torch.empty(4, 4)
    compile_kernels(emit_kernels([func]))["f"](a, out)
    assert out.equal(function(function(a)) * a - a)


def test_constants_and_rows_broadcast_and_leave_their_views_alone() -> None:
    def scaled(add: Callable[[Operation], SSAValue], args: Sequence[SSAValue]) -> None:
        row = add(core.ExpandDimsOp(add(core.LoadOp(args[1])), 2))
        half = add(core.ConstantOp(0.5, F32, 2))
        y = add(core.MulOp(add(core.ExpOp(row)), half))
        add(core.StoreOp(add(core.AddOp(add(core.LoadOp(args[0])), y)), args[2]))

    shapes = ((2, 4), (4,), (2, 4))
    func = kernel("f", [core.ViewType.get(s, F32) for s in shapes], scaled)
    text = emit_kernels([func])
    assert text.splitlines()[5:8] == [
        "    v0 = b[None]",
        "    v1 = torch.full((1, 1), 0.5, dtype=torch.float32)",
        "    v2 = torch.exp(v0)",
    ]
    a, b, out = torch.ones(2, 4), torch.linspace(-1, 1, 4), torch.empty(2, 4)
    compile_kernels(text)["f"](a, b, out)
    assert out.equal(a + b.exp() * 0.5)
    assert b.equal(torch.linspace(-1, 1, 4))


def test_the_same_ir_gives_the_same_text() -> None:
    assert emit_kernels([matmul(BF16), total(3, F32)]) == emit_kernels(
        [matmul(BF16), total(3, F32)]
    )
