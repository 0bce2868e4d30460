"""fuse-megakernel: all grids of a rank as one persistent launch.

    device.program @mlp ranks 2 heap 1579008 { ... }
    ->
    device.program @mlp ranks 2 heap 1579008 persistent { ... }

Needs: lanes and signals. Ensures: the program says that a rank's lanes stay for the whole launch,
each running its tasks of all grids in program order. Nothing else changes: signals order whatever
is on two lanes already, also within a rank, and `verify-*` judge the lanes as they are. Which grids
share code is found where code is made (`backends/megakernel`).

Source: Cheng et al., "Mirage Persistent Kernel" (2025), for a model as one kernel of lanes.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.passes import ModulePass

from ditron.analysis.symbols import device_program
from ditron.errors import PlanError
from ditron.ir import device
from ditron.ir.locations import op_location


@dataclass(frozen=True)
class FuseMegakernelPass(ModulePass):
    """See the module's docstring."""

    name = "fuse-megakernel"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        program = device_program(op)
        for grid in program.body.block.ops:
            if isinstance(grid, device.GridOp) and grid.schedule is None:
                raise PlanError(
                    f"@{grid.label} has no lanes: run schedule-tasks first", op_location(grid)
                )
        program.persistent = UnitAttr()
