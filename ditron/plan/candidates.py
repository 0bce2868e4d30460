"""The ways to carry out a collective and the products beside it, ranked by what they would cost.

`choose-algorithms` turns a program into questions; an answer is every candidate with its price, the
cheapest first. The same question on the same machine always has the same answer: prices are plain
float arithmetic, and among equals the one that stands first in the machine file wins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeVar

from ditron.plan.collective_cost import traffic_of
from ditron.plan.collectives import ALGORITHMS
from ditron.plan.cost import (
    NOTHING,
    GemmShape,
    TiledCost,
    core_share,
    gemm_cost,
    split_cost,
    spread_factor,
)
from ditron.plan.machine import Machine
from ditron.plan.overlap_cost import Price, gather_price, in_turn_price, scatter_price
from ditron.plan.tables import DTYPE_BYTES
from ditron.plan.traffic import Message, alone_us

Tile = tuple[int, int]

LIBRARY_CUTS = (1, 2, 4, 8)
"""Into how many boxes a shard's rows are cut where a library multiplies."""

T = TypeVar("T")


@dataclass(frozen=True)
class Fixed:
    """What the user decided; None is open."""

    algorithm: str | None = None
    transfer: str | None = None
    chunk: int | None = None
    reduce_tile: Tile | None = None
    tile: Tile | None = None
    library: bool | None = None


@dataclass(frozen=True)
class Question:
    """A collective with the products that it feeds (all_gather) or drains (all others).

    Attributes:
        kind: the collective's name.
        shape: rows and columns of one rank's shard (of an all_to_all: of the part that goes to one
            peer), the collective's dimension first.
        dtype: of its elements.
        ranks: that take part.
        processes: all ranks of the program.
        products: on one rank, with the tensor of the collective whole.
        axis: what the collective's dimension is of the products: "rows", "columns", or "inner"
            where they sum over it.
        in_place: users can read the peers' memory shard by shard.
        library: a library has kernels for all that is computed.
        fixed: what the user decided.
    """

    kind: str
    shape: tuple[int, int]
    dtype: str
    ranks: int
    processes: int
    products: tuple[GemmShape, ...] = ()
    axis: str = "rows"
    in_place: bool = True
    library: bool = False
    fixed: Fixed = field(default_factory=Fixed)

    @property
    def adds(self) -> bool:
        """Whether contributions are added."""
        return self.kind in ("reduce_scatter", "all_reduce")


@dataclass(frozen=True)
class Candidate:
    """One way: `chunk` in rows of the collective's dimension, `tile` of the products.

    `library`: products are calls of a library, one a tile.
    """

    algorithm: str
    transfer: str
    chunk: int
    reduce_tile: Tile
    tile: Tile
    library: bool = False

    @property
    def way(self) -> str:
        """`mesh push`, `mesh push by library`."""
        return f"{self.algorithm} {self.transfer}{' by library' if self.library else ''}"

    def tell(self, *, reduces: bool, multiplies: bool) -> str:
        """`mesh push chunk 64 tile 128x256`: what a choice says."""
        words = [f"{self.algorithm} {self.transfer}", f"chunk {self.chunk}"]
        words += [f"reduce-tile {show_tile(self.reduce_tile)}"] if reduces else []
        words += [f"tile {show_tile(self.tile)}"] if multiplies else []
        words += ["by library"] if self.library else []
        return " ".join(words)


@dataclass(frozen=True)
class Priced:
    """A candidate and what it would cost."""

    candidate: Candidate
    price: Price

    @property
    def us(self) -> float:
        return self.price.overlapped_us


def ways(machine: Machine, question: Question) -> list[tuple[str, str]]:
    """The (algorithm, transfer) pairs that the machine and the program allow, fixed ones only."""
    fixed = question.fixed
    direct = machine.peer_pointers and question.in_place
    return [
        (algorithm, transfer)
        for algorithm, transfers in ALGORITHMS[question.kind].items()
        for transfer in transfers
        if fixed.algorithm in (None, algorithm)
        and fixed.transfer in (None, transfer)
        and (direct or transfer != "in-place")
    ]


@lru_cache(maxsize=512)
def answer(machine: Machine, question: Question) -> tuple[Priced, ...]:
    """All candidates with their prices, the cheapest first; none where no closed form is known.

    Of those that hide all that they move, those come first that move it in less time.
    """
    priced = list(_priced(machine, question)) if question.fixed.library is not True else []
    priced += _by_library(machine, question)
    return tuple(sorted(priced, key=lambda p: (round(p.us, 6), round(p.price.transfer_us, 6))))


