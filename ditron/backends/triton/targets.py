"""Architectures that kernels are emitted for."""

from __future__ import annotations

from dataclasses import dataclass

from ditron.errors import OptionError


@dataclass(frozen=True)
class Target:
    """One architecture.

    Attributes:
        name: as users say it.
        backend: Triton's name of the vendor: "cuda" or "hip".
        arch: Triton's name of the architecture.
        warp: threads a warp.
        shared_bytes: of shared memory, the most that a program can have.
        block_k: elements of the summed dimension that a product loads at once, of 2-byte types.
        stages: depth of the pipeline of a product's loop, at most.
        descriptors: whether tiles are loaded through tensor descriptors (TMA).
        attended: places of a cache that attention looks at at once, of 2-byte types.
    """

    name: str
    backend: str
    arch: int | str
    warp: int
    shared_bytes: int
    block_k: int
    stages: int
    descriptors: bool = False
    attended: int = 128

    @property
    def library(self) -> str:
        """The module that emitted code takes its waits and notifies from."""
        return f"ditron.backends.triton.library.{self.backend}"


TARGETS = {
    t.name: t
    for t in (
        Target("sm_80", "cuda", 80, 32, 163 << 10, 64, 3),
        Target("sm_90", "cuda", 90, 32, 227 << 10, 64, 4, descriptors=True),
        Target("sm_100", "cuda", 100, 32, 227 << 10, 64, 3),
        Target("gfx942", "hip", "gfx942", 64, 64 << 10, 32, 2),
        Target("gfx950", "hip", "gfx950", 64, 160 << 10, 64, 2),
    )
}


def target_named(name: str) -> Target:
    """A target by name.

    Raises:
        OptionError: there is none of that name.
    """
    if name not in TARGETS:
        raise OptionError(f"no architecture {name!r}; there are {', '.join(TARGETS)}")
    return TARGETS[name]
