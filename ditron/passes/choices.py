"""How `choose-algorithms` decides: a question a collective, answered by `plan/candidates.py`."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from xdsl.ir import Operation

from ditron.analysis.shards import moved_dim
from ditron.analysis.tile_groups import (
    TileGroup,
    gemm_shape,
    local_shape,
    products_beside,
    tile_groups,
)
from ditron.errors import OptionError
from ditron.ir import task
from ditron.ir.attrs import ChoiceAttr
from ditron.ir.locations import op_location
from ditron.plan.candidates import (
    Candidate,
    Fixed,
    Priced,
    Question,
    Tile,
    answer,
    chunk_rows,
    runner_up,
    show_tile,
    tile_answer,
    ways,
)
from ditron.plan.collectives import ALGORITHMS, knows, parse_algorithm
from ditron.plan.links import along
from ditron.plan.machine import Machine
from ditron.plan.options import Options
from ditron.plan.placement import Shard, shard_size
from ditron.plan.prediction import NO_PREDICTION, Prediction
from ditron.plan.tables import DTYPE_BYTES, LIBRARY
from ditron.plan.what_if import until


@dataclass(frozen=True)
class Asked:
    """What was decided for a collective: the question, and the candidates, the cheapest first.

    `machine` is as the ranks along the collective's axis see it.
    """

    op: task.CollectiveOp
    machine: Machine
    question: Question
    answers: tuple[Priced, ...]


class Chooser:
    """Writes a choice on every compute op of a program that has none.

    `asked` has what was weighed, a row a collective.
    """

    def __init__(self, program: task.ProgramOp, machine: Machine, options: Options) -> None:
        self._program, self._machine, self._options = program, machine, options
        self._mesh = program.mesh
        self._groups = tile_groups(program)
        self._tiles: dict[TileGroup, Tile] = {}
        self.asked: list[Asked] = []

    def run(self) -> None:
        """Collectives first, each with the products beside it; then what is left."""
        ops = [op for op in self._program.body.block.ops if isinstance(op, task.ComputeOp)]
        for op in ops:
            if isinstance(op, task.CollectiveOp) and op.choice is None:
                self._choose_collective(op)
        for op in ops:
            if op.choice is None:
                self._choose_tile(op)

    def _choose_collective(self, op: task.CollectiveOp) -> None:
        groups = self._groups_beside(op)
        question = self.question(op, groups)
        machine = along(self._machine, self._mesh.stride(op.axis.data))
        answers = answer(machine, question)
        if not answers:
            op.choice = self._default(op, question)
            return
        best = answers[0]
        self.asked.append(Asked(op, machine, question, answers))
        op.choice = _choice(machine, question, answers)
        for group in groups:
            if group not in self._tiles and question.products:
                self._tiles[group] = best.candidate.tile
                other = _other_tile(question, answers)
                self._write_tiles(group, other, library=best.candidate.library)

    def question(self, op: task.CollectiveOp, groups: Sequence[TileGroup]) -> Question:
        """What is to be decided for a collective and the ops in the groups beside it."""
        kind = op.name.removeprefix("task.")
        spec = task.spec_of(op.operand)
        dim, ranks = moved_dim(op), self._mesh.size(op.axis.data)
        shape = list(local_shape(spec, self._mesh))
        if isinstance(op, task.AllToAllOp):
            dim = op.split_index
        if kind in ("reduce_scatter", "all_reduce", "all_to_all"):
            shape[dim] = shard_size(shape[dim], ranks)
        rows = shape.pop(dim) if shape else 1
        columns = math.prod(shape)
        beside = products_beside(op, groups)
        axes = {axis for _, axis in beside}
        return Question(
            kind,
            (rows, columns),
            spec.dtype,
            ranks,
            self._mesh.ranks,
            tuple(gemm_shape(matmul, self._mesh) for matmul, _ in beside),
            "inner" if len(axes) > 1 else next(iter(axes), "rows"),
            why_not_in_place(op) is None,
            self._library_can(groups, spec.dtype, axes),
            self._fixed(op, groups, (rows, columns)),
        )

    def _library_can(self, groups: Sequence[TileGroup], dtype: str, axes: Collection[str]) -> bool:
        """Whether all that stands beside a collective are products of rows that a library has."""
        ops = [op for group in groups for op in group.ops]
        plain = all(isinstance(o, task.MatmulOp) and len(o.result.type.shape) == 2 for o in ops)
        floats = dtype in ("f32", "bf16", "f16")
        return LIBRARY in self._machine.engines and plain and floats and set(axes) == {"rows"}

    def _fixed(
        self, op: task.CollectiveOp, groups: Sequence[TileGroup], shape: tuple[int, int]
    ) -> Fixed:
        kind = op.name.removeprefix("task.")
        options = self._options.for_op(op.label())
        algorithm, transfer = parse_algorithm(options.algorithm) if options.algorithm else ("", "")
        # An option given for the whole program holds for the collectives that know it.
        if algorithm and not knows(kind, algorithm, transfer):
            algorithm, transfer = "", ""
        if transfer == "in-place":
            self._demand_in_place(op)
        row_bytes = shape[1] * DTYPE_BYTES[task.spec_of(op.operand).dtype]
        chunk = options.chunk_bytes and chunk_rows(shape[0], row_bytes, options.chunk_bytes)
        tile = next((t for g in groups if (t := self._fixed_tile(g)) is not None), None)
        library = self._fixed_library(groups)
        return Fixed(algorithm or None, transfer or None, chunk, options.tile, tile, library)

    def _fixed_library(self, groups: Sequence[TileGroup]) -> bool | None:
        """Whether the products are a library's, by an earlier choice or the user's."""
        for op in (op for group in groups for op in group.ops):
            if op.choice is not None:
                return op.choice.library
            given = self._options.for_op(op.label()).library
            if given is not None:
                return given
        return None

    def _fixed_tile(self, group: TileGroup) -> Tile | None:
        """The tile that a group has already, by an earlier choice or the user's."""
        if group in self._tiles:
            return self._tiles[group]
        for op in group.ops:
            tile = op.choice.tile if op.choice is not None else ()
            given = self._options.for_op(op.label()).tile
            if len(tile) == 2 or given is not None:
                return (tile[0], tile[1]) if len(tile) == 2 else given
        return None

    def _demand_in_place(self, op: task.CollectiveOp) -> None:
        why = why_not_in_place(op)
        if not self._machine.peer_pointers:
            why = f"machine {self._machine.name} has no peer pointers"
        if why is not None:
            raise OptionError(
                f"{op.label()} cannot be done in place: {why}; choose a push instead",
                op_location(op),
            )

    def _groups_beside(self, op: task.CollectiveOp) -> list[TileGroup]:
        """The groups of the ops that use a gathered tensor, or that make what is reduced."""
        beside = [op.operand.owner]
        if isinstance(op, task.AllGatherOp):
            beside = [use.operation for use in op.result.uses]
        computes = (o for o in beside if isinstance(o, task.ComputeOp))
        return list(dict.fromkeys(self._groups[o] for o in computes if o in self._groups))

    def _default(self, op: task.CollectiveOp, question: Question) -> ChoiceAttr:
        """Where no closed form is known: the first way that can be."""
        possible = ways(self._machine, question)
        if not possible:
            known = ", ".join(ALGORITHMS[question.kind])
            raise OptionError(
                f"{op.label()} cannot be done on machine {self._machine.name} as asked;"
                f" {question.kind} has {known}",
                op_location(op),
            )
        chunk = question.fixed.chunk
        if chunk is None:
            row_bytes = question.shape[1] * DTYPE_BYTES[question.dtype]
            chunk = chunk_rows(question.shape[0], row_bytes, self._machine.chunk_bytes)
        tile = question.fixed.reduce_tile or self._machine.reduce_tile
        return ChoiceAttr.get(*possible[0], chunk, tile if question.adds else ())

    def _choose_tile(self, op: task.ComputeOp) -> None:
        group = self._groups[op]
        known, prediction = self._fixed_tile(group), NO_PREDICTION
        if known is None:
            products = tuple(gemm_shape(m, self._mesh) for m in group.matmuls)
            known = _written_tile(group) or self._machine.tile
            if products:
                answers = tile_answer(self._machine, products, self._mesh.ranks)
                (known, us), (other, other_us) = answers[0], answers[-1]
                if len(answers) > 1:
                    other, other_us = answers[1]
                prediction = Prediction(ns(us), f"tile {show_tile(other)}", ns(other_us))
        self._tiles[group] = known
        self._write_tiles(group, prediction)

    def _write_tiles(
        self, group: TileGroup, prediction: Prediction, *, library: bool = False
    ) -> None:
        """The group's tile on its ops that have no choice; an op's own option comes first."""
        for op in group.ops:
            if op.choice is not None:
                continue
            given = self._options.for_op(op.label()).tile
            says = prediction if given is None and isinstance(op, task.MatmulOp) else NO_PREDICTION
            tile = given or self._tiles[group]
            op.choice = ChoiceAttr.get(tile=tile, prediction=says, library=library)


