"""A module as one persistent Triton kernel a rank.

    device.grid @up engine sm in (%n = 96) { ... }
    device.grid @down engine sm in (%n = 32) { ... }

becomes a function a task kind (`kinds.py`), a queue with a record a grid, and

    @triton.jit
    def megakernel(queue, tables, bases, control, me):
        done = tl.load(control + EPOCH)
        for at in range(0, 2):
            record = queue + at * 32
            lane = tl.program_id(0) - tl.load(record + 1)
            if (lane >= 0) & (lane < tl.load(record + 2)):
                kind = tl.load(record)
                if kind == 0:
                    up(lane, ..., place(record + 4, tl.bfloat16), ..., SITE=0)
                elif kind == 1:
                    down(...)
                tl.debug_barrier()
        retire(control, 132)

A program is a lane of the plan. It walks the queue, which is in program order, and runs its run of
each grid's tasks (first, stride and count follow from its number), so that whatever the plan proves
of lanes holds. What a lane does once for a grid, wait before its first task and tell after its
last, stands before and behind the loop over its tasks. The host's lane has no program of its own:
its tasks are first and last on program 0. Between two grids stands a barrier, since what a lane
hands on to itself has no signal. The last program to end begins the next epoch, so a launch is all
that a step takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from ditron.analysis.grid_values import evaluate_program
from ditron.analysis.symbols import device_program, kernels
from ditron.backends.megakernel.kinds import GIVEN, LINE_BYTES, Kind, kind_of, record_fields
from ditron.backends.triton.emit import check_plan, imports
from ditron.backends.triton.factors import with_factors_after
from ditron.backends.triton.facts import local_signals
from ditron.backends.triton.names import RESERVED, Names
from ditron.backends.triton.parameters import POINTERS, TYPES
from ditron.backends.triton.signals import Module
from ditron.backends.triton.targets import Target
from ditron.errors import PlanError
from ditron.ir import device
from ditron.plan.launches import persistent_launches
from ditron.plan.tables import Ints, OpKind, Plan
from ditron.runtime.gpu_layout import GpuLayout
from ditron.runtime.gpu_program import Argument, Launch, TritonProgram, What

# What every record begins with: kind, first program, lanes, the op's first task.
HEAD_WORDS = 4
# Records are as long as some lines of memory.
LINE_WORDS = 32
NAME = "megakernel"
NO_OP = -1
# Places of a cache at once: with 128 attention takes more registers than a thread has.
ATTENDED = 64
HOST = (OpKind.ACQUIRE, OpKind.RELEASE)

ARGUMENTS = (
    Argument("queue", What.TABLE, "queue", "*i32"),
    Argument("tables", What.TABLE, "tables", "*i32"),
    Argument("bases", What.MEMORY_AT, "", "*i64"),
    Argument("stamps", What.STAMPS, "", "*i64"),
    Argument("control", What.CONTROL, "", "*i32"),
    Argument("me", What.RANK, "", "i32"),
)


@dataclass(frozen=True)
class _Task:
    """A grid of the queue: its row in the plan, its kind's number, its own code."""

    op: int
    kind: int
    own: Kind


