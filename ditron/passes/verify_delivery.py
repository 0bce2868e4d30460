"""verify-delivery: every output holds what the task program says.

    task.program @p ... { %y = task.matmul %x, %w ... task.output "y", %y }
    device.program @p ... { ... device.call @matmul(%x_tile, %wrong_tile, %y_tile) ... }
    -> error: output 'y'[64:128, 0:128] on rank 0 should hold the matmul of ..., but holds ...

Needs: the device program with the kernels and the task program that it was lowered from beside it.
Ensures: nothing changes. By itself this proves nothing, since a lucky order hides missing waits:
run verify-race-free and verify-deadlock-free too. Source: `ditron.analysis.delivery`.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from ditron.analysis.delivery import check_delivery
from ditron.analysis.expand import expand
from ditron.analysis.symbols import device_program, find_task_program, kernels
from ditron.errors import DeliveryError
from ditron.ir.locations import op_location


@dataclass(frozen=True)
class VerifyDeliveryPass(ModulePass):
    """See the module's docstring."""

    name = "verify-delivery"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        program = find_task_program(op)
        plan = expand(op)
        if program is None:
            message = (
                f"nothing is proved of {plan.name}: there is no task program to hold it against"
            )
            raise DeliveryError(message, op_location(device_program(op)))
        check_delivery(plan, kernels(op), program)