def choice_of(one: Candidate, prediction: Prediction, *, adds: bool) -> ChoiceAttr:
    """What is written on a collective; where it adds, a library that multiplies does that too."""
    return ChoiceAttr.get(
        one.algorithm,
        one.transfer,
        one.chunk,
        one.reduce_tile if adds else (),
        prediction,
        library=adds and one.library,
    )


def _choice(machine: Machine, question: Question, answers: tuple[Priced, ...]) -> ChoiceAttr:
    best = answers[0].candidate
    second = runner_up(answers)
    adds, multiplies = question.adds, bool(question.products)
    prediction = Prediction(ns(answers[0].us))
    if second is not None:
        prediction = replace(
            prediction,
            over=second.candidate.tell(reduces=adds, multiplies=multiplies),
            over_ns=ns(second.us),
            until=until(machine, question, best, second.candidate),
        )
    return choice_of(best, prediction, adds=adds)


def _written_tile(group: TileGroup) -> Tile | None:
    """The tile that the first of the group's own kernels was written for."""
    for op in group.ops:
        if isinstance(op, task.CallOp):
            *_, rows, columns = (1, *op.function().view_types[-1].dims)
            return rows, columns
    return None


def _other_tile(question: Question, answers: Sequence[Priced]) -> Prediction:
    """What the products' tile was weighed against."""
    best = answers[0]
    others = (a for a in answers[1:] if a.candidate.tile != best.candidate.tile)
    second = next(others, None)
    if second is None:
        return Prediction(ns(best.us))
    told = second.candidate.tell(reduces=question.adds, multiplies=True)
    return Prediction(ns(best.us), told, ns(second.us))


