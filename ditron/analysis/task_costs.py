"""What each task of a plan costs on a machine by itself, before anything is shared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ditron.analysis.arrays import longs
from ditron.plan.cost import (
    SATURATING_WORKERS,
    US_PER_GB_S,
    dot_us,
    far_link,
    fetch_us,
    is_serial,
    local_copy_us,
    spread_factor,
    stream_us,
)
from ditron.plan.machine import LinkKind, Machine
from ditron.plan.tables import DTYPE_BYTES, LIBRARY, Bools, LaneOrder, Longs, Mode, OpKind, Plan

Floats = npt.NDArray[np.float64]

TRANSFERS = (OpKind.PUT, OpKind.GET, OpKind.COPY)


@dataclass(frozen=True)
class TaskCosts:
    """One row a task.

    Attributes:
        us: of a compute task or a copy within a rank, on its worker, lane or core; 0 for a transfer
            between ranks.
        part: of its rank's memory rate that it takes meanwhile, 0 for products.
        transfer: which tasks move data between ranks.
        payload: bytes that a transfer moves.
        source, target: the ranks whose memory it reads and writes.
    """

    us: Floats
    part: Floats
    transfer: Bools
    payload: Longs
    source: Longs
    target: Longs


def task_costs(plan: Plan, machine: Machine) -> TaskCosts:
    """Price all tasks of a plan."""
    tasks = plan.tasks
    us = np.zeros(len(tasks), np.float64)
    streamed = np.zeros(len(tasks), np.float64)
    transfer = np.zeros(len(tasks), np.bool_)
    payload = np.zeros(len(tasks), np.int64)
    source, target = longs(tasks.rank).copy(), longs(tasks.rank).copy()
    start = np.searchsorted(tasks.op, np.arange(len(plan.ops) + 1))
    first_access = np.searchsorted(plan.accesses.task, np.arange(len(tasks) + 1))
    for number, op in enumerate(plan.ops):
        rows = slice(int(start[number]), int(start[number + 1]))
        if rows.start == rows.stop:
            continue
        if op.kind in TRANSFERS:
            payload[rows] = tasks.bytes[rows] // 2  # read and written
            source[rows] = plan.accesses.rank[first_access[:-1][rows]]
            target[rows] = plan.accesses.rank[first_access[:-1][rows] + 1]
            transfer[rows] = source[rows] != target[rows]
            here = ~transfer[rows]
            us[rows] = np.where(here, local_copy_us(machine, payload[rows].astype(np.float64)), 0.0)
            streamed[rows] = np.where(here, tasks.bytes[rows], 0)
        elif op.kind is OpKind.CALL:
            us[rows] = _call_us(plan, machine, rows, int(first_access[rows.start]))
            streamed[rows] = np.where(tasks.flops[rows] > 0, 0, tasks.bytes[rows])
    if is_serial(machine):
        us[transfer] = local_copy_us(machine, payload[transfer].astype(np.float64))
    else:
        us = us * _crowding(plan, machine) + _remote_us(plan, machine)
    memory = machine.rates.memory_gbytes_s * US_PER_GB_S
    part = np.minimum(streamed / (np.maximum(us, 1e-9) * memory), 1.0)
    return TaskCosts(us, part, transfer, payload, source, target)


def _crowding(plan: Plan, machine: Machine) -> Floats:
    """How much slower compute tasks run where a rank has more lanes for them than workers [T]."""
    lanes = plan.lanes
    computes = np.zeros(len(lanes), np.bool_)
    calls = np.array([op.kind is OpKind.CALL for op in plan.ops], np.bool_)
    computes[plan.tasks.lane[calls[plan.tasks.op]]] = True
    queue = np.array([o is LaneOrder.QUEUE for o in lanes.order], np.bool_)
    many = np.bincount(lanes.rank[computes & ~queue], minlength=plan.ranks)
    slower = np.maximum(many / machine.workers, 1.0)[plan.tasks.rank]
    return np.where(calls[plan.tasks.op], slower, 1.0)


def _call_us(plan: Plan, machine: Machine, rows: slice, access: int) -> Floats:
    flops = plan.tasks.flops[rows].astype(np.float64)
    moved = plan.tasks.bytes[rows].astype(np.float64)
    dtype = plan.buffers[int(plan.accesses.buffer[access])].dtype
    library = plan.ops[int(plan.tasks.op[rows.start])].engine == LIBRARY
    if not flops.any() and library:
        each = stream_us(machine, dtype, moved) / machine.workers
        return each + machine.engines[LIBRARY].start_us
    if not flops.any():
        return np.where(moved > 0, stream_us(machine, dtype, moved), machine.costs.task_us)
    if not is_serial(machine):
        # A GPU multiplies whole blocks, with zeros beyond the end.
        flops, moved = (np.where(flops > 0, most.max(), 0) for most in (flops, moved))
    if library:
        # A call has all workers to itself.
        each = dot_us(machine, dtype, flops, moved) / machine.workers
        return each + machine.engines[LIBRARY].start_us
    tiles = dot_us(machine, dtype, flops, moved) * _slowdown(plan, machine, rows, access)
    return np.maximum(tiles, _fetched_us(plan, machine, rows))


def _fetched_us(plan: Plan, machine: Machine, rows: slice) -> float:
    """The share of one task in what its op has to read from memory, once, on a worker."""
    accesses = plan.accesses
    lo, hi = np.searchsorted(accesses.task, [rows.start, rows.stop])
    boxes = np.maximum(accesses.hi[lo:hi] - accesses.lo[lo:hi], 0).prod(axis=1)
    reads = (accesses.mode[lo:hi] & int(Mode.READ)) != 0
    elements = np.bincount(accesses.buffer[lo:hi][reads], boxes[reads], len(plan.buffers))
    read = 0.0
    for number in np.flatnonzero(elements).tolist():
        buffer = plan.buffers[number]
        read += min(elements[number] / plan.ranks * DTYPE_BYTES[buffer.dtype], buffer.size_bytes)
    tasks = (rows.stop - rows.start) / plan.ranks
    return fetch_us(machine, read) * min(machine.workers, tasks) / tasks


def _slowdown(plan: Plan, machine: Machine, rows: slice, access: int) -> float:
    """What a product loses because its tiles start a few rows at a time (see `Cache`)."""
    accesses, waits = plan.accesses, plan.waits
    lo, hi = np.searchsorted(waits.task, [rows.start, rows.stop])
    slots = np.unique(waits.slot[lo:hi][waits.lag[lo:hi] == 0])
    if is_serial(machine) or not len(slots):
        return 1.0
    first = longs(np.searchsorted(accesses.task, np.arange(int(rows.start), int(rows.stop))))
    starts = np.unique(np.stack([plan.tasks.rank[rows], accesses.lo[first, 0]]), axis=1)
    weight = plan.buffers[int(accesses.buffer[access + 1])]
    return spread_factor(machine, weight.size_bytes, starts.shape[1] / len(slots))


def _remote_us(plan: Plan, machine: Machine) -> Floats:
    """What compute tasks pay for reading or writing peers' memory in place, a link's share each."""
    accesses, tasks = plan.accesses, plan.tasks
    us = np.zeros(len(tasks), np.float64)
    if machine.topology.kind is LinkKind.MEMORY:
        return us
    calls = np.array([op.kind is OpKind.CALL for op in plan.ops], np.bool_)
    rank = tasks.rank[accesses.task]
    there = np.flatnonzero((accesses.rank != rank) & calls[tasks.op[accesses.task]])
    size = np.array([b.size_bytes // max(int(np.prod(b.capacity)), 1) for b in plan.buffers])
    moved = np.prod(np.maximum(accesses.hi[there] - accesses.lo[there], 0), axis=1)
    far = accesses.rank[there] // machine.ranks_a_node != rank[there] // machine.ranks_a_node
    rate = np.where(far, far_link(machine).gbytes_s, machine.topology.gbytes_s)
    of_op = np.bincount(tasks.op, minlength=len(plan.ops))[tasks.op[accesses.task[there]]]
    side_by_side = np.minimum(np.maximum(of_op // plan.ranks, 1), machine.workers)
    share = rate * US_PER_GB_S / np.maximum(side_by_side, SATURATING_WORKERS)
    np.add.at(us, accesses.task[there], moved * size[accesses.buffer[there]] / share)
    return us
