"""Delivery: after a launch, every output holds what the task program says.

The plan is run once on tags (`ring.py`), cell by cell (`cells.py`), in an order that agrees with
happens-before, and compared with the task program evaluated on the same cells. By race freedom one
order stands for all. Delivery alone proves nothing, since a lucky order hides a missing wait: it is
shown only together with the other proofs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from xdsl.ir import SSAValue

from ditron.analysis.arrays import changes, longs, offsets
from ditron.analysis.arrivals import Columns, find_arrivals
from ditron.analysis.cells import Cuts, Relations
from ditron.analysis.explain import box_name, task_location
from ditron.analysis.explain_delivery import explain_output
from ditron.analysis.kernel_tags import run_kernel, shared_dims
from ditron.analysis.program_tags import ProgramAxes, Shards, program_tags, shards, term_name
from ditron.analysis.races import find_runs, run_pairs
from ditron.analysis.ring import Tags, input_tags
from ditron.analysis.sync_graph import build_sync_graph, topological_levels
from ditron.analysis.tag_memory import BufferAxes, TagMemory
from ditron.analysis.touches import find_touches
from ditron.errors import DeliveryError, PlanError
from ditron.ir import core, task
from ditron.ir.locations import op_location
from ditron.plan.tables import Longs, Mode, OpKind, Plan, Role

TRANSFERS = (OpKind.PUT, OpKind.GET, OpKind.COPY)


@dataclass(frozen=True)
class DeliveryReport:
    """What was run: tasks in `levels` steps on `cells`, `outputs` compared on every rank."""

    tasks: int
    cells: int
    levels: int
    outputs: int


def check_delivery(
    plan: Plan, kernels: Mapping[str, core.FuncOp], program: task.ProgramOp
) -> DeliveryReport:
    """Prove that every output holds what the program says.

    Raises:
        DeliveryError: which element holds something else, and who wrote it; or who read memory
            that nobody had written.
        PlanError: the plan's buffers are not those of the program.
    """
    return _Delivery(plan, kernels, program).check()


@dataclass(frozen=True)
class _Bound:
    """A buffer that holds a tensor of the program."""

    buffer: int
    value: SSAValue
    name: str
    shards: Shards


class _Delivery:
    def __init__(
        self, plan: Plan, kernels: Mapping[str, core.FuncOp], program: task.ProgramOp
    ) -> None:
        self.plan, self.kernels, self.program = plan, kernels, program
        self.columns = Columns(plan)
        self.first_access = offsets(longs(plan.accesses.task), len(plan.tasks))
        self.sources, self.outputs = list(self._bind_sources()), list(self._bind_outputs())
        self.axes = BufferAxes(plan)
        self.program_axes = ProgramAxes(program, len(self.axes.sizes))
        self.cuts = self._cut()
        self.memory = TagMemory(plan, self.axes, self.cuts)

    def check(self) -> DeliveryReport:
        expected = program_tags(self.program_axes, self.cuts)
        for source in self.sources:
            self._fill(source, expected)
        level = self._levels()
        for tasks in self._steps(level):
            self._run(tasks)
        for output in self.outputs:
            self._compare(output, expected)
        top = int(level.max(initial=-1)) + 1
        return DeliveryReport(len(self.plan.tasks), len(self.memory), top, len(self.outputs))

    def _bind_sources(self) -> Iterator[_Bound]:
        roles = (Role.INPUT, Role.WEIGHT)
        rows = {b.name: i for i, b in enumerate(self.plan.buffers) if b.role in roles}
        for op in self.program.inputs:
            name = op.tensor_name.data
            if name not in rows:
                message = f"plan {self.plan.name} has no buffer for input {name!r}"
                raise PlanError(message, op_location(op))
            yield self._bound(rows[name], op.result, name)

    def _bind_outputs(self) -> Iterator[_Bound]:
        rows = [i for i, b in enumerate(self.plan.buffers) if b.role is Role.OUTPUT]
        outputs = list(self.program.outputs)
        if len(rows) != len(outputs):
            message = (
                f"plan {self.plan.name} has {len(rows)} output buffers, the program"
                f" {len(outputs)} outputs"
            )
            raise PlanError(message, op_location(self.program))
        for row, op in zip(rows, outputs, strict=True):
            yield self._bound(row, op.operand, op.tensor_name.data)

    def _bound(self, row: int, value: SSAValue, name: str) -> _Bound:
        parts = shards(task.spec_of(value), self.program.mesh)
        have = self.plan.buffers[row].extent
        if have.shape != parts.extent.shape or (have != parts.extent).any():
            message = (
                f"buffer %{self.plan.buffers[row].name} has sizes {have.tolist()} on the ranks,"
                f" but the shards of {name!r} have {parts.extent.tolist()}"
            )
            raise PlanError(message, op_location(self.program))
        return _Bound(row, value, name, parts)

    def _cut(self) -> Cuts:
        """Cut every axis so that tasks and program ops take whole cells to whole cells."""
        accesses, axes = self.plan.accesses, self.axes
        cuts = Cuts(np.concatenate([axes.sizes, self.program_axes.sizes]))
        live = self._live_accesses()
        buffer, rank = longs(accesses.buffer)[live], longs(accesses.rank)[live]
        for d in range(accesses.lo.shape[1]):
            has = axes.dims[buffer] > d
            axis = axes.axis(buffer[has], rank[has], d)
            cuts.add(axis, accesses.lo[live[has], d])
            cuts.add(axis, accesses.hi[live[has], d])
        relations = [*self._task_relations(), *self._program_relations()]
        self._cut_probes(cuts)
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

    def _live_accesses(self) -> Longs:
        """Accesses of tasks that do something: some box that they write is not empty."""
        accesses = self.plan.accesses
        kinds = np.array([o.kind in (*TRANSFERS, OpKind.CALL) for o in self.plan.ops], np.bool_)
        writes = ((accesses.mode & ~int(Mode.READ)) != 0) & ~accesses.empty
        works = np.zeros(len(self.plan.tasks), np.bool_)
        works[accesses.task[writes]] = True
        works &= kinds[self.plan.tasks.op]
        return np.flatnonzero(works[accesses.task]).astype(np.int64)

    def _task_relations(self) -> Iterator[tuple[Longs, ...]]:
        """Stretches that transfers copy and that kernels' views share."""
        live = longs(np.unique(self.plan.accesses.task[self._live_accesses()]))
        op = self.plan.tasks.op[live]
        for row, record in enumerate(self.plan.ops):
            first = self.first_access[live[op == row]]
            if not len(first):
                continue
            if record.kind in TRANSFERS:
                dims = range(int(self.axes.dims[self.plan.accesses.buffer[first[0]]]))
                pairs = [(0, d, 1, d) for d in dims]
            else:
                kernel = self._kernel(row)
                pairs = [(s.a, s.a_dim, s.b, s.b_dim) for s in shared_dims(kernel)]
            for a, a_dim, b, b_dim in pairs:
                yield self._stretch(first + a, a_dim, first + b, b_dim)

    def _stretch(self, a: Longs, a_dim: int, b: Longs, b_dim: int) -> tuple[Longs, ...]:
        accesses, axes = self.plan.accesses, self.axes
        size = accesses.hi[a, a_dim] - accesses.lo[a, a_dim]
        other = accesses.hi[b, b_dim] - accesses.lo[b, b_dim]
        wrong = np.flatnonzero(size != other)
        if len(wrong):
            x, y = int(a[wrong[0]]), int(b[wrong[0]])
            at = int(accesses.task[x])
            message = (
                f"{self.plan.describe_task(at)} needs as much of dim {a_dim} of"
                f" {box_name(self.plan, x)} as of dim {b_dim} of {box_name(self.plan, y)}"
            )
            raise DeliveryError(message, task_location(self.plan, at))
        a_axis = axes.axis(longs(accesses.buffer)[a], longs(accesses.rank)[a], a_dim)
        b_axis = axes.axis(longs(accesses.buffer)[b], longs(accesses.rank)[b], b_dim)
        return a_axis, accesses.lo[a, a_dim], b_axis, accesses.lo[b, b_dim], size

    def _program_relations(self) -> Iterator[tuple[Longs, ...]]:
        """Dimensions that an op keeps, and where shards lie in their tensors."""
        for a, b, size in self.program_axes.same_axes():
            yield longs([a]), longs([0]), longs([b]), longs([0]), longs([size])
        ranks = np.arange(self.plan.ranks)
        for bound in (*self.sources, *self.outputs):
            base = self.program_axes.base[bound.value]
            for d in range(bound.shards.offset.shape[1]):
                axis = self.axes.axis(longs(bound.buffer), ranks, d)
                offset, extent = bound.shards.offset[:, d], bound.shards.extent[:, d]
                yield axis, np.zeros_like(axis), np.full_like(axis, base + d), offset, extent

    def _kernel(self, op: int) -> core.FuncOp:
        record = self.plan.ops[op]
        if record.kernel not in self.kernels:
            message = f"@{record.name} calls kernel {record.kernel!r}, which is not there"
            raise PlanError(message, record.location)
        return self.kernels[record.kernel]

    def _fill(self, bound: _Bound, expected: Mapping[SSAValue, Tags]) -> None:
        for rank in range(self.plan.ranks):
            cells, shape = self.memory.whole(bound.buffer, rank)
            part = expected[bound.value][self._slices(bound, rank)]
            if bound.shards.partial:
                base = self.program_axes.base[bound.value]
                edges = [self.cuts.edges(base + d) for d in range(len(shape))]
                part = input_tags(term_name(bound.name, rank), edges)
            self.memory.tags[cells] = part.ravel()
            self.memory.ready[cells] = True

    def _slices(self, bound: _Bound, rank: int) -> tuple[slice, ...]:
        """A rank's shard in cells of the whole tensor."""
        base = self.program_axes.base[bound.value]
        slices: list[slice] = []
        for d, lo in enumerate(bound.shards.offset[rank].tolist()):
            hi = lo + int(bound.shards.extent[rank, d])
            first, end = self.cuts.cell(longs([base + d] * 2), longs([lo, hi])).tolist()
            slices.append(slice(first, end))
        return tuple(slices)

    def _levels(self) -> Longs:
        """How many tasks deep each task stands in the order of conflicting accesses."""
        arrivals = find_arrivals(self.columns)
        graph = build_sync_graph(self.columns, arrivals, queues_ordered=True)
        place = graph.task_order(self.columns)
        touches = find_touches(self.columns, place, grouped=False)
        runs = find_runs(touches)
        before, after, wraps = run_pairs(runs)
        before, after = before[~wraps], after[~wraps]
        # A node between two neighbouring runs: all tasks of one, then all of the other.
        tasks = len(self.plan.tasks)
        node = np.full(len(runs.start), -1, np.int64)
        node[before] = tasks + np.arange(len(before))
        out = node[runs.run]
        node[:] = -1
        node[after] = tasks + np.arange(len(after))
        into = node[runs.run]
        source = np.concatenate([touches.first[out >= 0], into[into >= 0]])
        target = np.concatenate([out[out >= 0], touches.first[into >= 0]])
        return topological_levels(source, target, tasks + len(before))[:tasks]

    def _steps(self, level: Longs) -> Iterator[Longs]:
        """Tasks that run at once: of one level and one op."""
        live = longs(np.unique(self.plan.accesses.task[self._live_accesses()]))
        op = longs(self.plan.tasks.op)[live]
        order = np.lexsort((op, level[live]))
        first = changes(level[live][order], op[order])
        yield from np.split(live[order], np.flatnonzero(first)[1:])

    def _run(self, tasks: Longs) -> None:
        if not len(tasks):
            return
        op = int(self.plan.tasks.op[tasks[0]])
        if self.plan.ops[op].kind in TRANSFERS:
            self._transfer(tasks)
        else:
            self._call(tasks, self._kernel(op))

    def _transfer(self, tasks: Longs) -> None:
        memory, first = self.memory, self.first_access[tasks]
        source, _ = memory.boxes(first).flat()
        target, box = memory.boxes(first + 1).flat()
        tags, ready = memory.tags[source], memory.ready[source]
        adds = (self.plan.accesses.mode[first + 1] & Mode.ADD) != 0
        if adds.any():
            self._check_ready(first[adds] + 1)
            added = adds[box]
            np.add.at(memory.tags, target[added], tags[added])
            source, target, box = source[~added], target[~added], box[~added]
            tags, ready = tags[~added], ready[~added]
        memory.write(target, tags, tasks[box], ready)

    def _call(self, tasks: Longs, kernel: core.FuncOp) -> None:
        """Run the tasks of a kernel that have views of the same numbers of cells together."""
        views = len(kernel.view_types)
        boxes = [self.memory.boxes(self.first_access[tasks] + i) for i in range(views)]
        kind = np.zeros(len(tasks), np.int64)
        for column in (column for b in boxes for column in b.size.T):
            _, kind = np.unique(kind * (int(column.max()) + 1) + column, return_inverse=True)
        order = np.argsort(kind, kind="stable")
        for part in np.split(order, np.flatnonzero(changes(kind[order]))[1:]):
            self._call_alike(tasks[part], kernel)

    def _call_alike(self, tasks: Longs, kernel: core.FuncOp) -> None:
        memory, first = self.memory, self.first_access[tasks]
        dims = [len(t.dims) for t in kernel.view_types]
        cells = [memory.boxes(first + i).dense(d) for i, d in enumerate(dims)]

        def load(view: int) -> Tags:
            if not memory.ready[cells[view]].all():
                self._check_ready(first + view)
            return memory.tags[cells[view]]

        def store(view: int, tags: Tags) -> None:
            at = cells[view]
            by = np.broadcast_to(tasks.reshape(-1, *[1] * dims[view]), at.shape)
            memory.write(at.ravel(), np.broadcast_to(tags, at.shape).ravel(), by.ravel())

        run_kernel(kernel, load, store)

    def _check_ready(self, accesses: Longs) -> None:
        cells, box = self.memory.boxes(accesses).flat()
        bad = np.flatnonzero(~self.memory.ready[cells])
        if not len(bad):
            return
        access = int(accesses[box[bad[0]]])
        reader = int(self.plan.accesses.task[access])
        message = (
            f"{self.plan.describe_task(reader)} reads {box_name(self.plan, access)}, but nobody has"
            f" written {self._cell_name(int(cells[bad[0]]))}: an uninitialised read"
        )
        raise DeliveryError(message, task_location(self.plan, reader))

    def _cell_name(self, cell: int) -> str:
        buffer, rank, lo, hi = self.memory.place(cell)
        box = ", ".join(f"{a}:{b}" for a, b in zip(lo, hi, strict=True))
        return f"%{self.plan.buffers[buffer].name}[{box}] at rank {rank}"

    def _compare(self, bound: _Bound, expected: Mapping[SSAValue, Tags]) -> None:
        whole = expected[bound.value]
        total = np.zeros_like(whole)
        for rank in range(self.plan.ranks):
            cells, shape = self.memory.whole(bound.buffer, rank)
            got, slices = self.memory.tags[cells].reshape(shape), self._slices(bound, rank)
            if not self.memory.ready[cells].all():
                bad = cells.start + int(np.flatnonzero(~self.memory.ready[cells])[0])
                message = f"output {bound.name!r}: nobody writes {self._cell_name(bad)}"
                raise DeliveryError(message, self._location(bound))
            total[slices] += got
            wrong = np.flatnonzero((got != whole[slices]).ravel())
            if len(wrong) and not bound.shards.partial:
                at = cells.start + int(wrong[0])
                self._refuse(bound, rank, at, expected)
        if bound.shards.partial and (total != whole).any():
            message = f"output {bound.name!r}: the ranks' terms do not add up to its value"
            raise DeliveryError(message, self._location(bound))

    def _location(self, bound: _Bound) -> str:
        outputs = {op.tensor_name.data: op for op in self.program.outputs}
        return op_location(outputs[bound.name])

    def _refuse(
        self, bound: _Bound, rank: int, cell: int, expected: Mapping[SSAValue, Tags]
    ) -> None:
        _, _, lo, hi = self.memory.place(cell)
        offset = bound.shards.offset[rank].tolist()
        at = tuple(a + o for a, o in zip(lo, offset, strict=True))
        end = tuple(b + o for b, o in zip(hi, offset, strict=True))
        came = explain_output(
            self.program_axes, self.cuts, expected, bound.value, at, self.memory.tags[cell]
        )
        writer = int(self.memory.writer[cell])
        by = (
            f"last written by {self.plan.describe_task(writer)}, {task_location(self.plan, writer)}"
            if writer >= 0
            else "never written by a task"
        )
        box = ", ".join(f"{a}:{b}" for a, b in zip(at, end, strict=True))
        message = (
            f"output {bound.name!r}[{box}] on rank {rank} ({self._cell_name(cell)}) {came}; it is"
            f" {by}"
        )
        raise DeliveryError(message, self._location(bound))
