"""What `benchmarks/gpu_ranks.py` runs: programs to check, and those to measure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import ditron as dt
from benchmarks.gpu_first_run import example

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
WIDTH = 1024  # columns of an all-reduce, where it has so many elements

M_A_RANK = 997
SHARED = 100  # workers of a rank that has a GPU to itself are more


@dataclass(frozen=True)
class Way:
    """One program with options, and how it is called in tables."""

    name: str
    build: Callable[[], dt.Program | dt.DeviceProgram]
    options: dt.Options

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


# (collective, algorithm, transport); those by copy engines move nothing in place.
COLLECTIVES = (
    ("all_gather", "mesh-push", "peer"),
    ("all_gather", "mesh-pull", "copy-engine"),
    ("all_gather", "ring-push", "peer"),
    ("all_gather", "bruck-push", "copy-engine"),
    ("all_gather", "hierarchical-push", "peer"),
    ("reduce_scatter", "mesh-push", "copy-engine"),
    ("reduce_scatter", "mesh-in-place", "peer"),
    ("reduce_scatter", "ring-push", "peer"),
    ("all_reduce", "one-shot-push", "peer"),
    ("all_reduce", "one-shot-in-place", "peer"),
    ("all_reduce", "two-shot-push", "copy-engine"),
    ("all_reduce", "two-shot-in-place", "peer"),
    ("all_reduce", "ring-push", "peer"),
    ("all_to_all", "mesh-push", "peer"),
    ("all_to_all", "pairwise-xor-push", "copy-engine"),
    ("broadcast", "flat-push", "peer"),
    ("broadcast", "tree-push", "copy-engine"),
    ("broadcast", "chain-push", "peer"),
    ("shift", "mesh-push", "peer"),
)


def checks(ranks: int, options: dt.Options) -> Iterator[Way]:
    """Every collective and algorithm, products with them, and the examples."""

    def with_(**changes: object) -> dt.Options:
        return replace(options, **changes)  # pyright: ignore[reportArgumentType]

    for kind, algorithm, transport in COLLECTIVES:
        even = kind in ("shift", "all_to_all")
        rows = M_A_RANK * ranks if even else M_A_RANK * ranks - 1
        chosen = with_(algorithm=algorithm, transport=transport, chunk_bytes=1 << 17)
        name = f"{kind} {algorithm} {transport}"
        yield Way(name, partial(collective, kind, ranks, rows, 256, dt.bf16), chosen)
    for kind, algorithm in (("ag", "mesh-pull"), ("rs", "mesh-push"), ("ar", "two-shot-push")):
        for library in (True, False):
            for rows in (M_A_RANK * ranks, 2048):
                sizes = {"m": rows, "n": 1376, "k": 520 if rows == 2048 else 1024, "tp": ranks}
                chosen = with_(algorithm=algorithm, transport="copy-engine", library=library)
                name = f"{EXAMPLES[kind]} {rows} rows {'library' if library else 'emitted'}"
                yield Way(name, partial(example, EXAMPLES[kind], **sizes), chosen)
    for name in ("04_mlp", "06_ulysses", "07_kv_cache", "08_transformer_layer",
                 "09_bias_gelu_kernel", "10_ring_all_gather", "11_double_buffered_reduce_scatter",
                 "12_vocabulary"):  # fmt: skip
        device = name.startswith(("10", "11"))
        chosen = dt.Options(wait_bound_s=20) if device else with_()
        yield Way(name, partial(example, name, tp=ranks), chosen)
    if ranks % 2 == 0:
        yield Way("05_two_axes", partial(example, "05_two_axes", dp=ranks // 2, tp=2), with_())


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
