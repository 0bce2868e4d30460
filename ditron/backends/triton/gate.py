"""Read compiled text and refuse a kernel that lost a wait, a notify or their order.

Stock Triton has moved and deleted waits (see `docs/gpu.md`), so nothing runs on trust. The text
(PTX or AMD's ISA) is cut into basic blocks and checked along every path:

* every wait and notify of the source is there, known by the mark that its number left;
* a wait's mark comes after an acquiring poll at its scope and a barrier, and no memory of buffers
  is touched between the poll and the mark;
* a notify's mark comes after a barrier with no store behind that barrier, and is followed by a
  release at its scope before anything else;
* what an unconditional wait guards is not read before it;
* tensor descriptors load nothing behind a wait without a proxy fence between, and what they store
  has landed, with a completion wait and a proxy fence, before the barrier of a notify;
* a product uses the matrix unit, its loads are asynchronous where the target has that and run
  ahead, and its pipeline spills nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ditron.backends.triton.assembly import GCN, PTX, Block, Dialect, Event, Kind, parse
from ditron.backends.triton.compiled import Compiled
from ditron.backends.triton.targets import Target
from ditron.errors import CompileError
from ditron.runtime.gpu_program import Site


def check_compiled(compiled: Compiled, sites: Sequence[Site], target: Target) -> None:
    """Refuse a compiled kernel that does not do what its source says.

    Args:
        compiled: the kernel.
        sites: every wait and notify of the program.
        target: what it was compiled for.

    Raises:
        CompileError: what is missing or out of order, in which kernel.
    """
    dialect = PTX if target.backend == "cuda" else GCN
    blocks = parse(compiled.text, dialect)
    check = _Check(compiled, sites, dialect, blocks)
    check.presence()
    check.order()
    check.guarded()
    _check_products(compiled, target)


# Of a store through a tensor descriptor: before its completion wait, and before the proxy fence.
IN_FLIGHT, UNFENCED = "may not have landed", "has no proxy fence behind it"


@dataclass(frozen=True)
class _State:
    """What is known on one path.

    polled: the scope of a poll whose wait has not been marked yet, and whether a barrier followed;
    dirty: a store since the last barrier (behind a drain, where it takes one), which is drained or
    not; owed: the number of a notify still to be released; stale: a wait since the last proxy
    fence; flying: how far a store through a descriptor is from being in memory.
    """

    polled: str = "-"
    barrier: bool = False
    dirty: bool = False
    drained: bool = False
    owed: str = ""
    stale: bool = False
    flying: str = ""


# Bytes a thread that ptxas may put on the stack where no pipeline of products runs (one has more
# stages than attention has): it does so with what a kernel needs again behind all its waits, or
# between its sums, once, however many registers are free.
MOST_SET_ASIDE, SHALLOW = 32, 2


class _Check:
    def __init__(
        self, compiled: Compiled, sites: Sequence[Site], dialect: Dialect, blocks: list[Block]
    ) -> None:
        self.name, self.launch = compiled.launch.kernel, compiled.launch
        self.sites, self.dialect, self.blocks = sites, dialect, blocks
        places = {b.label: i for i, b in enumerate(blocks) if b.label}
        self.next = [
            [places[t] for t in b.targets if t in places]
            + ([i + 1] if b.falls and i + 1 < len(blocks) else [])
            for i, b in enumerate(blocks)
        ]

    def _fail(self, what: str) -> CompileError:
        return CompileError(f"@{self.name}: {what}; the compiled kernel must not run")

    def _site(self, number: str) -> str:
        site = self.sites[int(number)]
        name = f"%{site.signals}" if site.signals else "a signal"
        return f"the {'wait for' if site.waits else 'notify of'} {name} (site {number})"

    def presence(self) -> None:
        """Every mark is there."""
        events = [e for b in self.blocks for e in b.events]
        for kind, wanted in ((Kind.WAIT, self.launch.waits), (Kind.NOTIFY, self.launch.notifies)):
            there = {int(e.detail) for e in events if e.kind is kind}
            for number in wanted:
                if number not in there:
                    raise self._fail(f"{self._site(str(number))} is gone")

    def order(self) -> None:
        """Walk all paths with what is known on them."""
        seen: set[tuple[int, _State]] = set()
        work = [(0, _State())]
        while work:
            at, state = work.pop()
            if (at, state) in seen:
                continue
            seen.add((at, state))
            for event in self.blocks[at].events:
                state = self._step(state, event)
            following = self.next[at]
            if not following and state.owed:
                raise self._fail(f"{self._site(state.owed)} is never sent")
            work += [(n, state) for n in following]

    def _step(self, state: _State, event: Event) -> _State:  # noqa: PLR0911 - one a kind
        match event.kind:
            case Kind.POLL:
                return replace(state, polled=self.dialect.scopes[event.detail], barrier=False)
            case Kind.BARRIER:
                clean = (state.drained or not self.dialect.drains) and not state.flying
                return replace(state, barrier=True, dirty=state.dirty and not clean)
            case Kind.DRAIN:
                return replace(state, drained=True)
            case Kind.STORE:
                return replace(state, dirty=True, drained=False)
            case Kind.WAIT:
                return self._waited(state, event)
            case Kind.NOTIFY:
                return self._notified(state, event)
            case Kind.RELEASE if state.owed:
                return self._released(state, event)
            case _:
                return self._by_descriptor(state, event)

    def _by_descriptor(self, state: _State, event: Event) -> _State:
        match event.kind:
            case Kind.TILE_STORE:
                return replace(state, dirty=True, flying=IN_FLIGHT)
            case Kind.COMPLETE if state.flying:
                return replace(state, flying=UNFENCED)
            case Kind.PROXY:
                flying = "" if state.flying == UNFENCED else state.flying
                return replace(state, stale=False, flying=flying)
            case Kind.TILE_LOAD if state.stale:
                raise self._fail(f"no proxy fence stands between a wait and `{event.instruction}`")
            case _:
                return state

    def _notified(self, state: _State, event: Event) -> _State:
        if state.owed:
            raise self._fail(f"{self._site(state.owed)} is not sent")
        if state.flying:
            what = f"a store through a tensor descriptor {state.flying}"
            raise self._fail(f"{what} at {self._site(event.detail)}")
        if state.dirty:
            raise self._fail(f"a store may come after the barrier of {self._site(event.detail)}")
        return replace(state, owed=event.detail)

    def _released(self, state: _State, event: Event) -> _State:
        scope, want = self.dialect.scopes[event.detail], self.sites[int(state.owed)].scope
        if scope != want:
            raise self._fail(f"{self._site(state.owed)} has scope {scope}, needs {want}")
        return replace(state, owed="")

    def _waited(self, state: _State, event: Event) -> _State:
        want = self.sites[int(event.detail)].scope
        if state.polled == "-":
            raise self._fail(f"{self._site(event.detail)} does not acquire on some path")
        if state.polled != want:
            raise self._fail(f"{self._site(event.detail)} has scope {state.polled}, needs {want}")
        if not state.barrier:
            raise self._fail(f"no barrier stands behind {self._site(event.detail)}")
        return replace(state, polled="-", barrier=False, stale=True)

    def guarded(self) -> None:
        """No load comes before an unconditional wait: from the start, or that of its task kind."""
        enters = self.launch.enters or (None,) * len(self.launch.always)
        for number, kind in zip(self.launch.always, enters, strict=True):
            for event in self._before(number, kind):
                if event.kind not in (Kind.LOAD, Kind.TILE_LOAD):
                    continue
                # A task kind finds its buffers by its record and its token, in vector registers;
                # from a base in scalar registers comes the record itself.
                if kind is None or not re.search(r"s\[\d+:\d+\]", event.text):
                    what = f"`{event.instruction}` may run before {self._site(str(number))}"
                    raise self._fail(what)

    def _starts(self, kind: int | None) -> list[tuple[int, int]]:
        """(block, event) where a task kind's code begins, or the kernel's."""
        if kind is None:
            return [(0, 0)]
        places = [(b, e) for b, block in enumerate(self.blocks) for e in range(len(block.events))]
        events = ((b, e, self.blocks[b].events[e]) for b, e in places)
        found = [
            (b, e + 1)
            for b, e, event in events
            if (event.kind, event.detail) == (Kind.ENTER, str(kind))
        ]
        if not found:
            raise self._fail(f"the beginning of the task kind of site {kind} is gone")
        return found

    def _before(self, number: int, kind: int | None) -> Iterator[Event]:
        """All events on paths from the start to a wait's mark."""
        seen: set[tuple[int, int]] = set()
        work = self._starts(kind)
        while work:
            at, first = work.pop()
            if (at, first) in seen:
                continue
            seen.add((at, first))
            for event in self.blocks[at].events[first:]:
                passed = event.kind is Kind.WAIT and int(event.detail) == number
                if passed or (event.kind is Kind.ENTER and kind is not None):
                    break
                yield event
            else:
                work += [(n, 0) for n in self.next[at]]


def _check_products(compiled: Compiled, target: Target) -> None:
    launch, text = compiled.launch, compiled.text
    deep = launch.dots and launch.stages > SHALLOW
    if compiled.spills > (0 if deep else MOST_SET_ASIDE):
        raise CompileError(f"@{launch.kernel}: {compiled.spills} bytes of registers are spilled")
    if not launch.dots:
        return
    unit = r"wgmma\.mma|mma\.sync|tcgen05\.mma" if target.backend == "cuda" else r"v_s?mfma"
    if not re.search(unit, text):
        raise CompileError(f"@{launch.kernel}: its products do not use the matrix unit")
    if target.backend != "cuda" or not launch.pipeline_bytes:
        return
    if "cp.async" not in text:
        raise CompileError(f"@{launch.kernel}: the loads of its products are not asynchronous")
    if compiled.shared_bytes < launch.pipeline_bytes:
        raise CompileError(f"@{launch.kernel}: no load of its products runs ahead of their use")
