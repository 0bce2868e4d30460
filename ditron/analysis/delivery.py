"""Delivery: after a launch, every output holds what the task program says.

The plan is run once on tags (`ring.py`), cell by cell (`cells.py`), in an order that agrees with
happens-before, and compared with the task program evaluated on the same cells. By race freedom one
order stands for all. Delivery alone proves nothing, since a lucky order hides a missing wait: it is
shown only together with the other proofs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from xdsl.ir import SSAValue

from ditron.analysis.arrays import changes, longs
from ditron.analysis.arrivals import Columns, find_arrivals
from ditron.analysis.common_cells import TRANSFERS, Bound, CommonCells
from ditron.analysis.delivery_faults import (
    LostSource,
    MissingOutput,
    UninitialisedRead,
    WrongOutput,
)
from ditron.analysis.explain_delivery import explain_output
from ditron.analysis.kernel_tags import Hands, run_kernel
from ditron.analysis.plan_records import (
    BoxRecord,
    access_record,
    lanes_around,
    task_record,
)
from ditron.analysis.program_tags import program_tags, term_name
from ditron.analysis.ring import Tags, input_tags
from ditron.analysis.sweep import find_runs, run_pairs
from ditron.analysis.sync_graph import build_sync_graph, topological_levels
from ditron.analysis.tag_memory import LOST, TagMemory
from ditron.analysis.touches import find_touches
from ditron.analysis.view_axes import view_cells
from ditron.errors import DeliveryError
from ditron.ir import core, task
from ditron.ir.locations import op_location
from ditron.plan.tables import Longs, Mode, Plan

# Cells of a view that tasks run together have in all.
CELLS = 1 << 22


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


class _Delivery:
    def __init__(
        self, plan: Plan, kernels: Mapping[str, core.FuncOp], program: task.ProgramOp
    ) -> None:
        self.plan = plan
        self.cells = CommonCells(plan, kernels, program)
        self.memory = TagMemory(plan, self.cells.axes, self.cells.cuts, self.cells.live)

    def check(self) -> DeliveryReport:
        expected = program_tags(self.cells.program_axes, self.cells.cuts)
        for source in self.cells.sources:
            for rank in range(self.plan.ranks):
                cells, _ = self.memory.whole(source.buffer, rank)
                self.memory.fill(cells, self._held(source, rank, expected))
        level = self._levels()
        for tasks in self._steps(level):
            self._run(tasks)
        states = {bound.name for bound in self.cells.states}
        for source in self.cells.sources:
            if source.name not in states:
                self._check_kept(source, expected)
        for held in (*self.cells.states, *self.cells.outputs):
            self._compare(held, expected)
        top = int(level.max(initial=-1)) + 1
        return DeliveryReport(len(self.plan.tasks), len(self.memory), top, len(self.cells.outputs))

    def _held(self, bound: Bound, rank: int, expected: Mapping[SSAValue, Tags]) -> Tags:
        """What a rank has of an input or weight when a launch begins."""
        if not bound.shards.partial:
            return expected[bound.value][self.cells.slices(bound, rank)].ravel()
        base = self.cells.program_axes.base[bound.value]
        dims = len(self.plan.buffers[bound.buffer].capacity)
        edges = [self.cells.cuts.edges(base + d) for d in range(dims)]
        return input_tags(term_name(bound.name, rank), edges).ravel()

    def _check_kept(self, source: Bound, expected: Mapping[SSAValue, Tags]) -> None:
        """Inputs and weights stay for the next launch, which may come without new ones."""
        memory = self.memory
        for rank in range(self.plan.ranks):
            cells, _ = memory.whole(source.buffer, rank)
            lost = memory.tags[cells] != self._held(source, rank, expected)
            lost |= memory.lost(cells)
            if not lost.any():
                continue
            cell = cells.start + int(np.flatnonzero(lost)[0])
            writer = memory.writer(cell)
            found = LostSource(
                lanes=() if writer < 0 else lanes_around(self.plan, [(writer, 0)]),
                name=source.name,
                cell=self._cell(cell),
                writer=None if writer < 0 else task_record(self.plan, writer),
                location=self._source_location(source),
            )
            raise DeliveryError(found.text, found.where, found)

    def _levels(self) -> Longs:
        """How many tasks deep each task stands in the order of conflicting accesses."""
        columns = Columns(self.plan)
        arrivals = find_arrivals(columns)
        graph = build_sync_graph(columns, arrivals, queues_ordered=True)
        place = graph.task_order(columns)
        touches = find_touches(columns, place, grouped=False, coarse=True, whole=True)
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
        level = topological_levels(source, target, tasks + len(before))[:tasks]
        # A task may conflict with itself over shared bytes; that is a race, whatever comes here.
        return np.where(level < 0, level.max(initial=0) + 1, level)

    def _steps(self, level: Longs) -> Iterator[Longs]:
        """Tasks that run at once: of one level and one op."""
        live = self.cells.tasks
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
            self._call(tasks, self.cells.kernel(op))

    def _transfer(self, tasks: Longs) -> None:
        memory, first = self.memory, self.cells.first_access[tasks]
        if self.plan.ops[int(self.plan.tasks.op[tasks[0]])].folds:
            self._transfer_folded(tasks)
            return
        source, _ = memory.boxes(first).flat()
        target, box = memory.boxes(first + 1).flat()
        tags, ready = memory.tags[source], memory.ready(source)
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
        first, kind = self.cells.first_access[tasks], np.zeros(len(tasks), np.int64)
        dims = [len(t.dims) for t in kernel.view_types]
        many = [self._many(first + i, d) for i, d in enumerate(dims)]
        for column in (column for m in many for column in m.T):
            _, kind = np.unique(kind * (int(column.max()) + 1) + column, return_inverse=True)
        order = np.argsort(kind, kind="stable")
        for part in np.split(order, np.flatnonzero(changes(kind[order]))[1:]):
            cells = max((int(m[part[0]].prod()) for m in many), default=1)
            at_once = max(1, CELLS // max(cells, 1))
            for some in np.split(part, np.arange(at_once, len(part), at_once)):
                self._call_alike(tasks[some], kernel)

    def _call_alike(self, tasks: Longs, kernel: core.FuncOp) -> None:
        memory, first = self.memory, self.cells.first_access[tasks]
        dims = [len(t.dims) for t in kernel.view_types]
        cells = [self._view_cells(first + i, i, d) for i, d in enumerate(dims)]

        def load(view: int) -> Tags:
            if not memory.ready(cells[view]).all():
                self._check_ready(first + view)
            return memory.tags[cells[view]]

        def store(view: int, tags: Tags) -> None:
            at = cells[view]
            by = np.broadcast_to(tasks.reshape(-1, *[1] * dims[view]), at.shape)
            memory.write(at.ravel(), np.broadcast_to(tags, at.shape).ravel(), by.ravel())

        def edges(view: int, dim: int) -> Longs:
            many = int(self.cells.many[first[0] + view, dim])
            return self.cells.views.edges(self.cells.cuts, first + view, dim, many)

        numbers = self.plan.arguments.value[
            np.searchsorted(self.plan.arguments.task, tasks)[:, None]
            + np.arange(len(kernel.indices))
        ]
        run_kernel(kernel, Hands(load, store, edges, lambda index: numbers[:, index]))

    def _transfer_folded(self, tasks: Longs) -> None:
        """Copies between views that are not the boxes themselves: in the views' order."""
        for one in tasks.tolist():
            first = longs([self.cells.first_access[one]])
            dims = [len(self.cells.views.line(int(first[0]) + i).sizes) for i in (0, 1)]
            source, target = (self._view_cells(first + i, i, dims[i]).ravel() for i in (0, 1))
            by = np.full(len(target), one)
            self.memory.write(target, self.memory.tags[source], by, self.memory.ready(source))

    def _many(self, access: Longs, dims: int) -> Longs:
        return self.cells.many[access, :dims]

    def _view_cells(self, access: Longs, view: int, dims: int) -> Longs:
        """Cells of views of one op that are all of one size."""
        task = self.plan.accesses.task[access[0]]
        fold = self.plan.ops[int(self.plan.tasks.op[task])].fold(view)
        return view_cells(self.memory, access, self._many(access[:1], dims)[0], fold)

    def _check_ready(self, accesses: Longs) -> None:
        cells, box = self.memory.boxes(accesses).flat()
        bad = np.flatnonzero(~self.memory.ready(cells))
        if not len(bad):
            return
        access = int(accesses[box[bad[0]]])
        cell = int(cells[bad[0]])
        found = UninitialisedRead(
            lanes_around(self.plan, [(int(self.plan.accesses.task[access]), 0)]),
            access_record(self.plan, access),
            self._cell(cell),
            self._why_empty(cell),
        )
        raise DeliveryError(found.text, found.where, found)

    def _why_empty(self, cell: int) -> str:
        if self.memory.writer(cell) == LOST:
            return f"a buffer in the same bytes has overwritten {self._cell(cell)}"
        return f"nobody has written {self._cell(cell)}"

    def _cell(self, cell: int) -> BoxRecord:
        buffer, rank, lo, hi = self.memory.place(cell)
        return BoxRecord(self.plan.buffers[buffer].name, rank, lo, hi)

    def _compare(self, bound: Bound, expected: Mapping[SSAValue, Tags]) -> None:
        whole = expected[bound.value]
        total = np.zeros_like(whole)
        for rank in range(self.plan.ranks):
            cells, shape = self.memory.whole(bound.buffer, rank)
            got, slices = self.memory.tags[cells].reshape(shape), self.cells.slices(bound, rank)
            lost = self.memory.lost(cells)
            if lost.any():
                bad = cells.start + int(np.flatnonzero(lost)[0])
                self._miss(bound, self._cell(bad), self._why_empty(bad))
            total[slices] += got
            wrong = np.flatnonzero((got != whole[slices]).ravel())
            if len(wrong) and not bound.shards.partial:
                at = cells.start + int(wrong[0])
                self._refuse(bound, rank, at, expected)
        if bound.shards.partial and (total != whole).any():
            self._miss(bound, None, "the ranks' terms do not add up to its value")

    def _miss(self, bound: Bound, cell: BoxRecord | None, why: str) -> NoReturn:
        found = MissingOutput((), bound.name, cell, why, self._location(bound))
        raise DeliveryError(found.text, found.where, found)

    def _source_location(self, bound: Bound) -> str:
        given = {op.tensor_name.data: op for op in self.cells.program.sources}
        return op_location(given[bound.name])

    def _location(self, bound: Bound) -> str:
        program = self.cells.program
        named = {op.tensor_name.data: op for op in (*program.outputs, *program.states)}
        return op_location(named[bound.name])

    def _refuse(
        self, bound: Bound, rank: int, cell: int, expected: Mapping[SSAValue, Tags]
    ) -> NoReturn:
        _, _, lo, hi = self.memory.place(cell)
        offset = bound.shards.offset[rank].tolist()
        at = tuple(a + o for a, o in zip(lo, offset, strict=True))
        end = tuple(b + o for b, o in zip(hi, offset, strict=True))
        came = explain_output(
            self.cells.program_axes,
            self.cells.cuts,
            expected,
            bound.value,
            at,
            self.memory.tags[cell],
        )
        writer = self.memory.writer(cell)
        found = WrongOutput(
            lanes=() if writer < 0 else lanes_around(self.plan, [(writer, 0)]),
            output=bound.name,
            rank=rank,
            box=BoxRecord(bound.name, rank, at, end),
            cell=self._cell(cell),
            came=came,
            writer=None if writer < 0 else task_record(self.plan, writer),
            location=self._location(bound),
        )
        raise DeliveryError(found.text, found.where, found)
