"""The task-level builder: what it makes, and what it refuses at which line."""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.tensor import Partial, Replicate, Shard

import ditron as dt
from ditron.errors import DTypeError, MeshError, PlacementError, ProgramError, ShapeError
from ditron.ir import task
from ditron.ir.locations import op_location

S0, S1, R = dt.Shard(0), dt.Shard(1), dt.Replicate()


def ag_gemm(m: int = 512, n: int = 512, k: int = 256, tp: int = 4) -> dt.Program:
    with dt.Program("ag_gemm", dt.Mesh(tp=tp)) as p:
        x = p.input("x", (m, k), dt.bf16, dt.Shard(0))
        w = p.weight("w", (k, n), dt.bf16, dt.Shard(1))
        p.output("y", dt.matmul(dt.all_gather(x, dim=0), w, name="layers.0.up"))
    return p


def test_ir_is_the_program():
    assert str(ag_gemm()) == (
        "task.program @ag_gemm mesh #task.mesh<tp = 4> {\n"
        '  %x = task.input "x" : !task.tensor<512x256xbf16, [shard(0)]>\n'
        '  %w = task.weight "w" : !task.tensor<256x512xbf16, [shard(1)]>\n'
        '  %all_gather = task.all_gather %x dim 0 axis "tp"'
        " : !task.tensor<512x256xbf16, [shard(0)]> -> !task.tensor<512x256xbf16, [replicate]>\n"
        '  %layers_0_up = task.matmul %all_gather, %w name "layers.0.up"'
        " : !task.tensor<512x256xbf16, [replicate]>, !task.tensor<256x512xbf16, [shard(1)]>"
        " -> !task.tensor<512x512xbf16, [shard(1)]>\n"
        '  task.output "y", %layers_0_up : !task.tensor<512x512xbf16, [shard(1)]>\n'
        "}"
    )


def test_ir_is_a_fresh_verified_module_each_time():
    p = ag_gemm()
    first, second = p.ir, p.ir
    first.verify()
    assert first is not second
    assert str(first) == str(second)
    next(iter(first.ops)).detach()
    assert str(p.ir) == str(second)


def test_ops_carry_the_users_line():
    p = ag_gemm()
    start = inspect.getsourcelines(ag_gemm)[1]
    lines = {op.name: op_location(op) for op in p.ir.walk()}
    assert lines["task.program"] == f"{__file__}:{start + 1}"
    assert lines["task.input"] == f"{__file__}:{start + 2}"
    assert lines["task.matmul"] == f"{__file__}:{start + 4}"


def test_values_know_what_they_will_be():
    with dt.Program("p", dt.Mesh(tp=2)) as p:
        x = p.input("x", (4, 6), dt.f32, S1)
        w = p.input("w", (6, 8), dt.f32, S0)
        y = x @ w
        assert (y.shape, y.dtype, y.placements, y.name) == ((4, 8), dt.f32, (dt.Partial(),), None)
        assert repr(x) == "<Value x: 4x6 f32 [shard(1)]>"
        assert repr(p) == '<Program "p" on Mesh(tp=2)>'
        p.output("y", y)  # left partial: comes back summed


def test_every_op():
    with dt.Program("p", dt.Mesh(tp=2)) as p:
        x = p.input("x", (4, 6), dt.f32, S1)
        w = p.input("w", (8, 6), dt.f32, S1)
        y = dt.matmul(x, w, transpose_b=True, name="m")
        scattered = dt.reduce_scatter(y, dim=-1, name="rs")
        h = dt.all_reduce(y, "tp", name="ar") + scattered
        h = dt.exp(dt.relu(dt.gelu(dt.silu(h, name="a"), name="b"), name="c"), name="d")
        h = dt.sub(dt.add(h, h, name="e"), dt.mul(h, h, name="f"), name="g") - h * h
        p.output("y", dt.cast(dt.all_gather(h, 1, axis="tp", name="ag"), dt.bf16, name="h"))
    names = [op.op_name.data for op in p.ir.walk() if isinstance(op, task.ComputeOp) and op.op_name]
    assert names == ["m", "rs", "ar", "a", "b", "c", "d", "e", "f", "g", "ag", "h"]


