"""A compiled kernel, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ditron.runtime.gpu_program import Launch


@dataclass(frozen=True)
class Compiled:
    """A compiled kernel: texts by form ("ttgir", "ptx", "amdgcn"), and what it takes in bytes."""

    launch: Launch
    asm: Mapping[str, Any]
    shared_bytes: int
    spills: int

    @property
    def text(self) -> str:
        """The assembly: PTX or GCN."""
        return self.asm["ptx"] if "ptx" in self.asm else self.asm["amdgcn"]
