"""choose-algorithms: decide how each op is carried out, and write it on the op.

    %g = task.all_gather %x dim 0 axis "tp" : ...
    ->
    %g = task.all_gather %x dim 0 axis "tp" choice #task.choice<mesh in-place chunk 128> : ...

Needs: task IR with placements. Ensures: every compute op and collective has a `choice`; choices
that stand there already are kept. A collective gets algorithm, transfer and chunk (rows of its
dimension a transfer), a compute op its tile, a reduction both.

What the options leave open comes from the machine file: in place where the machine has peer
pointers and every user of the gathered tensor can read it shard by shard, else pushed; one-shot for
small all-reduces, two-shot for the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from ditron.analysis.symbols import task_program
from ditron.errors import OptionError
from ditron.ir import task
from ditron.ir.attrs import ChoiceAttr
from ditron.ir.locations import op_location
from ditron.plan.collectives import ALGORITHMS, knows, parse_algorithm
from ditron.plan.machine import Machine, load_machine
from ditron.plan.options import OpOptions, Options
from ditron.plan.placement import shard_size
from ditron.plan.tables import DTYPE_BYTES

ONE_SHOT_BYTES = 1 << 16


@dataclass(frozen=True)
class ChooseAlgorithmsPass(ModulePass):
    """See the module's docstring; `per_op` items are `pattern:key=value`."""

    name = "choose-algorithms"

    machine: str = "cpu"
    algorithm: str | None = None
    chunk_bytes: int | None = None
    tile: tuple[int, ...] = ()
    per_op: tuple[str, ...] = field(default=())

    @staticmethod
    def of(options: Options, machine: str) -> ChooseAlgorithmsPass:
        """The pass that carries out a user's options."""
        return ChooseAlgorithmsPass(
            machine,
            options.algorithm,
            options.chunk_bytes,
            options.tile or (),
            tuple(
                f"{pattern}:{key}={value}"
                for pattern, own in options.per_op.items()
                for key, value in _settings(own)
            ),
        )

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        options = Options(
            algorithm=self.algorithm,
            chunk_bytes=self.chunk_bytes,
            tile=_tile(self.tile),
            per_op=_parse_per_op(self.per_op),
        )
        machine = load_machine(self.machine)
        for child in task_program(op).body.block.ops:
            if isinstance(child, task.ComputeOp) and child.choice is None:
                child.choice = _choose(child, options.for_op(child.label()), machine)


def _choose(op: task.ComputeOp, options: OpOptions, machine: Machine) -> ChoiceAttr:
    if isinstance(op, task.CollectiveOp):
        return _choose_collective(op, options, machine)
    return ChoiceAttr.get(tile=options.tile or machine.tile)


def _choose_collective(op: task.CollectiveOp, options: OpOptions, machine: Machine) -> ChoiceAttr:
    kind = op.name.removeprefix("task.")
    spec = task.spec_of(op.operand)
    dim = op.dim_index or 0
    algorithm, transfer = parse_algorithm(options.algorithm or _default(kind, spec))
    # An option given for the whole program holds for the collectives that know it.
    if not knows(kind, algorithm, transfer):
        algorithm, transfer = parse_algorithm(_default(kind, spec))
    if transfer == "in-place":
        _demand_in_place(op, machine)
    if not transfer:
        possible = machine.peer_pointers and why_not_in_place(op) is None
        known = ALGORITHMS[kind][algorithm]
        transfer = "in-place" if possible and "in-place" in known else "push"
    rows = shard_size(spec.shape[dim], _ranks(op))
    row_bytes = DTYPE_BYTES[spec.dtype] * int(
        np.prod([s for d, s in enumerate(spec.shape) if d != dim])
    )
    chunk_bytes = options.chunk_bytes or machine.chunk_bytes
    chunk = max(1, min(rows, chunk_bytes // max(row_bytes, 1)))
    tile = () if kind == "all_gather" else options.tile or machine.reduce_tile
    return ChoiceAttr.get(algorithm, transfer, chunk, tile)


def _default(kind: str, spec: task.TensorSpec) -> str:
    if kind != "all_reduce":
        return "mesh"
    size = DTYPE_BYTES[spec.dtype] * int(np.prod(spec.shape))
    return "one-shot" if size <= ONE_SHOT_BYTES else "two-shot"


def _demand_in_place(op: task.CollectiveOp, machine: Machine) -> None:
    why = why_not_in_place(op)
    if not machine.peer_pointers:
        why = f"machine {machine.name} has no peer pointers"
    if why is not None:
        raise OptionError(
            f"{op.label()} cannot be done in place: {why}; choose a push instead", op_location(op)
        )


def why_not_in_place(op: task.CollectiveOp) -> str | None:
    """Why the users of a gathered tensor cannot read it shard by shard; None if they can."""
    if not isinstance(op, task.AllGatherOp):
        return None
    for use in op.result.uses:
        user = use.operation
        if isinstance(user, task.MatmulOp) and op.dim_index == _contracted(user, use.index):
            return f"{user.label()} sums over the gathered dimension"
        if isinstance(user, task.OutputOp):
            return f"it is the output {user.tensor_name.data}"
        if isinstance(user, task.CollectiveOp):
            return f"it goes into {user.label()}"
    return None


def _contracted(matmul: task.MatmulOp, operand: int) -> int:
    """The dimension of an operand that a matmul sums over."""
    if operand == 0:
        return 1
    return 1 if matmul.transpose_b is not None else 0


def _ranks(op: task.CollectiveOp) -> int:
    program: Operation | None = op.parent_op()
    assert isinstance(program, task.ProgramOp)
    return program.mesh.size(op.axis.data)


def _settings(options: OpOptions) -> Iterator[tuple[str, str]]:
    if options.algorithm is not None:
        yield "algorithm", options.algorithm
    if options.chunk_bytes is not None:
        yield "chunk-bytes", str(options.chunk_bytes)
    if options.tile is not None:
        yield "tile", "x".join(map(str, options.tile))


def _tile(sizes: Sequence[int]) -> tuple[int, int] | None:
    if not sizes:
        return None
    if len(sizes) != 2:
        raise OptionError(f"tile is two sizes, got {len(sizes)}")
    return (sizes[0], sizes[1])


def _parse_per_op(items: Sequence[str]) -> dict[str, OpOptions]:
    settings: dict[str, dict[str, str]] = {}
    for item in items:
        pattern, _, setting = item.rpartition(":")
        key, _, value = setting.partition("=")
        if not pattern or key not in ("algorithm", "chunk-bytes", "tile") or not value:
            raise OptionError(
                "per-op takes pattern:key=value with key algorithm, chunk-bytes or tile,"
                f" got {item!r}"
            )
        settings.setdefault(pattern, {})[key] = value
    return {pattern: _op_options(own) for pattern, own in settings.items()}


def _op_options(own: dict[str, str]) -> OpOptions:
    try:
        chunk = int(own["chunk-bytes"]) if "chunk-bytes" in own else None
        tile = _tile([int(s) for s in own["tile"].split("x")]) if "tile" in own else None
    except ValueError as error:
        raise OptionError(f"per-op sizes are whole numbers: {error}") from error
    return OpOptions(own.get("algorithm"), chunk, tile)