def test_torch_dtypes_placements_and_sizes_are_accepted():
    with dt.Program("p", dt.Mesh(tp=2)) as p:
        x = p.input("x", torch.Size([4, 6]), torch.bfloat16, Shard(-1))
        y = p.input("y", wrong(np.array([4, 6])), torch.bfloat16, [Replicate()])
        assert (x.dtype, x.placements, y.placements) == (dt.bf16, (S1,), (R,))
        p.output("z", dt.cast(x * y, torch.float32))
        assert p.input("s", (4,), dt.f32, Partial()).placements == (dt.Partial(),)


def wrong(value: object) -> Any:
    """Something that the types do not let pass."""
    return value


def in_program(body: Callable[[dt.Program], object]) -> None:
    """Run a mistake inside a program that is fine otherwise."""
    with dt.Program("p", dt.Mesh(tp=4)) as p:
        body(p)


def source(p: dt.Program, name: str, shape: tuple[int, ...], place: object = R) -> dt.Value:
    return p.input(name, shape, dt.f32, wrong(place))


MISTAKES: list[tuple[type[ProgramError], str, Callable[[dt.Program], object]]] = [
    (
        ShapeError,
        "matmul of x 8x6 and w 8x4: x's dim 1 is 6, but w's dim 0 is 8; they are summed over",
        lambda p: dt.matmul(source(p, "x", (8, 6)), source(p, "w", (8, 4))),
    ),
    (
        ShapeError,
        "matmul of x 8 and w 8x4: expected two matrices",
        lambda p: source(p, "x", (8,)) @ source(p, "w", (8, 4)),
    ),
    (
        ShapeError,
        "matmul of x 2x8x6 and w 3x6x4: leading dimensions 2 and 3 must agree, or w have none",
        lambda p: source(p, "x", (2, 8, 6)) @ source(p, "w", (3, 6, 4)),
    ),
    (
        ShapeError,
        "with the same leading dimensions or none of w's",
        lambda p: source(p, "x", (8, 6)) @ source(p, "w", (3, 6, 4)),
    ),
    (
        ShapeError,
        "x's dim 2 is 6, but w's dim 2 is 5; they are summed over and must agree",
        lambda p: dt.matmul(source(p, "x", (3, 8, 6)), source(p, "w", (3, 4, 5)), transpose_b=True),
    ),
    (
        PlacementError,
        "matmul has no rule for x [shard(0)] and w [shard(1)]; to mend it use all_gather(w, dim=1)",
        lambda p: source(p, "x", (4, 8, 6), S0) @ source(p, "w", (4, 6, 4), S1),
    ),
    (
        PlacementError,
        "matmul has no rule for x [shard(0)] and w [shard(1)]; to mend it use all_gather(x, dim=0)",
        lambda p: dt.matmul(source(p, "x", (8, 6), S0), source(p, "w", (6, 4), S1)),
    ),
    (
        PlacementError,
        "use all_gather(b, dim=1)",  # b is stored transposed, and has no name
        lambda p: dt.matmul(
            source(p, "x", (8, 6)), dt.relu(source(p, "w", (4, 6), S1)), transpose_b=True
        ),
    ),
    (
        PlacementError,
        "silu has no rule for up [partial(sum)]; to mend it use all_reduce(up)",
        lambda p: dt.silu(
            dt.matmul(source(p, "x", (8, 6), S1), source(p, "w", (6, 4), S0), name="up")
        ),
    ),
    (
        ShapeError,
        "add of x 8x6 and y 8x5: sizes of dim 1 must agree or be 1",
        lambda p: source(p, "x", (8, 6)) + source(p, "y", (8, 5)),
    ),
    (
        ShapeError,
        "numbers of dimensions differ; give the smaller one leading dimensions of size 1",
        lambda p: source(p, "x", (8, 6)) + source(p, "y", (6,)),
    ),
    (
        DTypeError,
        "mul of x f32 and y bf16: dtypes must agree; cast one of them",
        lambda p: source(p, "x", (8,)) * p.input("y", (8,), dt.bf16, R),
    ),
    (
        DTypeError,
        "exp takes float dtypes, got i32",
        lambda p: dt.exp(p.input("y", (8,), dt.i32, R)),
    ),
    (
        DTypeError,
        "add takes float or int dtypes, got bool",
        lambda p: (y := p.input("y", (8,), dt.bool, R)) + y,
    ),
    (
        DTypeError,
        "torch.float64 is no dtype of a program; expected one of dt.f32, dt.bf16",
        lambda p: dt.cast(source(p, "x", (8,)), torch.float64),
    ),
    (DTypeError, "'f32' is no dtype", lambda p: p.input("x", (8,), wrong("f32"), R)),
    (
        PlacementError,
        "all_gather(dim=0) needs x shard(0), but it is shard(1): all_gather(x, dim=1) makes it",
        lambda p: dt.all_gather(source(p, "x", (8, 4), S1), dim=0),
    ),
    (
        PlacementError,
        "all_reduce needs x partial(sum), but it is replicate: x is whole on every rank already",
        lambda p: dt.all_reduce(source(p, "x", (8, 4))),
    ),
    (
        ShapeError,
        "all_gather: dim 2 is out of range, expected -2 to 1",
        lambda p: dt.all_gather(source(p, "x", (8, 4), S1), dim=2),
    ),
    (
        ShapeError,
        "reduce_scatter needs an integer dim, got 'rows'",
        lambda p: dt.reduce_scatter(source(p, "x", (8, 4), S1), dim=wrong("rows")),
    ),
    (
        MeshError,
        "Mesh(tp=4) has no axis 'dp'; it has tp",
        lambda p: dt.all_gather(source(p, "x", (8, 4), S0), dim=0, axis="dp"),
    ),
    (
        PlacementError,
        'input "x" is shard(2), but its shape has 2 dimensions',
        lambda p: source(p, "x", (8, 4), dt.Shard(2)),
    ),
    (
        PlacementError,
        'input "x" needs one placement per axis of Mesh(tp=4): 1, got 2',
        lambda p: source(p, "x", (8, 4), (S0, R)),
    ),
    (
        PlacementError,
        "needs placements Shard(dim), Replicate() or Partial(), got 0",
        lambda p: source(p, "x", (8, 4), 0),
    ),
    (
        ShapeError,
        'input "x" has a negative size in shape (8, -1)',
        lambda p: source(p, "x", (8, -1)),
    ),
    (
        ShapeError,
        'input "x" needs a shape of integers, got (8, 0.5)',
        lambda p: p.input("x", wrong((8, 0.5)), dt.f32, R),
    ),
    (ShapeError, 'input "x" needs at least one dimension', lambda p: source(p, "x", ())),
    (
        ProgramError,
        "mul takes values of a program, got 2.0; a number or tensor has to be an input",
        lambda p: source(p, "x", (8,)) * wrong(2.0),
    ),
    (
        ProgramError,
        "sub takes values of a program, got 1;",
        lambda p: wrong(1) - source(p, "x", (8,)),
    ),
    (
        ProgramError,
        "add takes values of a program, got array([1.])",
        lambda p: wrong(np.ones(1)) + source(p, "x", (8,)),
    ),
    (ProgramError, "neither true nor false", lambda p: bool(source(p, "x", (8,)))),
    (
        ProgramError,
        "relu needs a name of letters, digits, '_', '.' and '-', got 'my op'",
        lambda p: dt.relu(source(p, "x", (8,)), name="my op"),
    ),
    (
        ProgramError,
        "matmul needs a name of letters",
        lambda p: dt.matmul(x := source(p, "x", (8, 8)), x, name=""),
    ),
    (ProgramError, "input needs a name of letters", lambda p: source(p, "", (8,))),
    (
        ProgramError,
        'input "x": the name belongs to input "x" of ',
        lambda p: [source(p, "x", (8,)) for _ in range(2)],
    ),
    (
        ProgramError,
        'output "x": the name belongs to input "x" of ',
        lambda p: p.output("x", dt.relu(source(p, "x", (8,)))),
    ),
    (
        ProgramError,
        'output "z" is already returned as "y"',
        lambda p: [p.output("y", x := source(p, "x", (8,))), p.output("z", x)],
    ),
    (ProgramError, "output takes values of a program, got 3", lambda p: p.output("y", wrong(3))),
]


