"""What a grid checks of what is written in it, at every rank and coordinate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from ditron.builder.indices import IndexLike, Scope
from ditron.builder.memory import Buffer, Signals, View
from ditron.errors import DTypeError, ProgramError, ShapeError
from ditron.ir import device
from ditron.ir.locations import caller_loc
from ditron.plan.callsite import user_line
from ditron.plan.expr import Values
from ditron.plan.spec import show_shape
from ditron.plan.tables import Bools

if TYPE_CHECKING:
    from ditron.builder.device import DeviceProgram


ENGINES = {"copy": ("sm", "copy"), "call": ("sm",), "acquire": ("host",), "release": ("host",)}
"""The engines that do what a body op does; puts and gets are like copies."""


@dataclass(frozen=True)
class WaitRecord:
    """A wait as it was written: its line, and its slots (from, to) at each point where it is."""

    where: str | None
    signals: Signals
    first: Values
    end: Values
    lag: int
    here: Bools


class GridChecks:
    """The checks of one grid. Those of boxes wait until it is known which tasks are left out."""

    def __init__(self, program: DeviceProgram, name: str, engine: str, scope: Scope) -> None:
        self.program, self.name, self.engine, self.scope = program, name, engine, scope
        self.body: tuple[device.BodyOp, str, str | None] | None = None
        self.is_open = False
        self.at_exit: list[Callable[[Bools], None]] = []

    def refuse(
        self, message: str, kind: type[ProgramError] = ProgramError, where: str | None = None
    ) -> NoReturn:
        """Raise an error at a line of the user's, by default the current one."""
        text = f"grid {self.name}: {message}"
        raise kind(text, where or user_line())

    def require_own(self, what: str, *given: object) -> None:
        """The grid is open, and buffers, signals and views are of this program and grid."""
        if not self.is_open:
            self.refuse(f"{what} belongs inside its `with` block")
        for item in given:
            if not isinstance(item, Buffer | Signals | View):
                self.refuse(f"{what} takes buffers, signals and views of the program, got {item!r}")
            if item.program is not self.program:
                self.refuse(
                    f"{what} of {item!r}, which is of device program {item.program.name}; a program"
                    f" uses its own buffers and signals only"
                )
            if isinstance(item, View) and item.grid is not self:
                self.refuse(f"{what} of {item!r}, made in grid {item.grid.name}: make one here")

    def check(
        self, bad: Bools, value: Values, what: str, wanted: str, where: str | None = None
    ) -> None:
        """Refuse values that are marked, naming the first and where it happens."""
        if bad.any():
            point = self.scope.first(bad)
            came = int(np.broadcast_to(value, self.scope.shape)[point])
            at = self.scope.describe(point)
            self.refuse(f"{what} is {came} at {at}, expected {wanted}", where=where)

    def check_slot(self, signals: Signals, slot: Values, here: Bools) -> None:
        """Slots that the array has."""
        bad = here & ((slot < 0) | (slot >= signals.size))
        self.check(bad, slot, f"a slot of {signals!r}", f"0 to {signals.size - 1}")

    def check_rank(self, rank: Values, what: str, here: Bools, where: str | None = None) -> None:
        """Ranks that there are."""
        ranks = self.program.mesh.ranks
        bad = here & ((rank < 0) | (rank >= ranks))
        self.check(bad, rank, f"the rank of {what}", f"0 to {ranks - 1}; wrap it by %", where)

    def mask(self, when: IndexLike | None) -> Bools:
        """At which points a condition holds."""
        if when is None:
            return np.ones((1,) * len(self.scope.shape), np.bool_)
        return self.scope.index(when, "when").values() != 0

    def check_box(self, view: View) -> None:
        """A box that begins in its buffer, at a rank there is; beyond its end it is clipped.

        Shards are rounded up, so the last ranks' boxes may begin that much behind the end.
        """
        buffer, ranks, where = view.buffer, self.program.mesh.ranks, user_line()

        def check(exists: Bools) -> None:
            self.check_rank(view.owner(), f"a view of {buffer!r}", exists, where)
            for dim, size in enumerate(buffer.shape):
                start, length = view.starts[dim].values(), view.sizes[dim].values()
                room = -(-size // ranks) * ranks
                bad = exists & ((start < 0) | ((start >= room) & (length > 0)))
                if bad.any():
                    point = self.scope.first(bad)
                    at, long = (
                        int(np.broadcast_to(v, self.scope.shape)[point]) for v in (start, length)
                    )
                    self.refuse(
                        f"box {at}:{at + long} of dim {dim} lies outside {buffer!r} at"
                        f" {self.scope.describe(point)}; wrap its offset by %, or leave the task"
                        f" out with g.where",
                        where=where,
                    )

        self.at_exit.append(check)

    def check_ends(self, verb: str, source: View, target: View, remote: tuple[bool, bool]) -> None:
        """Both ends of a transfer, alike and on the right ranks."""
        self.require_own(verb, source, target)
        for view, side, may in zip((source, target), ("source", "target"), remote, strict=True):
            if (view.peer is not None) == may:
                continue
            remedy = {"put": "g.get reads from a peer", "get": "g.put writes to a peer"}
            if may:
                self.refuse(f"the {side} of {verb} lies on this rank: view it at=peer, or g.copy")
            hint = remedy.get(verb, "g.put and g.get reach peers")
            self.refuse(f"the {side} of {verb} is this rank's own memory, got {view!r}: {hint}")
        if source.buffer.dtype != target.buffer.dtype:
            self.refuse(
                f"{verb} from {source.buffer!r} to {target.buffer!r}: a transfer does not convert;"
                f" call a kernel that casts",
                DTypeError,
            )
        if source.shape != target.shape:
            came = f"{show_shape(source.shape)} to {show_shape(target.shape)}"
            self.refuse(f"{verb} of {came}: both ends have one shape", ShapeError)
        self._check_room(verb, source, target)

    def _check_room(self, verb: str, source: View, target: View) -> None:
        """No element is lost because the target is clipped where the source is not."""
        where = user_line()

        def check(exists: Bools) -> None:
            dims = range(len(source.shape))
            sizes = [source.clipped(d) for d in dims]
            moves = reduce(np.logical_and, (size > 0 for size in sizes), exists)
            for d in dims:
                bad = moves & (sizes[d] > target.clipped(d))
                if bad.any():
                    point = self.scope.first(bad)
                    have, room = int(sizes[d][point]), int(target.clipped(d)[point])
                    self.refuse(
                        f"{verb} loses {have - room} of {have} elements of dim {d} at"
                        f" {self.scope.describe(point)}: its target lies outside"
                        f" {target.buffer!r}",
                        where=where,
                    )

        self.at_exit.append(check)

    def do(self, verb: str, op: device.BodyOp) -> None:
        """The one thing that the tasks of the grid do."""
        if self.body is not None:
            _, before, where = self.body
            self.refuse(
                f"its tasks {before} already ({where}), and a grid does one thing: {verb} in a"
                f" grid of its own"
            )
        engines = ENGINES.get(verb, ENGINES["copy"])
        if self.engine not in engines:
            self.refuse(f"engine {self.engine} cannot {verb}: use {' or '.join(engines)}")
        op.location = caller_loc()
        self.body = op, verb, user_line()
