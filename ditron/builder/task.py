"""The task level: programs on distributed tensors, as a user writes them.

A value knows its program, so there is no current program, and threads that write one each do not
meet.
Every mistake is raised at the user's own line, by the rules of `ditron.plan.spec`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Self

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from ditron.builder.arguments import (
    as_index,
    as_mesh,
    as_name,
    as_placements,
    as_shape,
    at_user_line,
)
from ditron.builder.core import distinct_kernel
from ditron.builder.value import Value, program_of
from ditron.errors import PlacementError, ProgramError
from ditron.ir import core, task
from ditron.ir.attrs import TensorType
from ditron.ir.locations import caller_loc
from ditron.plan.callsite import user_line
from ditron.plan.dtypes import DType, Kind, as_dtype
from ditron.plan.placement import Mesh, Partial, Placement, Replicate, show
from ditron.plan.spec import TensorSpec, check_spec

if TYPE_CHECKING:
    import torch


_NO_HINT = re.compile(r"[^A-Za-z0-9_]")  # what an SSA value's printed name cannot have


class _State(Enum):
    NEW = "has not been opened: use `with`"
    OPEN = "is open"
    CLOSED = "is closed: its `with` block has ended"
    FAILED = "is unusable: its `with` block raised an error"


class Program:
    """A program on a mesh, written inside its `with` block.

    ```python
    with dt.Program("ag_gemm", dt.Mesh(tp=4)) as p:
        x = p.input("x", (m, k), dt.bf16, dt.Shard(0))
        w = p.weight("w", (k, n), dt.bf16, dt.Shard(1))
        p.output("y", dt.matmul(dt.all_gather(x, dim=0), w))
    ```
    """

    def __init__(self, name: str, mesh: Mesh) -> None:
        with at_user_line():
            self.name = as_name(name, "a program")
            self.mesh = as_mesh(mesh, several=True)
        self._state = _State.NEW
        self._taken: dict[str, str] = {}
        self._outputs: dict[SSAValue, str] = {}
        self._overwritten: dict[SSAValue, str] = {}
        self.kernels: dict[str, core.FuncOp] = {}
        self._op = task.ProgramOp(name, mesh)
        self._op.location = caller_loc()
        self._where = user_line()

    def __enter__(self) -> Self:
        if self._state is not _State.NEW:
            self._refuse("a program is opened once")
        self._state = _State.OPEN
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._state = _State.FAILED
        if kind is not None:
            return
        if not self._outputs:
            message = f'program "{self.name}" has no output: end it with p.output("y", value)'
            raise ProgramError(message, self._where)
        self._op.verify()
        self._state = _State.CLOSED

    def input(
        self,
        name: str,
        shape: Sequence[int],
        dtype: DType | torch.dtype,
        placements: Placement | Sequence[Placement],
    ) -> Value:
        """A tensor that every run is given: global shape, one placement per mesh axis."""
        with at_user_line():
            spec = self._source(name, "input", shape, dtype, placements)
            op = task.InputOp(name, TensorType.of(spec))
            self.append(op, name)
            return Value(self, op.result, name)

    def weight(
        self,
        name: str,
        shape: Sequence[int],
        dtype: DType | torch.dtype,
        placements: Placement | Sequence[Placement],
    ) -> Value:
        """A tensor that is bound once and kept between runs."""
        with at_user_line():
            spec = self._source(name, "weight", shape, dtype, placements)
            op = task.WeightOp(name, TensorType.of(spec))
            self.append(op, name)
            return Value(self, op.result, name)

    def state(
        self,
        name: str,
        shape: Sequence[int],
        dtype: DType | torch.dtype,
        placements: Placement | Sequence[Placement],
    ) -> Value:
        """A tensor that is kept from run to run, zeros at first; `dt.update` writes to it."""
        with at_user_line():
            spec = self._source(name, "state", shape, dtype, placements)
            op = task.StateOp(name, TensorType.of(spec))
            self.append(op, name)
            return Value(self, op.result, name)

    def scalar(
        self,
        name: str,
        dtype: DType | torch.dtype,
        max: int | None = None,  # noqa: A002 - the public name
    ) -> Value:
        """A number that every run is given, such as a position: a tensor of shape (1,), replicated.

        With `max` it is an integer of 0 to `max`, and may say where a slice or update begins.
        """
        with at_user_line():
            everywhere = [Replicate()] * len(self.mesh.axes)
            element = as_dtype(dtype)
            most = None if max is None else as_index(max, f'the max of scalar "{name}"')
            if most is not None and (element.kind is not Kind.INT or most < 0):
                message = (
                    f'scalar "{name}" with a max is an integer of 0 or more, got {element} and'
                    f" max={most}"
                )
                raise ProgramError(message)
            spec = self._source(name, "scalar", (1,), element, everywhere)
            op = task.ScalarOp(name, TensorType.of(spec), most)
            self.append(op, name)
            return Value(self, op.result, name)

    def output(self, name: str, value: Value) -> None:
        """A tensor that every run returns; partial sums come back summed."""
        with at_user_line():
            if program_of("output", value) is not self:
                message = (
                    f'output "{name}" of program "{self.name}" is a value of program'
                    f' "{value.program.name}"; a program uses its own values only'
                )
                raise ProgramError(message)
            if (before := self._outputs.get(value.ssa)) is not None:
                message = f'output "{name}" is already returned as "{before}"'
                raise ProgramError(message)
            self._take(name, "output")
            self.append(task.OutputOp(name, value.ssa), name)
            self._outputs[value.ssa] = name

    @property
    def ir(self) -> ModuleOp:
        """The program as a verified module of the task dialect, a fresh copy each time.

        The kernels that it calls stand before it.
        """
        if self._state is not _State.CLOSED:
            self._refuse("its IR is complete when its `with` block has ended", self._where)
        return ModuleOp([*(func.clone() for func in self.kernels.values()), self._op.clone()])

    def add_kernel(self, func: core.FuncOp) -> str:
        """Put a traced kernel beside the program; equal ones become one. Returns its name."""
        return distinct_kernel(self.kernels, func, {self.name})

    def reference(
        self, inputs: Mapping[str, torch.Tensor | float], *, compute: torch.dtype | None = None
    ) -> dict[str, torch.Tensor]:
        """The program on global tensors by torch alone, on this process.

        Returns every output by name, and what every state holds afterwards.

        Args:
            inputs: every input, weight and scalar by name, whole; states that are not given are
                zeros.
            compute: float32 (the default) rounds once an op; float64 does not round at all.

        Raises:
            InputError: tensors that do not fit the program.
        """
        from ditron.runtime.reference import reference  # noqa: PLC0415 - torch, only when needed

        program = next(op for op in self.ir.ops if isinstance(op, task.ProgramOp))
        return (
            reference(program, inputs) if compute is None else reference(program, inputs, compute)
        )

    def __str__(self) -> str:
        return str(self._op)

    def __repr__(self) -> str:
        return f'<Program "{self.name}" on {self.mesh}>'

    def _source(
        self,
        name: str,
        role: str,
        shape: Sequence[int],
        dtype: DType | torch.dtype,
        placements: Placement | Sequence[Placement],
    ) -> TensorSpec:
        what = f'{role} "{as_name(name, role)}"'
        dims = as_shape(shape, what)
        layout = as_placements(placements, self.mesh, len(dims), what)
        spec = TensorSpec(dims, as_dtype(dtype).name, layout)
        check_spec(spec, len(self.mesh.axes), what)
        if Partial() in layout and role != "input":  # of which a rank may hold a term
            message = f"{what} cannot be {show(layout)}: pass the sum, as Shard or Replicate"
            raise PlacementError(message)
        self._take(name, role)
        return spec

    def _take(self, name: str, role: str) -> None:
        self.require_open()
        if as_name(name, role) in self._taken:
            message = f'{role} "{name}": the name belongs to {self._taken[name]} already'
            raise ProgramError(message)
        self._taken[name] = f'{role} "{name}" of {user_line()}'

    def require_open(self) -> None:
        """Operations may be added only while the block is open."""
        if self._state is not _State.OPEN:
            self._refuse("operations belong inside the block")

    def _refuse(self, why: str, where: str | None = None) -> None:
        message = f'program "{self.name}" {self._state.value}; {why}'
        raise ProgramError(message, where or user_line())

    def append(self, op: Operation, hint: str) -> None:
        """Append an op, with the user's line as its location."""
        op.location = caller_loc()
        for operand in op.operands:
            if (update := self._overwritten.get(operand)) is not None:
                message = f"what the state held before {update} is gone: use what update returned"
                raise ProgramError(message)
        if isinstance(op, task.ComputeOp) and op.overwritten is not None:
            self._overwritten[op.overwritten] = f"the update at {user_line()}"
        for result in op.results:
            result.name_hint = _NO_HINT.sub("_", hint)
        self._op.body.block.add_op(op)
