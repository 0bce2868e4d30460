"""What `benchmarks/gpu_ranks.py` runs: programs to check, and those to measure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import ditron as dt
from benchmarks.gpu_first_run import example
from ditron.plan.collectives import ALGORITHMS

# (M, N, K) of the whole problem as published; a rank has its part of N (AG), or of K (RS, AR).
AG_SHAPES = (
    (8192, 11008, 4096), (8192, 14336, 4096), (8192, 28672, 8192), (8192, 29568, 8192),
    (8192, 49152, 12288), (2048, 28672, 8192),
)  # fmt: skip
RS_SHAPES = (
    (8192, 4096, 11008), (8192, 4096, 14336), (8192, 8192, 28672), (8192, 8192, 29568),
    (2048, 8192, 28672),
)  # fmt: skip
KINDS = {"ag": AG_SHAPES, "rs": RS_SHAPES, "ar": RS_SHAPES}
EXAMPLES = {"ag": "01_ag_gemm", "rs": "02_gemm_rs", "ar": "03_gemm_ar"}

REDUCE_BYTES = tuple(1 << p for p in (10, 14, 16, 18, 20, 22, 24, 26))
SMALL = 1 << 18
HEAP_BYTES = (1 << 20, 1 << 28)
WIDTH = 1024  # columns of an all-reduce, where it has so many elements

M_A_RANK = 997
CHECK_CHUNK_BYTES = 1 << 17
SHARED = 100  # workers of a rank that has a GPU to itself are more


@dataclass(frozen=True)
class Way:
    """One program with options, and how it is called in tables."""

    name: str
    build: Callable[[], dt.Program | dt.DeviceProgram]
    options: dt.Options

    def on(self, heap: str) -> Way:
        """The same with its memory by another heap."""
        return Way(f"{self.name} {heap}", self.build, replace(self.options, heap=heap))

    def compile(self, target: str = "cuda") -> dt.Executable:
        """Compiled for the GPUs that are here, or for an architecture."""
        return dt.compile(self.build(), target=target, options=self.options)


def collective(kind: str, ranks: int, rows: int, columns: int, dtype: dt.DType) -> dt.Program:
    """A collective by itself."""
    with dt.Program(kind, dt.Mesh(tp=ranks)) as p:
        adds = kind in ("all_reduce", "reduce_scatter")
        x = p.input("x", (rows, columns), dtype, dt.Partial("sum") if adds else dt.Shard(0))
        made = {
            "all_gather": lambda: dt.all_gather(x, dim=0),
            "reduce_scatter": lambda: dt.reduce_scatter(x, dim=0),
            "all_reduce": lambda: dt.all_reduce(x),
            "all_to_all": lambda: dt.all_to_all(x, split_dim=1, concat_dim=0),
            "broadcast": lambda: dt.broadcast(x, root=0),
            "shift": lambda: dt.shift(x, by=1),
        }
        p.output("y", made[kind]())
    return p


def collectives() -> Iterator[tuple[str, str, str]]:
    """(collective, algorithm, transport) of all that stand alone.

    What a ring adds on its way it reads at the sender: not by copy engines. A gather in place wants
    somebody who reads, as the products of `PRODUCTS` do.
    """
    for kind, algorithms in ALGORITHMS.items():
        for name, transfers in algorithms.items():
            for transfer in transfers:
                if (kind, transfer) != ("all_gather", "in-place"):
                    yield kind, f"{name}-{transfer}", "peer"
                adds = name == "ring" and "reduce" in kind
                if transfer != "in-place" and not adds:
                    yield kind, f"{name}-{transfer}", "copy-engine"


# (kind, algorithm, transport, whether a library multiplies)
PRODUCTS = (
    ("ag", "mesh-in-place", "peer", False),
    ("rs", "mesh-push", "peer", False),
    ("ar", "one-shot-push", "peer", False),
    *(
        (kind, algorithm, "copy-engine", library)
        for kind, algorithm in (("ag", "mesh-pull"), ("rs", "mesh-push"), ("ar", "two-shot-push"))
        for library in (True, False)
    ),
)


def checks(ranks: int, options: dt.Options) -> Iterator[Way]:
    """Every collective and algorithm, products with them, and the examples."""
    for kind, algorithm, transport in collectives():
        even = kind in ("shift", "all_to_all")
        rows = M_A_RANK * ranks if even else M_A_RANK * ranks - 1
        chosen = replace(
            options, algorithm=algorithm, transport=transport, chunk_bytes=CHECK_CHUNK_BYTES
        )
        name = f"{kind} {algorithm} {transport}"
        yield Way(name, partial(collective, kind, ranks, rows, 256, dt.bf16), chosen)
    for kind, algorithm, transport, library in PRODUCTS:
        for rows in (M_A_RANK * ranks, 2048):
            sizes = {"m": rows, "n": 1376, "k": 520 if rows == 2048 else 1024, "tp": ranks}
            chosen = replace(options, algorithm=algorithm, transport=transport, library=library)
            by = "library" if library else f"emitted {transport}"
            name = f"{EXAMPLES[kind]} {rows} rows {by}"
            yield Way(name, partial(example, EXAMPLES[kind], **sizes), chosen)
    yield from examples(ranks, options)


def examples(ranks: int, options: dt.Options) -> Iterator[Way]:
    """The other examples, for any number of ranks."""
    for name in ("04_mlp", "06_ulysses", "08_transformer_layer", "09_bias_gelu_kernel"):
        yield Way(name, partial(example, name, tp=ranks), options)
    heads = max(4, ranks)  # of keys, and half those of queries
    cache = partial(example, "07_kv_cache", heads=2 * heads, groups=heads, tp=ranks)
    yield Way("07_kv_cache", cache, options)
    for name in ("10_ring_all_gather", "11_double_buffered_reduce_scatter"):
        yield Way(name, partial(example, name, tp=ranks), dt.Options(wait_bound_s=20))
    if ranks > 1:
        yield Way("12_vocabulary", partial(example, "12_vocabulary", tp=ranks), options)
    if ranks % 2 == 0:
        yield Way("05_two_axes", partial(example, "05_two_axes", dp=ranks // 2, tp=2), options)


def by_copies(options: dt.Options) -> dt.Options:
    """Transfers by copy engines, so that all SMs compute; a rank that shares a GPU has its part."""
    workers = None if options.workers and options.workers > SHARED else options.workers
    return replace(options, transport="copy-engine", workers=workers, copy_lanes=None)


def fused(kind: str, shape: tuple[int, int, int], ranks: int, options: dt.Options) -> list[Way]:
    """A product with its collective: as ditron chooses, and by emitted kernels."""
    m, n, k = shape
    build = partial(example, EXAMPLES[kind], m=m, n=n, k=k, tp=ranks)
    copies = by_copies(options)
    return [
        Way("chosen", build, copies),
        Way("emitted", build, replace(copies, library=False)),
    ]


def reduces(size: int, ranks: int, options: dt.Options) -> list[Way]:
    """All-reduces of so many bytes a rank, bf16."""
    columns = min(WIDTH, size // 2)
    build = partial(collective, "all_reduce", ranks, size // 2 // columns, columns, dt.bf16)
    ways = [Way("chosen", build, options)]
    algorithms = ["one-shot-push", "one-shot-in-place"] if size <= 1 << 22 else []
    if size >= SMALL:
        algorithms += ["two-shot-push", "two-shot-in-place", "ring-push"]
    ways += [Way(a, build, replace(options, algorithm=a)) for a in algorithms]
    if size >= 1 << 22:
        copies = replace(by_copies(options), algorithm="two-shot-push")
        ways.append(Way("two-shot-copies", build, copies))
    return ways
