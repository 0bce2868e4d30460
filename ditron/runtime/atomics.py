"""Atomics on int32 words in shared memory, and the loop that hands a rank its next task.

Compiled by LLVM when first asked for (some 30 ms), so that the memory order is right on every
machine: a notify is a release, a poll an acquire. Plain Python stores would be right on x86 only.
All functions take addresses and none can fail; the caller sees to it that the words exist.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

# What `advance` returns besides a lane.
BLOCKED, FINISHED = -1, -2

_WORDS = """
define i32 @load_acquire(ptr %word) {
  %value = load atomic i32, ptr %word acquire, align 4
  ret i32 %value
}

define void @store_release(ptr %word, i32 %value) {
  store atomic i32 %value, ptr %word release, align 4
  ret void
}

; Adds and returns what was there before.
define i32 @fetch_add(ptr %word, i32 %value) {
  %old = atomicrmw add ptr %word, i32 %value acq_rel, align 4
  ret i32 %old
}

; 1 if the word has reached `want`, compared cyclically; polls up to `spins` + 1 times.
define i32 @wait_ge(ptr %word, i32 %want, i32 %spins) {
entry:
  br label %poll
poll:
  %left = phi i32 [ %spins, %entry ], [ %fewer, %again ]
  %seen = load atomic i32, ptr %word acquire, align 4
  %distance = sub i32 %seen, %want
  %reached = icmp sge i32 %distance, 0
  br i1 %reached, label %yes, label %again
again:
  %fewer = sub i32 %left, 1
  %more = icmp sge i32 %fewer, 0
  br i1 %more, label %poll, label %no
yes:
  ret i32 1
no:
  ret i32 0
}
"""

# A rank's tables; the addresses of numpy arrays in this order. Steps are its tasks, lane after
# lane; `wait_start` and `notify_start` have one entry more than there are steps.
TABLES = (
    "running",  # int32: the control word with the lane that runs, or -1
    "heads",  # int32 a lane: how many of its steps are finished
    "lane_start",  # int32 a lane: its first step
    "lane_end",  # int32 a lane: the step after its last
    "wait_start",  # int32 a step: its first wait
    "wait_address",  # int64 a wait
    "wait_want",  # int32 a wait
    "notify_start",  # int32 a step: its first notify
    "notify_address",  # int64 a notify
    "notify_value",  # int32 a notify
    "notify_sets",  # int32 a notify: 1 stores, 0 adds
)


def _fetch(name: str, kind: str, index: str) -> str:
    """Code that reads `%name` from one of the tables at `index`."""
    row = TABLES.index(name.rstrip("0123456789"))
    return f"""
  %{name}.field = getelementptr i64, ptr %tables, i64 {row}
  %{name}.base = load ptr, ptr %{name}.field
  %{name}.at = getelementptr {kind}, ptr %{name}.base, i32 {index}
  %{name} = load {kind}, ptr %{name}.at"""


_ADVANCE = f"""
; Whether all waits of a step are satisfied.
define internal i1 @ready(ptr %tables, i32 %step) {{
entry:
  %after = add i32 %step, 1
  {_fetch("wait_start", "i32", "%step")}
  {_fetch("wait_start1", "i32", "%after")}
  br label %next
next:
  %wait = phi i32 [ %wait_start, %entry ], [ %following, %passed ]
  %some = icmp slt i32 %wait, %wait_start1
  br i1 %some, label %poll, label %yes
poll:
  {_fetch("wait_address", "i64", "%wait")}
  {_fetch("wait_want", "i32", "%wait")}
  %word = inttoptr i64 %wait_address to ptr
  %seen = load atomic i32, ptr %word acquire, align 4
  %distance = sub i32 %seen, %wait_want
  %reached = icmp sge i32 %distance, 0
  br i1 %reached, label %passed, label %no
passed:
  %following = add i32 %wait, 1
  br label %next
yes:
  ret i1 1
no:
  ret i1 0
}}

