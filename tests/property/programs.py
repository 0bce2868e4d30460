"""Whole programs to draw: shapes, placements, options and data, by hypothesis.

A case is `exact` where every element is an integer so small that all sums and products are exact
in their dtype: its outputs must equal the reference to the bit. Otherwise inputs are uniform in
[-1, 1] and outputs are held against a bound on rounding (`rounding`). A writer knows for every
value how large its elements may be, so that nothing overflows.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from hypothesis import strategies as st

import ditron as dt
from ditron.analysis.symbols import task_program
from ditron.errors import ProgramError
from ditron.ir import task
from ditron.plan import collectives
from ditron.plan import spec as rules
from ditron.plan.dtypes import DTYPES, DType, Kind
from ditron.plan.options import SCHEDULERS
from ditron.plan.placement import Partial, Placement, Replicate, Shard

RANKS = (1, 2, 3, 4, 5, 6, 7, 8)
SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 12, 13, 16, 17, 24, 31, 40)
FLOATS = (dt.f32, dt.bf16, dt.f16)
ALGORITHMS: dict[str, tuple[str, ...]] = {
    kind: tuple(
        name
        for algorithm, transfers in algorithms.items()
        for name in (algorithm, *(f"{algorithm}-{transfer}" for transfer in transfers))
    )
    for kind, algorithms in collectives.ALGORITHMS.items()
}
"""The names of each collective's algorithms, with and without a transfer."""

EXACT = {"f32": 1 << 24, "bf16": 1 << 8, "f16": 1 << 11, "i32": 1 << 30, "i64": 1 << 30, "bool": 1}
"""Up to where all integers are numbers of the dtype."""

ROOM = 1e4
"""Other elements stay below it: float16 ends at 65504."""

S0, S1, R = Shard(0), Shard(1), Replicate()


@dataclass(frozen=True)
class Case:
    """A program to compile, with options and its data."""

    program: dt.Program
    options: dt.Options
    exact: bool
    seed: int = 0

    def __repr__(self) -> str:
        kind = "integers" if self.exact else "reals"
        return f"{self.options}, {kind} of seed {self.seed}\n{self.program}"

    @property
    def task(self) -> task.ProgramOp:
        """The program's op."""
        return next(op for op in self.program.ir.ops if isinstance(op, task.ProgramOp))

    def tensors(self, launch: int = 1) -> dict[str, torch.Tensor]:
        """Inputs and weights, whole; inputs differ from launch to launch, weights do not."""
        made: dict[str, torch.Tensor] = {}
        for op in self.task.inputs:
            name = op.tensor_name.data
            of = 1 if isinstance(op, task.WeightOp) else launch
            generator = torch.Generator()
            generator.manual_seed(zlib.crc32(f"{self.seed} {name} {of}".encode()))
            made[name] = self._elements(task.spec_of(op.result), generator)
        return made

    def _elements(self, spec: rules.TensorSpec, generator: torch.Generator) -> torch.Tensor:
        dtype: torch.dtype = getattr(torch, DTYPES[spec.dtype].torch_name)
        if spec.kind is not Kind.FLOAT or self.exact:
            low = 0 if spec.kind is Kind.BOOL else -1
            return torch.randint(low, 2, spec.shape, generator=generator).to(dtype)
        return (torch.rand(spec.shape, generator=generator) * 2 - 1).to(dtype)


