"""verify-race-free: conflicting accesses of any two launches are ordered by waits and lanes.

    device.grid @gather ... { device.put %src -> %dst  device.notify %ready[0] ... add 1 after put }
    device.grid @matmul ... { core.call @matmul(%dst, ...) }               // no wait for %ready[0]
    -> error: @gather[0] ... writes %xg..., and in the same launch @matmul[0] ... reads %xg...:
       nothing orders them; a notify from ... and a wait for it in ... would

Needs: device IR with lanes and signals. Ensures: nothing changes; waits are exact, the epochs of
each slot are separated, and no two accesses race. Source: `ditron.analysis.races`.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from ditron.analysis.expand import expand
from ditron.analysis.races import check_races


@dataclass(frozen=True)
class VerifyRaceFreePass(ModulePass):
    """See the module's docstring."""

    name = "verify-race-free"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        check_races(expand(op))
