"""What a user may decide instead of ditron; None always means that ditron chooses."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Literal, get_args, get_type_hints

import msgspec

from ditron.errors import OptionError
from ditron.plan.collectives import parse_algorithm

Scheduler = Literal["round-robin", "program-order", "zigzag", "critical-path", "queue"]
SCHEDULERS: tuple[Scheduler, ...] = get_args(Scheduler)
HeapName = Literal["ipc", "nvshmem"]
HEAPS: tuple[HeapName, ...] = get_args(HeapName)
TILE = "two positive sizes such as (128, 256)"


@dataclass(frozen=True)
class OpOptions:
    """Choices for one op.

    Attributes:
        algorithm: of a collective: "mesh", "ring", "one-shot", "two-shot", with an optional
            transfer behind it: "mesh-push", "mesh-pull", "mesh-in-place".
        chunk_bytes: the most that one transfer of a collective moves, in bytes.
        tile: rows and columns that one compute task makes, in elements.
        library: whether a library (cuBLAS) multiplies, whole boxes at a time in the order of a
            stream; False forbids it, None has it considered beside emitted kernels.
        splits: into how many parts attention cuts the places that it walks, where each sequence
            has one token; 1 is none.
    """

    algorithm: str | None = None
    chunk_bytes: int | None = None
    tile: tuple[int, int] | None = None
    library: bool | None = None
    splits: int | None = None

    def __post_init__(self) -> None:
        check_types(self)
        if self.algorithm is not None:
            parse_algorithm(self.algorithm)
        if self.chunk_bytes is not None and self.chunk_bytes < 1:
            raise OptionError(f"chunk_bytes is at least 1, got {self.chunk_bytes}")
        if self.splits is not None and self.splits < 1:
            raise OptionError(f"splits is at least 1, got {self.splits}")
        if self.tile is not None and min(self.tile) < 1:
            raise OptionError(f"tile is {TILE}, got {self.tile}")


@dataclass(frozen=True)
class Options(OpOptions):
    """Choices for a whole program.

    Attributes:
        algorithm, chunk_bytes, tile, library, splits: as in `OpOptions`, for all that they fit.
        workers: lanes that share a rank's compute tasks.
        copy_lanes: lanes that share a rank's transfers.
        transport: how transfers are carried out: "copy-engine" has the driver's copies do it on
            NVIDIA GPUs, so that all SMs compute; None is the target's usual way.
        heap: what makes the memory of ranks on GPUs, so that peers reach it: "ipc", the driver's
            handles, between processes of one host (None); "nvshmem", NVSHMEM's symmetric heap.
        order: "natural" keeps tiles in grid order; None orders them by when their data arrives.
        fusion: False keeps every op a kernel of its own.
        megakernel: whether a rank's whole program becomes one persistent kernel (GPUs).
        scheduler: how compute tasks are dealt to lanes: "round-robin" (None), "program-order",
            "zigzag", "critical-path" or "queue"; see the pass `schedule-tasks`.
        stamps: whether kernels on GPUs write down when each of their tasks begins and ends, so that
            `exe.trace` shows tasks and not only kernels. CPU ranks' traces always do.
        reuse_memory: False gives every buffer bytes of its own.
        wait_bound_s: seconds after which a wait gives up and reports.
        per_op: choices by op name; patterns as in `fnmatch`, the first that matches counts.
        deterministic: fixes the order of every accumulation (the only mode so far).
    """

    workers: int | None = None
    copy_lanes: int | None = None
    transport: str | None = None
    heap: str | None = None
    order: str | None = None
    fusion: bool | None = None
    megakernel: bool = False
    scheduler: str | None = None
    stamps: bool = False
    reuse_memory: bool | None = None
    wait_bound_s: float = 30.0
    per_op: Mapping[str, OpOptions] = field(default_factory=dict[str, OpOptions])
    deterministic: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.order not in (None, "natural", "arrival"):
            raise OptionError(f'order is "natural" or "arrival", got {self.order!r}')
        if self.scheduler not in (None, *SCHEDULERS):
            known = ", ".join(SCHEDULERS)
            raise OptionError(f"scheduler is one of {known}, got {self.scheduler!r}")
        if self.heap not in (None, *HEAPS):
            raise OptionError(f"heap is one of {', '.join(HEAPS)}, got {self.heap!r}")
        for name in ("workers", "copy_lanes"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise OptionError(f"{name} is at least 1, got {getattr(self, name)}")
        if not self.wait_bound_s > 0:
            raise OptionError(f"wait_bound_s is positive, got {self.wait_bound_s}")
        for pattern, own in self.per_op.items():
            if not isinstance(own, OpOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise OptionError(f"per_op[{pattern!r}] is an OpOptions, got {type(own).__name__}")
        if not self.deterministic:
            raise OptionError("deterministic=False is not supported yet")

    def for_op(self, name: str) -> OpOptions:
        """The choices that hold for an op, those of `per_op` first."""
        matching = (o for pattern, o in self.per_op.items() if fnmatchcase(name, pattern))
        own = next(matching, OpOptions())
        merged = {
            f.name: getattr(self, f.name) if getattr(own, f.name) is None else getattr(own, f.name)
            for f in fields(OpOptions)
        }
        return OpOptions(**merged)

    def check_patterns(self, names: Collection[str]) -> None:
        """Raise an OptionError for a pattern of `per_op` that is the name of no op."""
        for pattern in self.per_op:
            if not any(fnmatchcase(name, pattern) for name in names):
                known = ", ".join(dict.fromkeys(names)) or "none"
                raise OptionError(f"per_op[{pattern!r}] is the name of no op; there are {known}")


@cache
def _hints(options: type[OpOptions]) -> dict[str, Any]:
    return get_type_hints(options)


def check_types(options: OpOptions) -> None:
    """Raise an OptionError for the first option whose value is of a wrong type."""
    for name, hint in _hints(type(options)).items():
        value = getattr(options, name)
        try:
            msgspec.convert(value, hint, strict=True, from_attributes=False)
        except msgspec.ValidationError as error:
            if name == "tile":
                raise OptionError(f"tile is {TILE}, got {value}") from error
            kind = getattr(hint, "__name__", None) or str(hint).replace("ditron.plan.options.", "")
            raise OptionError(f"{name} is of type {kind}, got {value!r}") from error