class Writer:
    """Writes a program, and bounds the elements of each value."""

    def __init__(self, program: dt.Program, *, exact: bool, wide: bool = False) -> None:
        self.program, self.exact, self.wide = program, exact, wide
        self.values: list[dt.Value] = []
        self._most: dict[int, float] = {}
        self._sources = 0

    def source(
        self, shape: tuple[int, ...], dtype: DType, placement: Placement, *, weight: bool = False
    ) -> dt.Value:
        """An input or weight, called x0, x1, ... or w0, w1, ..."""
        make = self.program.weight if weight else self.program.input
        name = f"{'w' if weight else 'x'}{self._sources}"
        self._sources += 1
        return self._keep(make(name, shape, dtype, placement), 1.0)

    def fits(self, fn: str, *operands: dt.Value, dtype: DType | None = None) -> bool:
        """Whether the elements of a result have room; if exact, whether they stay exact."""
        if self.exact and fn in ("silu", "gelu", "exp"):
            return False
        have, want = operands[0].dtype, dtype or operands[0].dtype
        if not self.exact and (have.kind, want.kind) == (Kind.FLOAT, Kind.INT):
            return False  # where a cast cuts off, rounding decides
        if want.kind is Kind.BOOL and fn == "cast":
            return have.kind is not Kind.FLOAT or self.exact
        return self._bound(fn, operands) <= (EXACT[want.name] if self.exact else ROOM)

    def do(self, fn: str, *operands: dt.Value, **arguments: object) -> dt.Value:
        """Apply a function of `dt` by name."""
        value = getattr(dt, fn)(*operands, **arguments)
        return self._keep(value, self._bound(fn, operands))

    def _bound(self, fn: str, operands: tuple[dt.Value, ...]) -> float:
        most = [self._most[id(v.ssa)] for v in operands]
        match fn:
            case "matmul":
                return max(operands[0].shape[-1], 1) * most[0] * most[1]
            case "add" | "sub":
                return most[0] + most[1]
            case "mul":
                return most[0] * most[1]
            case "exp":
                return math.exp(min(most[0], 100.0))
            case _:
                return most[0]

    def _keep(self, value: dt.Value, most: float) -> dt.Value:
        self.values.append(value)
        self._most[id(value.ssa)] = most
        return value


