"""A grid of a device program: on every rank one task a point, each doing one thing.

What a task waits for, does and tells may be written in any order; it waits first and tells last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Block, Operation, Region

from ditron.builder.core import Kernel
from ditron.builder.grid_checks import GridChecks, WaitRecord
from ditron.builder.indices import Index, IndexLike, as_int
from ditron.builder.memory import Buffer, Signals, View
from ditron.errors import ProgramError, ShapeError
from ditron.ir import device
from ditron.ir.index import INDEX, Ssa
from ditron.ir.locations import caller_loc
from ditron.plan.callsite import user_line
from ditron.plan.expr import Expr
from ditron.plan.tables import Role

if TYPE_CHECKING:
    from ditron.builder.device import DeviceProgram


class Grid(GridChecks):
    """One grid, written inside its `with` block.

    ```python
    with d.grid("gather", engine="copy", p=3, c=2) as g:
        p, c = g.indices
        ...
    ```
    """

    def __init__(
        self, program: DeviceProgram, name: str, engine: str, bounds: dict[str, int], *, queue: bool
    ) -> None:
        super().__init__(program, name, engine, program.scope.nested(f"grid {name}", bounds))
        self.queue, self.bounds = queue, bounds
        self.made_at, self.location = user_line(), caller_loc()
        self.block = Block(arg_types=[INDEX] * len(bounds))
        for i, (arg, dim) in enumerate(zip(self.block.args, bounds, strict=True)):
            arg.name_hint = dim
            shape = [-1 if j == i + 1 else 1 for j in range(len(bounds) + 1)]
            self.scope.values[arg] = np.arange(bounds[dim]).reshape(shape)
        self.waits: list[WaitRecord] = []
        self._wait_ops: list[device.WaitOp] = []
        self._notify_ops: list[Callable[[str], device.NotifyOp]] = []
        self._schedule: dict[str, list[Expr]] = {}

    def __enter__(self) -> Self:
        self.program.open_grid(self)
        self.is_open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.is_open = False
        self.program.close_grid(self, self._finish() if kind is None else None)

    @property
    def indices(self) -> tuple[Index, ...]:
        """The coordinates, in the order of the bounds."""
        return tuple(Index(self.scope, Ssa(arg)) for arg in self.block.args)

    def __getitem__(self, dim: str) -> Index:
        """The coordinate of a bound, by name."""
        if dim not in self.bounds:
            self.refuse(f"no coordinate {dim!r}; there is {', '.join(self.bounds) or 'none'}")
        return self.indices[list(self.bounds).index(dim)]

    def index(self, name: str, value: IndexLike) -> Index:
        """Give an index a name in the IR."""
        return self.scope.named(name, value)

    def view(
        self,
        buffer: Buffer,
        offsets: Sequence[IndexLike],
        sizes: Sequence[IndexLike],
        *,
        at: IndexLike | None = None,
    ) -> View:
        """A box of a buffer: on this rank, or at a peer.

        What lies beyond the end of the buffer, as its rank has it, is clipped.
        """
        self.require_own("a view", buffer)
        ndim = len(buffer.shape)
        if len(offsets) != ndim or len(sizes) != ndim:
            came = f"{len(offsets)} and {len(sizes)}"
            self.refuse(f"{buffer!r} takes {ndim} offsets and {ndim} sizes, got {came}", ShapeError)
        starts = [self.scope.index(o, "an offset") for o in offsets]
        lengths = [self.scope.index(s, "a size") for s in sizes]
        peer = None if at is None else self.scope.index(at, "the rank of a view")
        if peer is not None and not buffer.symmetric:
            self.refuse(f"{buffer!r} is local: make it with symmetric=True to view it at a peer")
        most = [max(int(s.values().max(initial=0)), 1) for s in lengths]
        op = device.ViewOp(
            buffer.ssa,
            [o.expr for o in starts],
            [s.expr for s in lengths],
            most,
            None if peer is None else peer.expr,
        )
        self.scope.emit(op)
        view = View(self, op, buffer, starts, lengths, peer, user_line())
        self.check_box(view)
        return view

    def put(self, source: View, target: View) -> None:
        """Copy this rank's box to a peer's memory."""
        self.check_ends("put", source, target, (False, True))
        self.do("put", device.PutOp(source.ssa, target.ssa))

    def get(self, source: View, target: View) -> None:
        """Copy a peer's box to this rank's memory."""
        self.check_ends("get", source, target, (True, False))
        self.do("get", device.GetOp(source.ssa, target.ssa))

    def copy(self, source: View, target: View) -> None:
        """Copy within this rank's memory."""
        self.check_ends("copy", source, target, (False, False))
        self.do("copy", device.CopyOp(source.ssa, target.ssa))

    def call(self, kernel: Kernel, *views: View, **options: Any) -> None:  # noqa: ANN401 - its own
        """Run a kernel (`@dt.kernel`) on views, each of which it loads and stores whole."""
        if not isinstance(kernel, Kernel):  # pyright: ignore[reportUnnecessaryIsInstance]
            self.refuse(f"call takes a kernel, made by @dt.kernel, got {kernel!r}")
        self.require_own("call", *views)
        try:
            func = kernel.trace_views([view.op.result.type for view in views], options)
        except ProgramError as error:
            error.where = error.where or user_line()
            raise
        name = self.program.add_kernel(func)
        self.do("call", device.CallOp(name, [view.ssa for view in views]))

    def acquire(self, buffer: Buffer) -> None:
        """The host hands over a buffer that peers touch; a notify tells them."""
        self._hand_over("acquire", buffer, device.AcquireOp)

    def release(self, buffer: Buffer) -> None:
        """The host gets back a buffer that peers touch, once waits say that they are done."""
        self._hand_over("release", buffer, device.ReleaseOp)

    def wait(
        self,
        signals: Signals,
        slot: IndexLike,
        *,
        ge: IndexLike = 1,
        slots: IndexLike = 1,
        lag: int = 0,
        when: IndexLike | None = None,
    ) -> None:
        """Begin once a slot of this rank's has been raised by `ge` in this launch.

        Args:
            signals: an array of slots.
            slot: which slot, or the first of `slots` neighbours.
            ge: how many increments to wait for; 0 is no wait.
            slots: how many slots.
            lag: 1 waits for increments of the launch before (a credit); the first has no such wait.
            when: the tasks that wait, by default all.
        """
        self.require_own("wait", signals)
        first, many = self.scope.index(slot, "a slot"), self.scope.index(slots, "slots")
        value, mask = self.scope.index(ge, "ge"), self.mask(when)
        if type(lag) is not int or lag < 0:
            self.refuse(f"a wait's lag counts launches back, got {lag!r}")
        self.check(mask & (value.values() < 0), value.values(), "ge of a wait", "0 or more")
        here = mask & (value.values() > 0) & (many.values() > 0)
        end = first.values() + many.values()
        self.check_slot(signals, first.values(), here)
        self.check_slot(signals, end - 1, here)
        condition = None if when is None else self.scope.index(when, "when").expr
        op = device.WaitOp(signals.ssa, first.expr, many.expr, value.expr, lag=lag, when=condition)
        op.location = caller_loc()
        self._wait_ops.append(op)
        self.waits.append(WaitRecord(user_line(), signals, first.values(), end, lag, here))

    def notify(
        self,
        signals: Signals,
        slot: IndexLike,
        *,
        at: IndexLike | None = None,
        add: int | None = None,
        set: int | None = None,  # noqa: A002 - the word for it
        after: str | None = None,
        when: IndexLike | None = None,
    ) -> None:
        """Raise a slot once the task is done.

        Args:
            signals: an array of slots.
            slot: which slot.
            at: of which rank, by default this one.
            add: by how much, by default 1.
            set: to how much above what the launch before left, instead; by one lane only.
            after: "put": this transfer has landed; "fence": all of its lane to that rank so far;
                "quiet": all of its lane; "end" of the task. By default what ends it: "put" for a
                transfer, else "end".
            when: the tasks that notify, by default all.
        """
        self.require_own("notify", signals)
        index, mask = self.scope.index(slot, "a slot"), self.mask(when)
        self.check_slot(signals, index.values(), mask)
        rank = self.scope.index(self.program.rank if at is None else at, "the rank of a notify")
        self.check_rank(rank.values(), "a notify", mask)
        if add is not None and set is not None:
            self.refuse("a notify adds or sets, not both")
        given = add if set is None else set
        amount = 1 if given is None else as_int(given, "what a notify adds")
        if amount < 1:
            self.refuse(f"a notify raises a slot, got {amount}")
        if after not in (None, "end", "put", "fence", "quiet"):
            self.refuse(f"after is end, put, fence or quiet, got {after!r}")
        condition = None if when is None else self.scope.index(when, "when").expr
        verb, location = "add" if set is None else "set", caller_loc()

        def make(default: str) -> device.NotifyOp:
            args = (signals.ssa, index.expr, rank.expr)
            then = after or default
            op = device.NotifyOp(*args, amount=amount, op=verb, after=then, when=condition)
            op.location = location
            return op

        self._notify_ops.append(make)

    def lane(self, lane: IndexLike) -> None:
        """The lane of each task; tasks of one rank, engine and lane run one after another."""
        value = self.scope.index(lane, "a lane")
        self.check(value.values() < 0, value.values(), "a lane", "0 or more")
        self._plan("lane", [value])

    def order(self, *keys: IndexLike) -> None:
        """The order of tasks on their lanes, by these keys; by default that of the coordinates."""
        self._plan("order", [self.scope.index(key, "a key") for key in keys])

    def where(self, condition: IndexLike) -> None:
        """The tasks that do something; the others still wait and notify."""
        self._plan("where", [self.scope.index(condition, "where")])

    def _plan(self, what: str, given: Sequence[Index]) -> None:
        self.require_own(f"g.{what}")
        if what in self._schedule:
            self.refuse(f"g.{what} says twice what it says once")
        self._schedule[what] = [index.expr for index in given]

    def _hand_over(self, verb: str, buffer: Buffer, op: type[device.HandOverOp]) -> None:
        self.require_own(verb, buffer)
        if buffer.role is Role.SCRATCH:
            self.refuse(f"{verb} of {buffer!r}: the host has no part in scratch memory")
        self.do(verb, op(buffer.ssa))

    def _finish(self) -> device.GridOp:
        if self.body is None:
            self.refuse(
                "its tasks do nothing: it needs a put, get, copy or call", where=self.made_at
            )
        body, verb, _ = self.body
        exists = np.ones((1,) * len(self.scope.shape), np.bool_)
        if "where" in self._schedule:
            exists = self.scope.evaluate(self._schedule["where"][0]) != 0
        for check in self.at_exit:
            check(exists)
        ops: list[Operation] = list(self.scope.ops)
        if self._schedule:
            lane, where = (self._schedule.get(key, [None])[0] for key in ("lane", "where"))
            schedule = device.ScheduleOp(lane, self._schedule.get("order", ()), where)
            schedule.location = self.location
            ops.append(schedule)
        after = "put" if verb in ("put", "get") else "end"
        ops += [*self._wait_ops, body, *(make(after) for make in self._notify_ops)]
        self.block.add_ops(ops)
        op = device.GridOp(self.name, self.engine, tuple(self.bounds.values()), Region(self.block))
        op.location = self.location
        if self.queue:
            op.queue = UnitAttr()
        return op