@pytest.mark.parametrize(("kind", "message", "body"), MISTAKES, ids=[m[1][:40] for m in MISTAKES])
def test_mistakes_are_raised_at_the_users_line(
    kind: type[ProgramError], message: str, body: Callable[[dt.Program], object]
):
    with pytest.raises(ProgramError) as caught:
        in_program(body)
    error = caught.value
    assert type(error) is kind
    assert message in error.message
    file, _, line = (error.where or "").rpartition(":")
    assert file == __file__
    frames = [f for f in caught.traceback if str(f.path) == __file__]
    assert int(line) == frames[-1].lineno + 1  # the innermost line of the user's
    assert str(error) == f"{error.where}: {error.message}"


def test_programs_do_not_mix():
    with dt.Program("one", dt.Mesh(tp=2)) as one, dt.Program("two", dt.Mesh(tp=2)) as two:
        x, y = source(one, "x", (4,)), source(two, "y", (4,))
        with pytest.raises(ProgramError, match=r'mixes a value of program "one" .* "two"'):
            _ = x + y
        with pytest.raises(ProgramError, match=r'output "z" of program "one" is a value of .*two'):
            one.output("z", y)
        one.output("x2", x)
        two.output("y2", y)


def test_a_program_is_written_in_its_block():
    p = dt.Program("p", dt.Mesh(tp=2))
    with pytest.raises(ProgramError, match="has not been opened: use `with`"):
        source(p, "x", (4,))
    with pytest.raises(ProgramError, match="has not been opened"):
        _ = p.ir
    with p:
        x = source(p, "x", (4,))
        with pytest.raises(ProgramError, match="is open; its IR is complete when"):
            _ = p.ir
        p.output("y", x)
    with pytest.raises(ProgramError, match=r"test_builder.py:\d+: .*its `with` block has ended"):
        dt.relu(x)
    with pytest.raises(ProgramError, match="block has ended"):
        source(p, "z", (4,))
    with pytest.raises(ProgramError, match="block has ended; a program is opened once"), p:
        pass