@st.composite
def options(draw: st.DrawFn, program: dt.Program, largest: int) -> dt.Options:
    """Any options for a program; tiles not so small that a dimension of `largest` makes many."""
    least = max(1, -(-largest // 5))
    tiles = st.none() | st.tuples(st.integers(least, 24), st.integers(least, 24))
    chunks = st.none() | st.sampled_from((1, 7, 16, 40, 64, 100, 256, 1000))
    ops = [op for op in task_program(program.ir).body.block.ops if isinstance(op, task.ComputeOp)]
    kinds = {op.label() for op in ops}
    per_op: dict[str, dt.OpOptions] = {}
    for kind, known in ALGORITHMS.items():
        if any(name.startswith(kind) for name in kinds) and draw(st.booleans()):
            per_op[f"{kind}*"] = dt.OpOptions(
                algorithm=draw(st.sampled_from(known)), chunk_bytes=draw(chunks)
            )
    if any(name.startswith("matmul") for name in kinds) and draw(st.booleans()):
        per_op["matmul*"] = dt.OpOptions(tile=draw(tiles))
    known = sorted({a for kind in ALGORITHMS.values() for a in kind})
    return dt.Options(
        algorithm=draw(st.none() | st.sampled_from(known)),
        chunk_bytes=draw(chunks),
        tile=draw(tiles),
        workers=draw(st.integers(1, 3)),
        copy_lanes=draw(st.integers(1, 3)),
        order=draw(st.sampled_from((None, "natural", "arrival"))),
        fusion=draw(st.sampled_from((None, False))),
        scheduler=draw(st.sampled_from((None, *SCHEDULERS))),
        reuse_memory=draw(st.sampled_from((None, False))),
        per_op=per_op,
    )


@st.composite
def layered(draw: st.DrawFn) -> Case:
    """Tensor-parallel layers: (gather), column GEMM (gated), row GEMM, scatter or reduce.

    With one layer and no second GEMM this is AG+GEMM, without the first one GEMM+RS or GEMM+AR.
    """
    sizes = st.sampled_from(SIZES)
    m, hidden, inner = draw(sizes), draw(sizes), draw(sizes)
    dtype = draw(st.sampled_from(FLOATS))
    writer = Writer(_program(draw(st.sampled_from(RANKS))), exact=draw(st.booleans()))
    with writer.program as p:
        outputs = _write_layers(draw, writer, (m, hidden, inner), dtype)
        for i, value in enumerate(outputs):
            p.output(f"y{i}", value)
    exact = writer.exact and all(writer.fits("cast", v, dtype=dtype) for v in writer.values)
    return Case(p, draw(options(p, max(m, hidden, inner))), exact, draw(st.integers(0, 99)))


def _program(ranks: int) -> dt.Program:
    return dt.Program("drawn", dt.Mesh(tp=ranks))


def _write_layers(
    draw: st.DrawFn, w: Writer, sizes: tuple[int, int, int], dtype: DType
) -> list[dt.Value]:
    m, hidden, inner = sizes
    at = draw(st.sampled_from((S0, S1, R)))
    x = w.source((m, hidden), dtype, at)
    outputs: list[dt.Value] = []
    for layer in range(draw(st.sampled_from((1, 1, 1, 2)))):
        whole = x
        if isinstance(x.placements[0], Shard):
            whole = w.do("all_gather", x, dim=x.placements[0].dim)
        if layer == 0 and draw(st.booleans()):
            h = w.source((m, inner), dtype, S1)
        else:
            h = _column_matmul(draw, w, whole, inner)
        if layer == 0 and draw(st.sampled_from((False, False, True))):
            return [h]
        transpose = draw(st.booleans())
        shape, place = ((hidden, inner), S1) if transpose else ((inner, hidden), S0)
        row = w.source(shape, dtype, place, weight=draw(st.booleans()))
        y = w.do("matmul", h, row, transpose_b=transpose)
        x = _sum_up(draw, w, y)
        if draw(st.booleans()) and x.placements == whole.placements:
            x = w.do("add", x, whole)
        if layer == 0 and draw(st.sampled_from((False, False, True))):
            outputs.append(x)
    return outputs if x in outputs else [*outputs, x]


def _column_matmul(draw: st.DrawFn, w: Writer, x: dt.Value, inner: int) -> dt.Value:
    hidden, parts = x.shape[1], list[dt.Value]()
    for _ in range(draw(st.integers(1, 2))):
        transpose = draw(st.booleans())
        shape, place = ((inner, hidden), S0) if transpose else ((hidden, inner), S1)
        column = w.source(shape, x.dtype, place, weight=draw(st.booleans()))
        h = w.do("matmul", x, column, transpose_b=transpose)
        if draw(st.booleans()):
            h = w.do("relu" if w.exact else draw(st.sampled_from(("silu", "gelu", "relu"))), h)
        parts.append(h)
    return parts[0] if len(parts) == 1 else w.do("mul", *parts)


def _sum_up(draw: st.DrawFn, w: Writer, y: dt.Value) -> dt.Value:
    match draw(st.sampled_from(("reduce_scatter", "all_reduce", "neither"))):
        case "reduce_scatter":
            return w.do("reduce_scatter", y, dim=draw(st.integers(0, 1)))
        case "all_reduce":
            return w.do("all_reduce", y)
        case _:
            if draw(st.booleans()):
                return w.do("all_reduce", w.do("add", y, y))
            return w.do("reduce_scatter", y, dim=0)


Move = tuple[str, tuple[dt.Value, ...], dict[str, object]]


@st.composite
def walks(draw: st.DrawFn, *, wide: bool = False) -> Case:
    """Any ops that the rules allow, one after another, on values of one to three dimensions.

    `wide`: also collectives other than gather and reduce.
    """
    ranks = draw(st.sampled_from(RANKS))
    ndim = draw(st.sampled_from((2, 2, 2, 1, 3)))
    pool = draw(st.lists(st.sampled_from(SIZES), min_size=2, max_size=3))
    pool = [min(size, 8) for size in pool] if ndim > 2 else pool
    writer = Writer(_program(ranks), exact=draw(st.booleans()), wide=wide)
    with writer.program as p:
        dtype = draw(st.sampled_from((*FLOATS, *FLOATS, dt.i32, dt.i64, dt.bool)))
        for _ in range(draw(st.integers(1, 3))):
            shape = tuple(draw(st.sampled_from((*pool, 1))) for _ in range(ndim))
            places: list[Placement] = [R, *map(Shard, range(ndim))]
            place = draw(st.sampled_from(places))
            writer.source(shape, dtype, place, weight=draw(st.booleans()))
        for _ in range(draw(st.integers(0, 7))):
            if moves := list(_moves(writer)):
                fn = draw(st.sampled_from(sorted({m[0] for m in moves})))
                _, operands, arguments = draw(st.sampled_from([m for m in moves if m[0] == fn]))
                writer.do(fn, *operands, **arguments)
        others = writer.values[:-1]
        more = draw(st.lists(st.sampled_from(others), max_size=2)) if others else []
        for i, value in enumerate(dict.fromkeys([writer.values[-1], *more])):
            p.output(f"y{i}", value)
    return Case(p, draw(options(p, max(pool))), writer.exact, draw(st.integers(0, 99)))


def _moves(w: Writer) -> Iterator[Move]:
    """Everything that may be done next, with the recent values."""
    recent = w.values[-6:]
    for a in recent:
        yield from _unary_moves(w, a)
        for b in recent:
            for fn in ("add", "sub", "mul"):
                if _allowed(lambda fn=fn, a=a, b=b: rules.pointwise(fn, [a.spec, b.spec])):
                    yield from _if_fits(w, fn, (a, b))
            for transpose in (False, True) if len(a.shape) == len(b.shape) == 2 else ():
                if _allowed(
                    lambda a=a, b=b, t=transpose: rules.matmul(a.spec, b.spec, transpose_b=t)
                ):
                    yield from _if_fits(w, "matmul", (a, b), transpose_b=transpose)


def _unary_moves(w: Writer, a: dt.Value) -> Iterator[Move]:
    for fn in ("silu", "gelu", "relu", "exp"):
        if _allowed(lambda fn=fn: rules.pointwise(fn, [a.spec])):
            yield from _if_fits(w, fn, (a,))
    for dtype in (*FLOATS, dt.i32, dt.i64, dt.bool):
        castable = _allowed(lambda dtype=dtype: rules.cast(a.spec, dtype.name))
        if castable and dtype is not a.dtype and w.fits("cast", a, dtype=dtype):
            yield "cast", (a,), {"dtype": dtype}
    yield from _collective_moves(a)
    if w.wide:
        yield from _wide_moves(a)


def _collective_moves(a: dt.Value) -> Iterator[Move]:
    match a.placements[0]:
        case Shard(dim):
            yield "all_gather", (a,), {"dim": dim}
        case Partial():
            yield "all_reduce", (a,), {}
            for dim in range(len(a.shape)):
                yield "reduce_scatter", (a,), {"dim": dim}
        case Replicate():
            pass


def _wide_moves(a: dt.Value) -> Iterator[Move]:
    ranks, dims = a.program.mesh.ranks, range(len(a.shape))
    match a.placements[0]:
        case Shard(dim):
            for split in set(dims) - {dim}:
                yield "all_to_all", (a,), {"split_dim": split, "concat_dim": dim}
            for root in {0, ranks // 2, ranks - 1}:
                yield "broadcast", (a,), {"root": root}
            for by in (1, -2, ranks) if a.shape[dim] % ranks == 0 else ():
                yield "shift", (a,), {"by": by}
        case Replicate():
            for dim in dims:
                yield "shard", (a,), {"dim": dim}
        case Partial():
            pass


def _if_fits(
    w: Writer, fn: str, operands: tuple[dt.Value, ...], **arguments: object
) -> Iterator[Move]:
    if w.fits(fn, *operands):
        yield fn, operands, arguments


def _allowed(rule: object) -> bool:
    assert callable(rule)
    try:
        rule()
    except ProgramError:
        return False
    return True


def cases() -> st.SearchStrategy[Case]:
    """Any case."""
    return st.one_of(layered(), walks())
