"""verify-deadlock-free: every launch of the device program finishes.

    device.grid @a ... { device.wait %s[0] ge 1 ... device.notify %t[0] ... }
    device.grid @b ... { device.wait %t[0] ge 1 ... device.notify %s[0] ... }
    -> error: 2 tasks wait for each other: @a[0] on rank 0 ..., @b[0] on rank 0 ...

Needs: device IR with lanes and signals. Ensures: nothing changes; what passes cannot hang. Source:
`ditron.analysis.deadlock`.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from ditron.analysis.deadlock import check_deadlock
from ditron.analysis.expand import expand


@dataclass(frozen=True)
class VerifyDeadlockFreePass(ModulePass):
    """See the module's docstring."""

    name = "verify-deadlock-free"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        check_deadlock(expand(op))
