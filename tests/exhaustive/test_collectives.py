"""Every collective by every algorithm, on every rank count, at sizes around all that divides."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ditron as dt
from ditron.plan.collectives import ALGORITHMS
from ditron.plan.placement import Replicate, Shard
from tests.property.programs import Case
from tests.property.test_programs import check_case

pytestmark = pytest.mark.exhaustive

RANKS = range(1, 9)
SIZES = (*range(18), 19, 23, 24, 25, 31, 32, 33, 40, 47, 48, 63, 64, 65)
CHUNKS = (None, 24, 100)
WIDTH = 3


def algorithms() -> Iterator[tuple[str, str]]:
    for kind, known in ALGORITHMS.items():
        if hasattr(dt, kind):
            for algorithm, transfers in known.items():
                yield from ((kind, f"{algorithm}-{transfer}") for transfer in transfers)


def gather(p: dt.Program, shape: tuple[int, int], dim: int, dtype: dt.DType) -> dt.Value:
    x = p.input("x", shape, dtype, Shard(dim))
    return dt.relu(dt.all_gather(x, dim=dim)) if dtype is not dt.bool else dt.all_gather(x, dim=dim)


def partial(p: dt.Program, shape: tuple[int, int], dtype: dt.DType) -> dt.Value:
    x = p.input("x", (shape[0], 5), dtype, Shard(1))
    return dt.matmul(x, p.input("w", (5, shape[1]), dtype, Shard(0)))


def program(kind: str, ranks: int, shape: tuple[int, int], dim: int, dtype: dt.DType) -> dt.Program:
    """The collective between what makes its operand and what uses its result."""
    with dt.Program(kind, dt.Mesh(tp=ranks)) as p:
        match kind:
            case "all_gather":
                y = gather(p, shape, dim, dtype)
            case "reduce_scatter":
                y = dt.reduce_scatter(partial(p, shape, dtype), dim=dim)
            case "all_reduce":
                y = dt.all_reduce(partial(p, shape, dtype))
            case "all_to_all":
                x = p.input("x", shape, dtype, Shard(dim))
                y = dt.all_to_all(dt.relu(x), split_dim=1 - dim, concat_dim=dim)
            case "broadcast":
                x = p.input("x", shape, dtype, Shard(dim))
                y = dt.broadcast(dt.relu(x), root=ranks // 2)
            case "shift":
                equal = tuple(s - s % ranks if d == dim else s for d, s in enumerate(shape))
                y = dt.shift(dt.relu(p.input("x", equal, dtype, Shard(dim))), by=ranks // 2 + 1)
            case _:
                raise AssertionError(kind)
        p.output("y", y)
        if kind != "all_gather":
            p.output("z", dt.add(y, p.input("b", y.shape, dtype, Replicate())))
    return p


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize(("kind", "algorithm"), list(algorithms()))
def test_collective(kind: str, algorithm: str, ranks: int, dim: int) -> None:
    for number, size in enumerate(SIZES):
        shape = (size, WIDTH) if dim == 0 else (WIDTH, size)
        chunk = CHUNKS[number % len(CHUNKS)]
        tile = None if number % 2 else (4, 4)
        options = dt.Options(
            algorithm=algorithm,
            chunk_bytes=chunk,
            tile=tile,
            workers=1 + number % 3,
            copy_lanes=1 + number % 2,
        )
        dtype = (dt.f32, dt.bf16, dt.f16)[number % 3]
        case = Case(program(kind, ranks, shape, dim, dtype), options, exact=True, seed=number)
        try:
            check_case(case, seeds=2, launches=2)
        except BaseException as error:
            error.add_note(str(case))
            raise


@pytest.mark.parametrize("dtype", [dt.i32, dt.i64, dt.bool], ids=str)
@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("algorithm", [a for kind, a in algorithms() if kind == "all_gather"])
def test_integers_gather(algorithm: str, ranks: int, dtype: dt.DType) -> None:
    for size in (0, 1, 5, 8, 17):
        with dt.Program("integers", dt.Mesh(tp=ranks)) as p:
            y = gather(p, (size, WIDTH), 0, dtype)
            p.output("y", dt.cast(y, dt.f32))
        check_case(Case(p, dt.Options(algorithm=algorithm), exact=True), seeds=2, launches=2)