def emit_megakernel(
    module: ModuleOp, plan: Plan, target: Target, *, stamps: bool = False
) -> TritonProgram:
    """Source, queue and launch of a module whose plan is `plan`.

    Raises:
        PlanError: something that Triton code cannot do yet.
    """
    check_plan(plan)
    check_order(plan)
    program = device_program(module)
    shared = Module(
        program=program,
        funcs=with_factors_after(kernels(module)),
        plan=plan,
        target=replace(target, descriptors=False, attended=ATTENDED),
        outer=evaluate_program(program),
        local=local_signals(plan),
        tables={},
        sites=[],
        functions=Names(RESERVED | {NAME}),
        stamps=stamps,
    )
    grids = [op for op in program.body.block.ops if isinstance(op, device.GridOp)]
    kinds: dict[tuple[str, ...], tuple[int, Kind]] = {}
    tasks: list[_Task] = []
    for op, grid in enumerate(grids):
        if _is_idle(plan, op):
            continue
        own = kind_of(shared, grid, op)
        number, _ = kinds.setdefault(own.key, (len(kinds), own))
        tasks.append(_Task(op, number, own))
    made = [kind for _, kind in kinds.values()]
    sites = [replace(s, op=NO_OP, signals="") for kind in made for s in kind.sites]
    starts = np.cumsum([0, *(len(kind.sites) for kind in made)]).tolist()
    launch = _launch(plan, made, starts)
    tables, places = _joined(shared.tables)
    words = _record_words(made)
    queue = _queue(plan, tasks, places, words)
    texts = [*(kind.text for kind in made), _dispatch(made, starts, queue, launch.programs)]
    return TritonProgram(
        source="\n\n".join([imports(plan, target, texts), *texts]),
        launches=(launch,),
        host=persistent_launches(plan, launch.programs),
        tables={"queue": queue, "tables": tables},
        sites=tuple(sites),
        target=target.name,
        persistent=True,
        stamps=stamps,
    )


def check_order(plan: Plan) -> None:
    """Refuse lanes that do not run their tasks in program order, which is the queue's."""
    order = np.lexsort((plan.tasks.seq, plan.tasks.lane))
    op, lane = plan.tasks.op[order], plan.tasks.lane[order]
    back = (np.diff(op) < 0) & (np.diff(lane) == 0)
    if back.any():
        task = plan.describe_task(int(order[int(np.flatnonzero(back)[0]) + 1]))
        raise PlanError(f"{task} comes after a task of a later grid: a queue cannot say that")


def _is_idle(plan: Plan, op: int) -> bool:
    """Whether a grid does nothing, or hands over what nobody else asks for."""
    tasks = np.flatnonzero(plan.tasks.op == op)
    if not len(tasks):
        return True
    signals = np.isin(plan.waits.task, tasks).any() or np.isin(plan.notifies.task, tasks).any()
    return plan.ops[op].kind in HOST and not signals


def _programs(plan: Plan) -> dict[str, int]:
    """The first program of each engine's lanes; then how many there are. The host's lane is 0."""
    starts: dict[str, int] = {"host": 0}
    end = 0
    for engine in dict.fromkeys(plan.lanes.engine):
        if engine != "host":
            starts[engine] = end
            mine = [
                i for e, i in zip(plan.lanes.engine, plan.lanes.index, strict=True) if e == engine
            ]
            end += int(max(mine)) + 1
    return {**starts, "": max(end, 1)}


def _launch(plan: Plan, kinds: Sequence[Kind], starts: Sequence[int]) -> Launch:
    each = [kind.launch for kind in kinds]
    pairs = list(zip(each, starts, strict=False))
    return Launch(
        kernel=NAME,
        op=NO_OP,
        copies=False,
        programs=_programs(plan)[""],
        warps=max([launch.warps for launch in each if launch.dots], default=4),
        stages=1,
        arguments=ARGUMENTS,
        waits=tuple(at + w for launch, at in pairs for w in launch.waits),
        notifies=tuple(at + n for launch, at in pairs for n in launch.notifies),
        always=tuple(at + w for launch, at in pairs for w in launch.always),
        dots=sum(launch.dots for launch in each),
        pipeline_bytes=max([launch.pipeline_bytes for launch in each], default=0),
        cooperative=True,
        enters=tuple(at for launch, at in pairs for _ in launch.always),
    )


def _joined(tables: dict[str, Ints]) -> tuple[Ints, dict[str, int]]:
    """All tables in one, and where each begins; equal ones are there once."""
    known: dict[bytes, int] = {}
    parts: list[Ints] = []
    places: dict[str, int] = {}
    end = 0
    for name, table in tables.items():
        flat = np.ascontiguousarray(table, np.int32).reshape(-1)
        if flat.tobytes() not in known:
            known[flat.tobytes()] = end
            parts.append(flat)
            end += len(flat)
        places[name] = known[flat.tobytes()]
    return np.concatenate([*parts, np.zeros(1, np.int32)]), places


