"""One grid as one Triton kernel: a program a lane, which runs the lane's tasks in order."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod

from xdsl.ir import SSAValue

from ditron.backends.triton.blocks import MOVED_ELEMENTS, Blocks, pointwise_blocks
from ditron.backends.triton.cut import CallFacts, Cut, cut_call
from ditron.backends.triton.expressions import condition, number, operand
from ditron.backends.triton.facts import axis_of
from ditron.backends.triton.names import Code
from ditron.backends.triton.order import Order
from ditron.backends.triton.origins import needed_sizes
from ditron.backends.triton.parameters import TYPES
from ditron.backends.triton.signals import Module, SignalCode
from ditron.backends.triton.tiles import TileCode
from ditron.backends.triton.views import View, folded, power_of_two, strides_of, unseen
from ditron.errors import PlanError
from ditron.ir import core, device
from ditron.ir.index import leaves
from ditron.ir.locations import op_location
from ditron.plan.expr import Expr, as_expr
from ditron.runtime.gpu_program import Launch, What

# Bytes that every buffer's address is a multiple of.
ALIGNMENT = 16


class GridKernel(SignalCode):
    """Writes the kernel of one grid."""

    # Whether loops say themselves how deep they are pipelined.
    staged = False

    def __init__(self, module: Module, grid: device.GridOp, op: int) -> None:
        super().__init__(module, grid, op)
        self.cut = Cut(Blocks(()))
        self._sizes: dict[str, str] = {}
        self._order_pointer = ""

    def emit(self) -> tuple[str, Launch]:
        """The kernel's source, and its launch."""
        before, after = Code(), Code()
        if self.waits_first:
            with self._apart(before):
                self.write_waits()
        with self.code:
            if not self.waits_first:
                self.write_waits()
            self.write_stamp("BEGIN")
            try:
                self._body()
            except PlanError as error:
                where = error.where or op_location(self.grid.body_op)
                raise PlanError(f"@{self.grid.label}: {error.message}", where) from error
            self.write_stamp("END")
            if not self.notifies_last:
                self.write_notifies()
        if self.waits and self.cut.tiled and self.waits_first:
            with self._apart(before):
                self.code("token = fence_loads(token)")
        if self.notifies_last:
            with self._apart(after):
                self.write_notifies()
        inner = self.code.used()
        self.code = Code()
        with self.code:
            self._loop(before.lines, inner)
            self.code.lines += after.lines
        launch = Launch(
            kernel=self.name,
            op=self.op,
            copies=self.grid.engine.data == "copy",
            programs=self.order.tasks if self.spread else self.order.lanes,
            warps=self.cut.blocks.warps,
            stages=self.cut.blocks.stages,
            arguments=self.parameters.in_order(),
            waits=self.sites(waits=True),
            notifies=self.sites(waits=False),
            always=tuple(self.always),
            dots=self.cut.blocks.dots,
            pipeline_bytes=self.cut.blocks.pipeline_bytes,
        )
        return self.header(launch) + self.code.text(), launch

    def header(self, launch: Launch) -> str:
        names = ", ".join(a.name for a in launch.arguments)
        scalar = [a.name for a in launch.arguments if a.what is What.RANK]
        jit = f"@triton.jit(do_not_specialize={scalar})" if scalar else "@triton.jit"
        return f'{jit}\ndef {self.name}({names}):\n    """{self.summary()}"""\n'.replace("'", '"')

    def summary(self) -> str:
        body = self.grid.body_op
        views = [_view_text(v) for v in self.grid.views]
        match body:
            case device.Transfer():
                return f"{views[0]} -> {views[1]}"
            case device.CallOp():
                func = self.module.funcs[body.kernel_name]
                made = [v for i, v in enumerate(views) if func.writes(i)]
                used = [v for i, v in enumerate(views) if not func.writes(i)]
                return f"{', '.join(made)} from {', '.join(used)}"
            case device.AcquireOp():
                return f"{_buffer_name(body.buffer)} is filled: peers may read it."
            case device.ReleaseOp():
                return f"No peer reads or writes {_buffer_name(body.buffer)} any more."
            case _:
                raise PlanError(f"no Triton code for {body.name}", op_location(body))

    @contextmanager
    def _apart(self, code: Code) -> Generator[None]:
        """Write what stands before or behind the loop over tasks."""
        held, self.code = self.code, code
        with code:
            yield
        self.code = held

    def _loop(self, before: Sequence[str], inner: Sequence[str]) -> None:
        """The tasks of a lane around the code of one task, behind what comes before all."""
        code, order = self.code, self.order
        definitions = self.values.define(inner=True)
        text = "\n".join([*definitions, *inner])
        loop: list[str]
        if order.order is not None and order.starts is not None:
            loop = self._table_loop(order)
        elif order.tasks > order.lanes and not self.spread:
            span = f"{self.lane}, {order.tasks}, {order.lanes}"
            loop = [f"for task in range({order.tasks if order.lanes == 1 else span}):"]
            if self.cut.flat:
                loop = [f"for task in tl.range({span}, flatten=True):"]
        else:
            loop = [f"task = {self.lane}"] if "task" in text else []
        outer = self.values.define(inner=False)
        self.write_launches()
        for line in outer:
            code(line)
        code.lines += before
        for line in loop:
            code(line)
        looping = bool(loop) and loop[-1].endswith(":")
        if loop and loop[0].startswith("begin"):
            with code:
                code(f"task = tl.load({self._order_pointer} + i)")
        for line in definitions:
            code(f"    {line}" if looping else line)
        for line in inner:
            code(line if looping else line.removeprefix("    "))

    @property
    def spread(self) -> bool:
        """Whether each task has a program of its own: nothing orders it with others of its lane.

        Data that one task hands on to the next of its lane take a wait or notify (`check_plan`).
        Products whose loads run ahead from task to task stay on their lanes.
        """
        signals = self.waits or self.notifies
        in_turn = self.order.order is None and not self.cut.tiled
        return in_turn and not (signals or self.staged or self.grid.engine.data == "copy")

    def write_launches(self) -> None:
        """How many launches there were, where waits and notifies go by that."""
        if self.reads_epoch:
            control = self.parameters.control()
            self.code(f"done = tl.load({control} + EPOCH)  # launches before this one")
        if self.reads_age:
            control = self.parameters.control()
            self.code(f"age = tl.load({control} + AGE)  # the same, never wrapping")

    def _table_loop(self, order: Order) -> list[str]:
        assert order.order is not None
        assert order.starts is not None
        tables = self.module.tables
        tables[f"{self.name}.order"], tables[f"{self.name}.starts"] = order.order, order.starts
        pointer = self.parameters.table("order", f"{self.name}.order")
        starts = self.parameters.table("starts", f"{self.name}.starts")
        me = self.values.use(self.rank_value()) if self.plan.ranks > 1 else ""
        self._order_pointer = f"{pointer} + {me} * {order.tasks}" if me else pointer
        begin = f"{me} * {order.lanes + 1} + {self.lane}" if me else self.lane
        return [
            f"begin = {starts} + {begin}",
            "for i in range(tl.load(begin), tl.load(begin + 1)):",
        ]

    def _body(self) -> None:
        body = self.grid.body_op
        if isinstance(body, device.HandOverOp):
            return
        depth = self.code.depth
        tiles = TileCode(self.code, self.names, self.values, staged=self.staged)
        if isinstance(body, device.Transfer):
            self._transfer(body, tiles)
        else:
            assert isinstance(body, device.CallOp)
            func = self.module.funcs[body.kernel_name]
            self._choose_cut(func)
            views = self._views()
            self._guard([v for i, v in enumerate(views) if func.writes(i)])
            indices = [operand(index, self.values) for index in body.index_exprs]
            tiles.call(func, views, self.cut.blocks, indices)
        self.code.depth = depth

    def _transfer(self, body: device.Transfer, tiles: TileCode) -> None:
        views = self._views()
        if body.source.type == body.target.type:
            views = _of_one_size(views)
            self._guard(views[1:])
            self.cut = Cut(pointwise_blocks(views[1].capacity, MOVED_ELEMENTS))
            tiles.transfer(views[0], views[1], self.cut.blocks)
        else:
            self._guard(views[1:])
            elements = min(power_of_two(prod(views[1].capacity)), MOVED_ELEMENTS)
            self.cut = Cut(Blocks((elements,), warps=8))
            tiles.reshape(views[0], views[1], elements)

    def _choose_cut(self, func: core.FuncOp) -> None:
        target, order = self.module.target, self.order
        in_turn = order.order is None and order.tasks > order.lanes
        facts = CallFacts(
            func, self.grid, self.facts, bool(self.waits), bool(self.notifies), in_turn
        )
        self.cut = cut_call(facts, target)
        if self.waits and self.cut.tiled and not self.waits_first:
            self.code("token = fence_loads(token)")

    def _guard(self, written: Sequence[View]) -> None:
        """Leave out what is masked or has nothing to write."""
        terms: list[str] = []
        schedule = self.grid.schedule
        if self.facts.masked and schedule is not None and schedule.where is not None:
            terms.append(condition(leaves(schedule.where_args, schedule.where)[0], self.values))
        if self.facts.empty:
            sizes = {s for v in written for s, w in zip(v.sizes, v.whole, strict=True) if not w}
            terms += [f"{size} > 0" for size in sorted(sizes)]
        if terms:
            self.branch(terms)

    def _views(self) -> list[View]:
        needed = self._needed_sizes()
        return [self._view(view, i, needed) for i, view in enumerate(self.grid.views)]

    def _needed_sizes(self) -> set[tuple[int, int]]:
        """(view, dimension) of the sizes that loops and masks go by."""
        body = self.grid.body_op
        if isinstance(body, device.CallOp):
            func = self.module.funcs[body.kernel_name]
            written = [i for i in range(len(self.grid.views)) if func.writes(i)]
            return needed_sizes(func) | self._dims_of(written)
        return self._dims_of(range(len(self.grid.views)))

    def _dims_of(self, views: Iterable[int]) -> set[tuple[int, int]]:
        return {(i, d) for i in views for d in range(len(self.grid.views[i].result.type.dims))}

    def _view(self, view: device.ViewOp, number_: int, needed: set[tuple[int, int]]) -> View:
        owner = view.buffer.owner
        assert isinstance(owner, device.BufferOp)
        type_ = owner.result.type
        name, dtype = owner.label, type_.dtype
        block = self.cut.tiled.get(number_)
        tiles = "" if block is None else self.parameters.tiles(name, dtype, block)
        dims = view.result.type.dims
        sizes = [
            self._size(view, number_, d) if (number_, d) in needed else ("", False)
            for d in range(len(dims))
        ]
        offsets, strides = folded(view)
        return View(
            buffer=name,
            pointer="" if tiles else self._pointer(view, name, dtype),
            dtype=dtype,
            offsets=offsets,
            sizes=tuple(text for text, _ in sizes),
            whole=tuple(whole for _, whole in sizes),
            capacity=dims,
            strides=strides,
            elements=strides_of((1, *type_.dims))[0],
            tiles=tiles,
            columns=0 if block is None else block[1],
            token="token" if self.waits else "",
        )

    def _pointer(self, view: device.ViewOp, name: str, dtype: str) -> str:
        """The variable with a view's base address."""
        if view.at is None:
            pointer = base = self.parameters.buffer(name, dtype)
        else:
            table = self.parameters.buffer_at(name)
            base, pointer = self.peer_pointer(table, view.at, TYPES[dtype]), f"{name}_peer"
        if self.waits or view.at is not None:
            token = " + token" if self.waits else ""
            pointer = self.names.fresh(pointer if view.at is not None else f"{name}_here")
            self.code(f"{pointer} = tl.multiple_of({base}{token}, {ALIGNMENT})")
        rest = unseen(view)
        if rest == as_expr(0):
            return pointer
        part = self.names.fresh(f"{name}_part")
        self.code(f"{part} = {pointer} + {number(rest, self.values)}")
        return part

    def _size(self, view: device.ViewOp, number_: int, dim: int) -> tuple[str, bool]:
        """How many elements a view has along a dimension, as code; whether always its capacity."""
        capacity = view.result.type.dims[dim]
        real = self.facts.sizes(number_, dim)
        if (real == capacity).all():
            return str(capacity), True
        asked, rest = self.facts.asked(view, dim), self.facts.rest(view, number_, dim)
        axis, step = axis_of(view, dim)
        size, left = view.size_exprs[axis] // step, self._rest(view, axis) // step
        if (real == asked).all():
            text = number(size, self.values)
        elif (real == rest).all():
            text = number(left, self.values)
        else:
            text = f"tl.minimum({number(size, self.values)}, {number(left, self.values)})"
        if text.isidentifier() or text.isdigit():
            return text, False
        if text not in self._sizes:
            at = len(view.result.type.dims) - 1 - dim
            self._sizes[text] = self.names.fresh(("width", "height")[at] if at < 2 else "length")
            self.code.define(self._sizes[text], text)
        return self._sizes[text], False

    def _rest(self, view: device.ViewOp, axis: int) -> Expr:
        owner = view.buffer.owner
        assert isinstance(owner, device.BufferOp)
        extent = owner.extents[axis]
        if view.at is not None:
            extent = self.values.at_rank(extent, view.at)
        return extent - view.offset_exprs[axis]


def _of_one_size(views: Sequence[View]) -> list[View]:
    """The two views of a transfer with the smaller one's sizes for both."""
    source, target = views
    sizes = [
        a if a == b else f"tl.minimum({a}, {b})"
        for a, b in zip(source.sizes, target.sizes, strict=True)
    ]
    whole = [a and b for a, b in zip(source.whole, target.whole, strict=True)]
    return [replace(v, sizes=tuple(sizes), whole=tuple(whole)) for v in views]


def _buffer_name(buffer: SSAValue) -> str:
    owner = buffer.owner
    assert isinstance(owner, device.BufferOp)
    return owner.label


def _view_text(view: device.ViewOp) -> str:
    dims = "x".join(map(str, view.result.type.dims))
    where = " at a peer" if view.peer is not None else ""
    return f"{_buffer_name(view.buffer)} [{dims}]{where}"
