"""Whether a program made for a larger size gives the same on less, whatever is behind the end.

It does if no element before the end depends on one behind it. Dimensions that are a size are found
in the inputs by comparing the program at two sizes, and followed from op to op; each op has to hand
them on as they are, and the program may differ from size to size in nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xdsl.ir import SSAValue

from ditron.errors import ProgramError
from ditron.ir import task
from ditron.ir.locations import op_location
from ditron.plan.spec import show_shape

Open = tuple[str | None, ...]
"""For each dimension of a tensor the name of the size that it is; None: it is always the same."""

TensorOp = task.SourceOp | task.ScalarOp | task.ComputeOp | task.OutputOp


class Sized:
    """A task program, its ops in order, and the sizes it was made for."""

    def __init__(self, program: task.ProgramOp, sizes: Mapping[str, int]) -> None:
        self.program, self.sizes = program, sizes
        self.ops = [op for op in program.body.block.ops if isinstance(op, TensorOp)]
        values = [op.result for op in self.ops if not isinstance(op, task.OutputOp)]
        self._numbers: dict[SSAValue, int] = {value: i for i, value in enumerate(values)}

    def __str__(self) -> str:
        return ", ".join(f"{name} = {size}" for name, size in self.sizes.items())

    def says(self, at: int) -> tuple[object, ...]:
        """What the op at a place does, but for sizes; nothing behind the last."""
        if at >= len(self.ops):
            return ()
        op = self.ops[at]
        kernel = str(op.function()) if isinstance(op, task.CallOp) else ""
        operands = tuple(self._numbers[operand] for operand in op.operands)
        return op.name, op.properties, operands, kernel, task.spec_of(_value(op)).dtype

    def shape(self, at: int) -> tuple[int, ...]:
        """The shape of what the op at a place makes or puts out."""
        return task.spec_of(_value(self.ops[at])).shape


def open_dims(largest: Sized, others: list[Sized]) -> dict[str, Open]:
    """Which dimensions of inputs and outputs are one of the sizes, by tensor.

    Args:
        largest: the program that is looked into.
        others: the same at other sizes; for each name one that differs in this size alone.

    Raises:
        ProgramError: the programs differ in more than sizes, a weight depends on one, there is a
            state, or what is behind the end would reach what is before it.
    """
    known: dict[SSAValue, Open] = {}
    found: dict[str, Open] = {}
    for at, op in enumerate(largest.ops):
        for other in others:
            _check_same(largest, other, at)
        match op:
            case task.OutputOp():
                dims = found[op.tensor_name.data] = known[op.operand]
            case task.ComputeOp():
                dims = known[op.result] = _handed_on(op, known)
            case _:
                dims = known[op.result] = tuple(_declared(largest, others, at))
                if isinstance(op, task.InputOp):
                    found[op.tensor_name.data] = dims
                elif any(dims) or isinstance(op, task.StateOp):
                    why = "plans of several sizes cannot share a state, nor a weight of that size"
                    raise ProgramError(f"{op.tensor_name.data}: {why}", op_location(op))
        for one in (largest, *others):
            _check_shape(one, at, largest.shape(at), dims)
    for other in others:
        _check_same(largest, other, len(largest.ops))
    return found


def _value(op: TensorOp) -> SSAValue:
    return op.operand if isinstance(op, task.OutputOp) else op.result


def _check_same(one: Sized, two: Sized, at: int) -> None:
    if one.says(at) != two.says(at) or one.program.mesh != two.program.mesh:
        op = (one if at < len(one.ops) else two).ops[at]
        raise ProgramError(
            f"the program differs at {one} and at {two} in more than sizes: compile it for each"
            " size instead",
            op_location(op),
        )


def _declared(largest: Sized, others: list[Sized], at: int) -> Iterator[str | None]:
    """A dimension is the size that it changes with."""
    for dim, size in enumerate(largest.shape(at)):
        changes = [one for one in others if one.shape(at)[dim] != size]
        alone = [_changed(largest, one) for one in changes]
        yield next((names[0] for names in alone if len(names) == 1), None)


def _changed(one: Sized, two: Sized) -> list[str]:
    return [name for name, size in one.sizes.items() if two.sizes[name] != size]


def _handed_on(op: task.ComputeOp, known: Mapping[SSAValue, Open]) -> Open:
    dims: list[str | None] = [None] * len(task.spec_of(op.result).shape)
    for operand, becomes in zip(op.operands, op.becomes(), strict=True):
        for dim, to in enumerate(becomes):
            name = known[operand][dim]
            if name is None:
                continue
            if to is not None:
                dims[to] = name
            apart = to is not None
            if isinstance(op, task.AttentionOp) and dim == 1:  # a token sees none behind it
                apart = op.causal
            if not apart:
                raise ProgramError(
                    f"{op.label()} mixes the elements of a dimension that is {name}, so it cannot"
                    " run on less than its bucket: compile it for each size instead",
                    op_location(op),
                )
    return tuple(dims)


def _check_shape(one: Sized, at: int, largest: tuple[int, ...], dims: Open) -> None:
    have = one.shape(at)
    want = tuple(
        size if name is None else one.sizes[name] for size, name in zip(largest, dims, strict=True)
    )
    if len(have) != len(largest) or have != want:
        op = one.ops[at]
        name = op.label() if isinstance(op, task.ComputeOp) else op.tensor_name.data
        raise ProgramError(
            f"{name} is {show_shape(have)} at {one}, expected {show_shape(want)}: a dimension of an"
            " input may be a size itself, nothing else may depend on it",
            op_location(op),
        )