def _record_words(kinds: Sequence[Kind]) -> int:
    """How long the records are: all as the longest."""
    most = HEAD_WORDS + max([len(record_fields(kind.launch)) for kind in kinds], default=0)
    return -(-most // LINE_WORDS) * LINE_WORDS


def _queue(plan: Plan, tasks: Sequence[_Task], places: dict[str, int], words: int) -> Ints:
    layout, programs = GpuLayout.of(plan), _programs(plan)
    rows: list[list[int]] = []
    for task in tasks:
        fields = [_field(a, layout, places) for a in record_fields(task.own.launch)]
        first = int(np.searchsorted(plan.tasks.op, task.op))
        at = programs[plan.ops[task.op].engine] + task.own.first
        head = [task.kind, at, task.own.launch.programs, first]
        rows.append([*head, *fields, *[0] * (words - HEAD_WORDS - len(fields))])
    return np.array(rows, np.int32).reshape(len(rows), words)


def _field(argument: Argument, layout: GpuLayout, places: dict[str, int]) -> int:
    match argument.what:
        case What.TABLE:
            return places[argument.of]
        case What.BUFFER | What.BUFFER_AT:
            place = layout.buffers[argument.of]
        case What.SIGNALS | What.SIGNALS_AT:
            place = layout.signals[argument.of]
        case _:
            raise PlanError(f"a record cannot hold a {argument.what}")
    if place % LINE_BYTES:
        raise PlanError(f"{argument.of} lies at byte {place}, which is no multiple of {LINE_BYTES}")
    return place // LINE_BYTES


def _dispatch(kinds: Sequence[Kind], starts: Sequence[int], queue: Ints, programs: int) -> str:
    records, words = queue.shape
    names = ", ".join(a.name for a in ARGUMENTS)
    lines = [
        '@triton.jit(do_not_specialize=["me"])',
        f"def {NAME}({names}):",
        f'    """{records} grids of {len(kinds)} kinds."""',
        "    done = tl.load(control + EPOCH)  # launches before this one",
        "    age = tl.load(control + AGE)  # the same, never wrapping",
        "    base = tl.load(bases + me)",
        f"    for at in range(0, {records}):",
        f"        record = queue + at * {words}",
        "        lane = tl.program_id(0) - tl.load(record + 1)",
        "        if (lane >= 0) & (lane < tl.load(record + 2)):",
        "            kind = tl.load(record)",
        "            first = tl.load(record + 3)",
    ]
    for number, kind in enumerate(kinds):
        lines.append(f"            {'elif' if number else 'if'} kind == {number}:")
        own = [_argument(a, i + HEAD_WORDS) for i, a in enumerate(record_fields(kind.launch))]
        lines.append(f"                {kind.launch.kernel}(")
        lines += [f"                    {text}," for text in (", ".join(GIVEN), *own)]
        lines += [f"                    SITE={starts[number]},", "                )"]
    lines += ["            tl.debug_barrier()", f"    retire(control, {programs})"]
    return "\n".join(lines) + "\n"


def _argument(argument: Argument, word: int) -> str:
    loaded = f"tl.load(record + {word})"
    match argument.what:
        case What.TABLE:
            return f"tables + {loaded}"
        case What.BUFFER_AT | What.SIGNALS_AT:
            return f"{loaded}.to(tl.int64)"
        case _:
            dtype = next(TYPES[name] for name, of in POINTERS.items() if argument.type == f"*{of}")
            place = f"(base + {loaded}.to(tl.int64) * {LINE_BYTES})"
            return f"tl.multiple_of({place}.to(tl.pointer_type({dtype})), 16)"
