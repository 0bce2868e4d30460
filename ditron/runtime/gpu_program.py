"""What a GPU backend makes of a module: kernel source, and what a host launches, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ditron.plan.launches import Launches
from ditron.plan.tables import Ints

# int32 words from one signal slot to the next: each has a cache line of its own.
SLOT_WORDS = 32


class What(StrEnum):
    """What a kernel's argument is."""

    BUFFER = "buffer"  # this rank's buffer
    TILES = "tiles"  # this rank's buffer as a tensor descriptor: blocks of it by its copy engine
    MEMORY_AT = "memory at"  # int64 [ranks]: the address of each rank's memory
    BUFFER_AT = "buffer at"  # int64 [ranks]: the address of a buffer on each rank
    SIGNALS = "signals"  # this rank's slots, SLOT_WORDS apart
    SIGNALS_AT = "signals at"  # int64 [ranks]: the address of the slots on each rank
    TABLE = "table"  # an int32 constant
    STAMPS = "stamps"  # int64 [tasks, 2]: when each task of a grid began and ended; "" is all grids
    CONTROL = "control"  # this rank's control words (library/common.py)
    RANK = "rank"  # this rank's number


@dataclass(frozen=True)
class Argument:
    """One argument of a kernel.

    Attributes:
        name: of the parameter in the source.
        what: what is passed.
        of: the buffer, signals or table that it is, by the plan's name.
        type: Triton's name of its type: "*bf16", "*i64", "i32", "tensordesc<bf16[128, 64]>".
        block: of a tensor descriptor, what one load or store moves.
    """

    name: str
    what: What
    of: str
    type: str
    block: tuple[int, ...] = ()


@dataclass(frozen=True)
class Launch:
    """One kernel launch of a rank's program.

    Attributes:
        kernel: the function's name in the source.
        op: the grid's row in `Plan.ops`.
        copies: whether it runs on the stream of transfers, beside the compute stream.
        programs: how many programs it has, one a lane.
        warps: warps a program.
        stages: depth of software pipelining.
        arguments: in order.
        waits: numbers of the sites in its code where it waits; likewise `notifies`.
        always: those of `waits` that every task passes before it touches anything.
        dots: products of tiles on the matrix unit, each a pipelined loop.
        pipeline_bytes: of shared memory, that such a loop takes at least.
        cooperative: whether all programs have to be resident, or the launch is refused.
        enters: for each of `always`, the mark where its task kind's code begins; none if there is
            but one kind.
    """

    kernel: str
    op: int
    copies: bool
    programs: int
    warps: int
    stages: int
    arguments: tuple[Argument, ...]
    waits: tuple[int, ...]
    notifies: tuple[int, ...]
    always: tuple[int, ...] = ()
    dots: int = 0
    pipeline_bytes: int = 0
    cooperative: bool = False
    enters: tuple[int, ...] = ()


@dataclass(frozen=True)
class Site:
    """A wait or notify in the code, known by its number in compiled text and in reports.

    Attributes:
        op: the grid's row in `Plan.ops`; -1 in code that several grids share, where reports give
            the task's row in the plan.
        signals: the array that it waits on or raises.
        waits: whether it is a wait.
        scope: "sys" where other ranks take part, else "gpu".
    """

    op: int
    signals: str
    waits: bool
    scope: str


@dataclass(frozen=True)
class TritonProgram:
    """Emitted code: the same for every rank.

    Attributes:
        source: Python source of the kernels.
        launches: in the order of the program.
        host: what each rank's host enqueues.
        tables: int32 constants by name.
        sites: every wait and notify by number.
        library: what the tasks of an op call, by its row in `Plan.ops`: "product",
            "product-transposed" or "sum".
        target: the architecture that it is for.
        persistent: whether a launch is one kernel, which begins the next epoch itself.
        stamps: whether tasks write down when they begin and end.
    """

    source: str
    launches: tuple[Launch, ...]
    host: Launches
    tables: Mapping[str, Ints] = field(default_factory=dict[str, Ints])
    sites: tuple[Site, ...] = ()
    library: Mapping[int, str] = field(default_factory=dict[int, str])
    target: str = ""
    persistent: bool = False
    stamps: bool = False