def test_a_program_needs_an_output():
    with pytest.raises(ProgramError, match=r"test_builder.py:\d+: .*has no output: end it with"):
        in_program(lambda p: source(p, "x", (4,)))


def test_an_error_in_the_block_leaves_no_program():
    p = dt.Program("p", dt.Mesh(tp=2))
    with pytest.raises(KeyError), p:
        raise KeyError
    with pytest.raises(ProgramError, match="is unusable: its `with` block raised an error"):
        _ = p.ir


def test_bad_programs():
    with pytest.raises(MeshError, match=r"a program needs a Mesh, as in Mesh\(tp=4\), got 4"):
        dt.Program("p", wrong(4))
    with pytest.raises(ProgramError, match="a program needs a name of letters"):
        dt.Program("a b", dt.Mesh(tp=2))


def test_threads_write_their_own_programs():
    texts: dict[int, str] = {}
    start = threading.Barrier(4)

    def write(i: int) -> None:
        start.wait()
        texts[i] = str(ag_gemm(m=64 * (i + 1)))

    threads = [threading.Thread(target=write, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {i: str(ag_gemm(m=64 * (i + 1))) for i in range(4)}


def test_import_is_light():
    code = (
        "import sys, ditron as dt; dt.Program('p', dt.Mesh(tp=2));"
        "assert not {'torch', 'triton', 'llvmlite', 'ditron.runtime'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names():
    for name in set(dt.__all__) - {"compile", "Executable"}:
        assert getattr(dt, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'matmull'"):
        _ = wrong(dt).matmull
