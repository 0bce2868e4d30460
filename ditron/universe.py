"""What ditron adds to xDSL's tools, under the entry point `xdsl.universe`: dialects and passes.

Nothing is imported until it is asked for, so that a tool's start costs only what it uses.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from xdsl.ir import Dialect
from xdsl.universe import Universe

from ditron.pipelines import PASSES


def _dialect(name: str) -> Callable[[], Dialect]:
    def load() -> Dialect:
        return getattr(import_module(f"ditron.ir.{name}"), name.capitalize())

    return load


DIALECTS: dict[str, Callable[[], Dialect]] = {
    name: _dialect(name) for name in ("task", "device", "core", "shmem")
}
"""Dialect `name` is the object `Name` in `ditron/ir/name.py`."""

DITRON_UNIVERSE = Universe(all_dialects=DIALECTS, all_passes=dict(PASSES))