def _priced(machine: Machine, question: Question) -> Iterator[Priced]:
    for tile in _tiles(machine, question):
        whole = _products(machine, question, tile, cut=False)
        by_shard = _products(machine, question, tile, cut=True)
        for algorithm, transfer in ways(machine, question):
            products = by_shard if _cuts(question, transfer, tile) else whole
            for chunk in _chunks(machine, question, transfer):
                for reduce_tile in _reduce_tiles(machine, question):
                    one = Candidate(algorithm, transfer, chunk, reduce_tile, tile)
                    priced = _price(machine, question, one, products)
                    if priced is not None:
                        yield Priced(one, priced)


def _by_library(machine: Machine, question: Question) -> Iterator[Priced]:
    """Products as calls of a library, one a box of whole rows, as high as a chunk or higher."""
    fixed = question.fixed
    if not question.library or fixed.library is False:
        return
    if fixed.library is None and fixed.tile is not None:  # one for emitted kernels
        return
    rows, columns = question.shape
    width = max(product.n for product in question.products)
    heights = [-(-rows // parts) for parts in LIBRARY_CUTS]
    if question.kind == "all_gather":
        heights.append(rows * question.ranks)  # all of it, once everything has come
    if fixed.tile is not None:
        heights = [fixed.tile[0]]
    for height in dict.fromkeys(heights):
        chunk = fixed.chunk or min(height, rows)
        # Among equals a pull, which measured 10 us sooner than a push.
        for algorithm, transfer in sorted(ways(machine, question), key=lambda w: w[1] != "pull"):
            if transfer == "in-place":
                continue
            added = fixed.reduce_tile or (chunk, columns)
            one = Candidate(algorithm, transfer, chunk, added, (height, width), library=True)
            priced = price(machine, question, one)
            if priced is not None:
                yield Priced(one, priced)


def _library_price(machine: Machine, question: Question, one: Candidate) -> Price | None:
    """Calls in the order of a stream: each box once its rows have come, sums beside products."""
    rows, height = question.shape[0], one.tile[0]
    call = machine.engines["library"].start_us
    whole = height > rows
    boxes = 1 if whole else -(-rows // height) * question.ranks

    def best(m: int) -> float:
        shapes = [replace(p, m=min(m, p.m)) for p in question.products]
        return sum(min(gemm_cost(machine, s, t).us for t in machine.tiles) for s in shapes)

    # Calls follow each other without a gap, so that all of them together run in whole waves.
    calls = call * len(question.products)
    products = TiledCost(best(rows * question.ranks) + calls * boxes, best(height) + calls, boxes)
    message = _message(question, one, machine.reduce_tile)
    traffic = traffic_of(machine, message, one.algorithm, one.transfer)
    if traffic is None:
        return None
    if question.kind == "all_gather":
        way = in_turn_price if whole else gather_price
        return way(machine, message, traffic, products)
    # All but the last sum is done beside the products that come after; where own rows come last,
    # what peers have sent arrives meanwhile.
    last = replace(traffic.adds, us=traffic.adds.us / message.chunks + call)
    meanwhile = 0.0 if one.algorithm == "one-shot" else products.us / question.ranks
    edge = max(traffic.edge_us - meanwhile, 0.0)
    return scatter_price(machine, message, replace(traffic, edge_us=edge, adds=last), products)


def _message(question: Question, one: Candidate, reduce_tile: Tile) -> Message:
    return Message(
        question.kind,
        question.shape,
        question.dtype,
        question.ranks,
        one.chunk,
        reduce_tile,
        processes=question.processes,
    )


def price(machine: Machine, question: Question, one: Candidate) -> Price | None:
    """What one candidate would cost; None where no closed form is known."""
    if one.library:
        return _library_price(machine, question, one)
    cut = _cuts(question, one.transfer, one.tile)
    return _price(machine, question, one, _products(machine, question, one.tile, cut=cut))


def _products(machine: Machine, question: Question, tile: Tile, *, cut: bool) -> TiledCost:
    shards = question.ranks if cut else 1
    shapes = [replace(p, shards=shards) for p in question.products]
    whole = sum((gemm_cost(machine, shape, tile) for shape in shapes), NOTHING)
    waves = -(-whole.tasks // machine.workers)
    return replace(whole, us=whole.us + waves * machine.costs.sync_us)


def _cuts(question: Question, transfer: str, tile: Tile) -> bool:
    """Whether tiles stop at shard boundaries (as `analysis/shards.py` decides)."""
    if question.axis != "rows":
        return False
    in_place = question.kind == "all_gather" and transfer == "in-place"
    return in_place or 2 * question.shape[0] >= tile[0]


def _price(
    machine: Machine, question: Question, one: Candidate, products: TiledCost
) -> Price | None:
    across = max((-(-p.n // one.tile[1]) for p in question.products), default=1)
    message = replace(_message(question, one, one.reduce_tile), reads=across)
    traffic = traffic_of(machine, message, one.algorithm, one.transfer)
    if traffic is None:
        return None
    if not question.products:
        alone = alone_us(machine, question.processes, traffic)
        total = machine.costs.launch_us + alone
        return Price(total, total, 0.0, alone)
    if question.kind != "all_gather":
        return scatter_price(machine, message, traffic, products)
    if question.axis == "inner":
        return in_turn_price(machine, message, traffic, products)
    slowdown = 1.0
    if question.axis == "rows" and one.transfer != "in-place":
        weight_bytes = max(p.weight_bytes for p in question.products)
        rows = (one.chunk or question.shape[0]) / one.tile[0]
        together = max(rows, machine.cache.group_rows)  # as order-tiles has them start
        slowdown = spread_factor(machine, weight_bytes, together)
    return gather_price(machine, message, traffic, products, slowdown)


def _tiles(machine: Machine, question: Question) -> tuple[Tile, ...]:
    if question.fixed.tile is not None:
        return (question.fixed.tile,)
    return _product_tiles(machine, question.products) if question.products else (machine.tile,)


def _product_tiles(machine: Machine, products: tuple[GemmShape, ...]) -> tuple[Tile, ...]:
    thin = machine.thin_tile
    if thin is not None and all(p.m <= thin[0] for p in products):
        return (thin,)
    return _default_first(machine.tile, machine.tiles)


def _reduce_tiles(machine: Machine, question: Question) -> tuple[Tile, ...]:
    if question.fixed.reduce_tile is not None:
        return (question.fixed.reduce_tile,)
    if not question.adds:
        return (machine.reduce_tile,)
    return _default_first(machine.reduce_tile, machine.reduce_tiles)


def _chunks(machine: Machine, question: Question, transfer: str) -> list[int]:
    """Rows of a transfer; nothing to choose where no gathered tensor is moved."""
    rows, columns = question.shape
    if question.fixed.chunk is not None:
        return [question.fixed.chunk]
    row_bytes = columns * DTYPE_BYTES[question.dtype]
    sizes = _default_first(machine.chunk_bytes, machine.chunks)
    if transfer == "in-place" and question.kind != "all_reduce":
        sizes = sizes[:1]
    return list(dict.fromkeys(chunk_rows(rows, row_bytes, size) for size in sizes))


def chunk_rows(rows: int, row_bytes: int, chunk_bytes: int) -> int:
    """Rows of a transfer of at most `chunk_bytes`; at least one, at most all of a shard."""
    return max(1, min(rows, chunk_bytes // max(row_bytes, 1)))


def _default_first(default: T, others: tuple[T, ...]) -> tuple[T, ...]:
    return (default, *(o for o in others if o != default))


@lru_cache(maxsize=512)
def tile_answer(
    machine: Machine, products: tuple[GemmShape, ...], ranks: int
) -> tuple[tuple[Tile, float], ...]:
    """Tiles for products that no collective stands beside, with what they would cost, in us."""
    found: list[tuple[Tile, float]] = []
    for tile in _product_tiles(machine, products):
        total = sum((split_cost(machine, p, tile) for p in products), NOTHING)
        us = machine.costs.launch_us + total.us / core_share(machine, ranks)
        found.append((tile, us))
    return tuple(sorted(found, key=lambda f: round(f[1], 6)))


def runner_up(answers: tuple[Priced, ...]) -> Priced | None:
    """The cheapest candidate that moves the data otherwise than the first, else the second."""
    others = [a for a in answers[1:] if a.candidate.way != answers[0].candidate.way]
    return next(iter(others or answers[1:]), None)


def show_tile(tile: Tile) -> str:
    """`128x256`."""
    return "x".join(map(str, tile))