; Sends all notifies of a step.
define internal void @notify(ptr %tables, i32 %step) {{
entry:
  %after = add i32 %step, 1
  {_fetch("notify_start", "i32", "%step")}
  {_fetch("notify_start1", "i32", "%after")}
  br label %next
next:
  %one = phi i32 [ %notify_start, %entry ], [ %following, %sent ]
  %some = icmp slt i32 %one, %notify_start1
  br i1 %some, label %send, label %done
send:
  {_fetch("notify_address", "i64", "%one")}
  {_fetch("notify_value", "i32", "%one")}
  {_fetch("notify_sets", "i32", "%one")}
  %word = inttoptr i64 %notify_address to ptr
  %stores = icmp ne i32 %notify_sets, 0
  br i1 %stores, label %store, label %add
store:
  store atomic i32 %notify_value, ptr %word release, align 4
  br label %sent
add:
  %old = atomicrmw add ptr %word, i32 %notify_value release, align 4
  br label %sent
sent:
  %following = add i32 %one, 1
  br label %next
done:
  ret void
}}

; Ends the running step of lane `done` (if >= 0), then finds the first lane whose next step is
; ready, looking up to `spins` + 1 times; it counts as running from then on.
define i32 @advance(ptr %tables, i32 %lanes, i32 %done, i32 %spins) {{
entry:
  %ends = icmp sge i32 %done, 0
  br i1 %ends, label %finish, label %look
finish:
  {_fetch("lane_start", "i32", "%done")}
  {_fetch("heads", "i32", "%done")}
  %ended = add i32 %lane_start, %heads
  call void @notify(ptr %tables, i32 %ended)
  %advanced = add i32 %heads, 1
  store atomic i32 %advanced, ptr %heads.at monotonic, align 4
  {_fetch("running", "i32", "0")}
  store atomic i32 -1, ptr %running.at monotonic, align 4
  br label %look
look:
  %left = phi i32 [ %spins, %entry ], [ %spins, %finish ], [ %fewer, %again ]
  br label %next
next:
  %lane = phi i32 [ 0, %look ], [ %following, %skip ]
  %unfinished = phi i1 [ 0, %look ], [ %unfinished1, %skip ]
  %some = icmp slt i32 %lane, %lanes
  br i1 %some, label %try, label %again
try:
  {_fetch("lane_start2", "i32", "%lane")}
  {_fetch("heads2", "i32", "%lane")}
  {_fetch("lane_end", "i32", "%lane")}
  %step = add i32 %lane_start2, %heads2
  %over = icmp sge i32 %step, %lane_end
  br i1 %over, label %skip, label %check
check:
  %ready = call i1 @ready(ptr %tables, i32 %step)
  br i1 %ready, label %found, label %skip
skip:
  %unfinished1 = phi i1 [ %unfinished, %try ], [ 1, %check ]
  %following = add i32 %lane, 1
  br label %next
found:
  {_fetch("running2", "i32", "0")}
  store atomic i32 %lane, ptr %running2.at monotonic, align 4
  ret i32 %lane
again:
  %fewer = sub i32 %left, 1
  %more = icmp sge i32 %fewer, 0
  %spin = and i1 %more, %unfinished
  br i1 %spin, label %look, label %give_up
give_up:
  %result = select i1 %unfinished, i32 {BLOCKED}, i32 {FINISHED}
  ret i32 %result
}}
"""

SOURCE = _WORDS + _ADVANCE


@dataclass(frozen=True)
class Atomics:
    """The compiled functions. Addresses are ints; `tables` is the address of `TABLES`' addresses.

    `advance(tables, lanes, done, spins)` returns a lane, `BLOCKED` or `FINISHED`. A wait it
    passes is an acquire, a notify it sends a release.
    """

    load_acquire: Callable[[int], int]
    store_release: Callable[[int, int], None]
    fetch_add: Callable[[int, int], int]
    wait_ge: Callable[[int, int, int], int]
    advance: Callable[[int, int, int, int], int]


@cache
def atomics() -> Atomics:
    """Compile once a process; a fork inherits the code."""
    llvm: Any = importlib.import_module("llvmlite.binding")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
    module = llvm.parse_assembly(SOURCE)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(2))
    passes.getModulePassManager().run(module, passes)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    _engines.append(engine)

    def function(name: str, arguments: int, result: type[Any] | None = ctypes.c_int32) -> Any:  # noqa: ANN401
        signature = (ctypes.c_void_p, *[ctypes.c_int32] * (arguments - 1))
        return ctypes.PYFUNCTYPE(result, *signature)(engine.get_function_address(name))

    return Atomics(
        load_acquire=function("load_acquire", 1),
        store_release=function("store_release", 2, None),
        fetch_add=function("fetch_add", 2),
        wait_ge=function("wait_ge", 3),
        advance=function("advance", 4),
    )


_engines: list[object] = []  # the code lives as long as its engine
