"""One rank's share of a plan, ready to run: bodies, and the tables that `atomics.advance` walks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ditron.plan.tables import Ints, Longs, Plan
from ditron.runtime.atomics import TABLES
from ditron.runtime.heap import HEADS_WORD, RUNNING_WORD, Heap
from ditron.runtime.lanes import Binder, Body, rank_lanes
from ditron.runtime.words import notify_words, period, wait_words


class Steps:
    """A rank's tasks in launches e with the same (e - 1) mod period, lane after lane.

    `bodies` and `tasks` are by lane, lanes in the order of `rank_lanes`. `address` is that of the
    tables for `atomics.advance`. Their thresholds are those of the launch last entered.
    """

    def __init__(self, plan: Plan, heap: Heap, rank: int, binder: Binder) -> None:
        of_lane = plan.lane_tasks()
        lanes = [of_lane[lane] for lane in rank_lanes(plan, rank)]
        self.tasks: list[list[int]] = [lane.tolist() for lane in lanes]
        self.bodies: list[list[Body | None]] = [
            [binder.body(task) for task in lane] for lane in self.tasks
        ]
        steps = np.concatenate([np.zeros(0, np.int32), *lanes])
        bounds = np.cumsum([0, *map(len, lanes)], dtype=np.int32)
        self._plan, self._heap = plan, heap
        self._period = period(plan)
        self._waits, wait_start = _rows_of(plan.waits.task, steps)
        self._notifies, notify_start = _rows_of(plan.notifies.task, steps)
        self._lag = int(plan.waits.lag[self._waits].max(initial=0))
        self._nothing = np.zeros(1, np.int32)  # an absent wait wants 0 of this word
        control = heap.control(rank)
        self._arrays: dict[str, npt.NDArray[np.int32] | Longs] = {
            "running": control[RUNNING_WORD:],
            "heads": control[HEADS_WORD:],
            "lane_start": bounds[:-1].copy(),
            "lane_end": bounds[1:].copy(),
            "wait_start": wait_start,
            "notify_start": notify_start,
        }
        self._epoch = 0
        self._growth: tuple[Ints, Ints] | None = None
        self._fill(1)

    def enter(self, epoch: int) -> None:
        """Set the thresholds for a launch; once no wait is absent they just grow evenly."""
        if self._growth is not None and epoch == self._epoch + self._period:
            self._arrays["wait_want"] += self._growth[0]
            self._arrays["notify_value"] += self._growth[1]
        else:
            self._fill(epoch)
            want, value = self._arrays["wait_want"], self._arrays["notify_value"]
            self._fill(epoch + self._period)
            later = self._arrays["wait_want"] - want, self._arrays["notify_value"] - value
            self._fill(epoch)
            self._growth = later if epoch > self._lag else None
        self._epoch = epoch

    def _fill(self, epoch: int) -> None:
        heap = self._heap
        waits = wait_words(self._plan, heap.layout, self._waits, epoch)
        notifies = notify_words(self._plan, heap.layout, self._notifies, epoch)
        nothing = self._nothing.ctypes.data
        self._arrays |= {
            "wait_address": np.where(waits.absent, nothing, heap.address + 4 * waits.word),
            "wait_want": np.where(waits.absent, np.int32(0), waits.want),
            "notify_address": heap.address + 4 * notifies.word,
            "notify_value": notifies.value,
            "notify_sets": notifies.sets.astype(np.int32),
        }
        self._tables = np.array([self._arrays[name].ctypes.data for name in TABLES], np.int64)
        self.address = self._tables.ctypes.data


def _rows_of(task: Ints, steps: Ints) -> tuple[Longs, Ints]:
    """The rows (sorted by task) of each step's task, and where each step's begin and end."""
    first = np.searchsorted(task, steps, "left")
    count = np.searchsorted(task, steps, "right") - first
    start = np.concatenate([[0], np.cumsum(count)])
    rows: Longs = np.repeat(first - start[:-1], count) + np.arange(start[-1], dtype=np.int64)
    return rows, start.astype(np.int32)