def ns(us: float) -> int:
    """Microseconds as whole nanoseconds, at least one."""
    return max(1, round(us * 1e3))


def why_not_in_place(op: task.CollectiveOp) -> str | None:
    """Why the users of a gathered tensor cannot read it shard by shard; None if they can."""
    if not isinstance(op, task.AllGatherOp):
        return None
    users = ((use.operation, use.index) for use in op.result.uses)
    return next((why for user, index in users if (why := _why_not(op, user, index))), None)


def _why_not(op: task.AllGatherOp, user: Operation, index: int) -> str | None:
    """Why one user cannot; None if it can."""
    dim = op.dim_index
    match user:
        case task.MatmulOp() if dim == user.inner_dims[index]:
            return f"{user.label()} sums over the gathered dimension"
        case task.OutputOp():
            return f"it is the output {user.tensor_name.data}"
        case task.CollectiveOp() | task.ReshapeOp():
            return f"it goes into {user.label()}"
        case task.ComputeOp() if user.becomes()[index][dim] is None:
            return f"{user.label()} reads the gathered dimension whole"
        case task.ComputeOp() if _cuts_again(op, user, index):
            return f"{user.label()} cuts it into other shards"
        case _:
            return None


def _cuts_again(op: task.AllGatherOp, user: task.ComputeOp, index: int) -> bool:
    """Whether a user keeps only shards of the dimension that is whole again."""
    dim = user.becomes()[index][op.dim_index]
    if dim is None:
        return False
    before, after = (task.spec_of(x).placements for x in (op.result, user.result))
    pairs = zip(before, after, strict=True)
    return any(a != Shard(op.dim_index) and b == Shard(dim) for a, b in pairs)
