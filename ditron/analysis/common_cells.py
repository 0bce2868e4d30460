"""What delivery is decided on: a plan and a program side by side, cut into common cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from xdsl.ir import SSAValue

from ditron.analysis.arrays import longs, offsets
from ditron.analysis.cells import Cuts, Relations
from ditron.analysis.delivery_faults import EmptyView, MisfitViews
from ditron.analysis.kernel_dims import halved_dims, shared_dims, spread_dims
from ditron.analysis.lines import Line, runs, stretches
from ditron.analysis.plan_records import access_record, lanes_around
from ditron.analysis.program_tags import ProgramAxes, Shards, shards
from ditron.analysis.tag_memory import BufferAxes
from ditron.analysis.view_axes import ViewAxes
from ditron.errors import DeliveryError, PlanError
from ditron.ir import core, task
from ditron.ir.locations import op_location
from ditron.plan.tables import Longs, Mode, OpKind, Plan, Role

TRANSFERS = (OpKind.PUT, OpKind.GET, OpKind.COPY)


@dataclass(frozen=True)
class Bound:
    """A buffer that holds a tensor of the program."""

    buffer: int
    value: SSAValue
    name: str
    shards: Shards


class CommonCells:
    """The plan's buffers and the program's tensors, with the cuts that they share.

    `tasks` are those that do something (some box that they write is not empty), `first_access` [T]
    is the row of each task's first view. `live` [A] are their accesses, whose views have `many`
    [A, D] cells along each dimension.

    Raises:
        PlanError: the plan's buffers are not those of the program, or a kernel is missing.
        DeliveryError: a task's views do not fit each other.
    """

    def __init__(
        self, plan: Plan, kernels: Mapping[str, core.FuncOp], program: task.ProgramOp
    ) -> None:
        self.plan, self.kernels, self.program = plan, kernels, program
        self.first_access = offsets(longs(plan.accesses.task), len(plan.tasks))
        self.sources, self.outputs = list(self._bind_sources()), list(self._bind_outputs())
        self.states = list(self._bind_states())
        self.axes = BufferAxes(plan)
        self.program_axes = ProgramAxes(program, len(self.axes.sizes))
        accesses = plan.accesses
        kinds = np.array([o.kind in (*TRANSFERS, OpKind.CALL) for o in plan.ops], np.bool_)
        writes = ((accesses.mode & ~int(Mode.READ)) != 0) & ~accesses.empty
        works = np.zeros(len(plan.tasks), np.bool_)
        works[accesses.task[writes]] = True
        works &= kinds[plan.tasks.op]
        self.tasks = np.flatnonzero(works).astype(np.int64)
        number = len(self.axes.sizes) + len(self.program_axes.sizes)
        self.views = ViewAxes(plan, self.axes, self.first_access, self.tasks, number)
        self.live = works[accesses.task]
        self.cuts = self._cut(np.flatnonzero(self.live).astype(np.int64))
        self.many = self.views.many(self.cuts, self.live)

    def kernel(self, op: int) -> core.FuncOp:
        """The kernel that an op calls."""
        record = self.plan.ops[op]
        if record.kernel not in self.kernels:
            message = f"@{record.name} calls kernel {record.kernel!r}, which is not there"
            raise PlanError(message, record.location)
        return self.kernels[record.kernel]

    def slices(self, bound: Bound, rank: int) -> tuple[slice, ...]:
        """A rank's shard in cells of the whole tensor."""
        base = self.program_axes.base[bound.value]
        slices: list[slice] = []
        for d, lo in enumerate(bound.shards.offset[rank].tolist()):
            hi = lo + int(bound.shards.extent[rank, d])
            first, end = self.cuts.cell(longs([base + d] * 2), longs([lo, hi])).tolist()
            slices.append(slice(first, end))
        return tuple(slices)

    def _bind_sources(self) -> Iterator[Bound]:
        roles = (Role.INPUT, Role.WEIGHT, Role.STATE)
        rows = {b.name: i for i, b in enumerate(self.plan.buffers) if b.role in roles}
        for op in self.program.sources:
            name = op.tensor_name.data
            if name not in rows:
                message = f"plan {self.plan.name} has no buffer for input {name!r}"
                raise PlanError(message, op_location(op))
            yield self._bound(rows[name], op.result, name)

    def _bind_states(self) -> Iterator[Bound]:
        """States with what they hold in the end."""
        last = {op.tensor_name.data: op.result for op in self.program.states}
        for op in self.program.body.block.ops:
            if isinstance(op, task.UpdateOp):
                last[task.find_state(op.state).tensor_name.data] = op.result
        for bound in self.sources:
            if bound.name in last:
                yield replace(bound, value=last[bound.name])

    def _bind_outputs(self) -> Iterator[Bound]:
        rows = {b.name: i for i, b in enumerate(self.plan.buffers) if b.role is Role.OUTPUT}
        outputs = {op.tensor_name.data: op.operand for op in self.program.outputs}
        if rows.keys() != outputs.keys():
            message = (
                f"plan {self.plan.name} has output buffers {', '.join(sorted(rows)) or 'none'}, the"
                f" program outputs {', '.join(sorted(outputs)) or 'none'}"
            )
            raise PlanError(message, op_location(self.program))
        for name, value in outputs.items():
            yield self._bound(rows[name], value, name)

    def _bound(self, row: int, value: SSAValue, name: str) -> Bound:
        parts = shards(task.spec_of(value), self.program.mesh)
        have = self.plan.buffers[row].extent
        if have.shape != parts.extent.shape or (have != parts.extent).any():
            message = (
                f"buffer %{self.plan.buffers[row].name} has sizes {have.tolist()} on the ranks,"
                f" but the shards of {name!r} have {parts.extent.tolist()}"
            )
            raise PlanError(message, op_location(self.program))
        return Bound(row, value, name, parts)

    def _cut(self, live: Longs) -> Cuts:
        """Cut every axis so that tasks and program ops take whole cells to whole cells."""
        accesses, axes = self.plan.accesses, self.axes
        cuts = Cuts(np.concatenate([axes.sizes, self.program_axes.sizes, *self.views.sizes]))
        buffer, rank = longs(accesses.buffer)[live], longs(accesses.rank)[live]
        for d in range(accesses.lo.shape[1]):
            has = axes.dims[buffer] > d
            axis = axes.axis(buffer[has], rank[has], d)
            cuts.add(axis, accesses.lo[live[has], d])
            cuts.add(axis, accesses.hi[live[has], d])
        relations = [
            *self._task_relations(),
            *self._program_relations(),
            *self.views.relations,
        ]
        self._cut_probes(cuts)
        self.views.cut(cuts)
        self._cut_lines(cuts)
        cuts.close(Relations.of(relations))
        return cuts

    def _cut_probes(self, cuts: Cuts) -> None:
        """Split the first element off each dimension of each shard of each input.

        Tags commute where matrices do not, so a lone cell could hide swapped or transposed
        operands; two cells a dimension cannot.
        """
        for source in self.sources:
            base, offset = self.program_axes.base[source.value], source.shards.offset
            for d in range(offset.shape[1]):
                cuts.add(np.full(len(offset), base + d), offset[:, d] + 1)

    def _cut_lines(self, cuts: Cuts) -> None:
        """Rows of their own where dimensions are merged or split."""
        at = [cut for pair in self._runs() for line in pair for cut in line.outer()]
        if at:
            axis, where = np.array(at, np.int64).T
            cuts.add(axis, where)

    def _runs(self) -> Iterator[tuple[Line, Line]]:
        """Runs of dimensions that a reshape takes to others."""
        for a, b in (*self.program_axes.reshapes(), *self._reshaping_copies()):
            yield from runs(a, b)

    def _reshaping_copies(self) -> Iterator[tuple[Line, Line]]:
        for row, record in enumerate(self.plan.ops):
            if record.kind is OpKind.COPY:
                live = self.tasks[self.plan.tasks.op[self.tasks] == row]
                for access in self.first_access[live].tolist():
                    a, b = self.views.line(access), self.views.line(access + 1)
                    if a.sizes != b.sizes or record.folds:
                        if a.elements != b.elements:
                            raise self._misfit(access, 0, access + 1, 0)
                        yield a, b

    def _task_relations(self) -> Iterator[tuple[Longs, ...]]:
        """Stretches that transfers copy and that kernels' views share."""
        op = self.plan.tasks.op[self.tasks]
        for row, record in enumerate(self.plan.ops):
            first = self.first_access[self.tasks[op == row]]
            if not len(first):
                continue
            if record.kind in TRANSFERS:
                if record.folds:
                    continue
                dims = range(int(self.axes.dims[self.plan.accesses.buffer[first[0]]]))
                first = first[~self._reshapes(first)]
                pairs = [(0, d, 1, d) for d in dims]
            else:
                kernel = self.kernel(row)
                pairs = [(s.a, s.a_dim, s.b, s.b_dim) for s in shared_dims(kernel)]
                for view, dim in halved_dims(kernel):
                    yield self._halves(first + view, dim)
                for view, dim in spread_dims(kernel):
                    self._check_there(first + view, dim)
            for a, a_dim, b, b_dim in pairs:
                yield self._stretch(first + a, a_dim, first + b, b_dim)

    def _reshapes(self, first: Longs) -> npt.NDArray[np.bool_]:
        """Which copies are between boxes of two shapes."""
        accesses = self.plan.accesses
        sizes = accesses.hi - accesses.lo
        copies = longs(self.plan.tasks.op)[accesses.task[first]]
        kinds = np.array([o.kind is OpKind.COPY for o in self.plan.ops], np.bool_)
        return kinds[copies] & (sizes[first] != sizes[first + 1]).any(axis=1)

    def _stretch(self, a: Longs, a_dim: int, b: Longs, b_dim: int) -> tuple[Longs, ...]:
        views = self.views
        size = views.hi[a, a_dim] - views.lo[a, a_dim]
        other = views.hi[b, b_dim] - views.lo[b, b_dim]
        wrong = np.flatnonzero(size != other)
        if len(wrong):
            raise self._misfit(int(a[wrong[0]]), a_dim, int(b[wrong[0]]), b_dim)
        a_axis, b_axis = views.base[a] + a_dim, views.base[b] + b_dim
        return a_axis, views.lo[a, a_dim], b_axis, views.lo[b, b_dim], size

    def _halves(self, view: Longs, dim: int) -> tuple[Longs, ...]:
        """Halves of views, which are cut alike."""
        axis, lo = self.views.base[view] + dim, self.views.lo[view, dim]
        half = (self.views.hi[view, dim] - lo) // 2
        return axis, lo, axis, lo + half, half

    def _check_there(self, view: Longs, dim: int) -> None:
        """Raise where views have nothing to go with all of another's."""
        gone = np.flatnonzero(self.views.hi[view, dim] <= self.views.lo[view, dim])
        if not len(gone):
            return
        access = int(view[gone[0]])
        lanes = lanes_around(self.plan, [(int(self.plan.accesses.task[access]), 0)])
        found = EmptyView(lanes, access_record(self.plan, access), dim)
        raise DeliveryError(found.text, found.where, found)

    def _misfit(self, a: int, a_dim: int, b: int, b_dim: int) -> DeliveryError:
        task = int(self.plan.accesses.task[a])
        found = MisfitViews(
            lanes_around(self.plan, [(task, 0)]),
            access_record(self.plan, a),
            a_dim,
            access_record(self.plan, b),
            b_dim,
        )
        return DeliveryError(found.text, found.where, found)

    def _program_relations(self) -> Iterator[tuple[Longs, ...]]:
        """Dimensions that an op keeps, and where shards lie in their tensors."""
        same = list(self.program_axes.same_stretches())
        same += (stretch for a, b in self._runs() for stretch in stretches(a, b))
        if same:
            yield tuple(np.array(same, np.int64).T)
        ranks = np.arange(self.plan.ranks)
        for bound in (*self.sources, *self.outputs):
            base = self.program_axes.base[bound.value]
            for d in range(bound.shards.offset.shape[1]):
                axis = self.axes.axis(longs(bound.buffer), ranks, d)
                offset, extent = bound.shards.offset[:, d], bound.shards.extent[:, d]
                yield axis, np.zeros_like(axis), np.full_like(axis, base + d), offset, extent
