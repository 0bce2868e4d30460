"""Find the programs and kernels that a module holds side by side."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from ditron.errors import PlanError
from ditron.ir import core, device, task


def kernels(module: ModuleOp) -> dict[str, core.FuncOp]:
    """The module's tile kernels by name."""
    return {op.kernel_name: op for op in module.ops if isinstance(op, core.FuncOp)}


def called_kernels(module: ModuleOp) -> list[core.FuncOp]:
    """The kernels that the device program calls, in the order of the module."""
    called = {
        op.kernel_name for op in device_program(module).walk() if isinstance(op, device.CallOp)
    }
    return [func for name, func in kernels(module).items() if name in called]


def find_device_program(module: ModuleOp) -> device.ProgramOp | None:
    """The module's device program, if it has one."""
    return next((op for op in module.ops if isinstance(op, device.ProgramOp)), None)


def find_task_program(module: ModuleOp) -> task.ProgramOp | None:
    """The module's task program, if it has one."""
    return next((op for op in module.ops if isinstance(op, task.ProgramOp)), None)


def task_program(module: ModuleOp) -> task.ProgramOp:
    """The module's task program.

    Raises:
        PlanError: there is none.
    """
    program = find_task_program(module)
    if program is None:
        raise PlanError("no task.program here: this pass works on a task program")
    return program


def device_program(module: ModuleOp) -> device.ProgramOp:
    """The module's device program.

    Raises:
        PlanError: there is none.
    """
    program = find_device_program(module)
    if program is None:
        raise PlanError("no device.program here: run lower-task-to-device first")
    return program
