"""Residency: workers that wait keep their place, so all that may wait at once fit on a device.

Each grid of a rank is one launch with a worker a lane. Launches of transfers run one after another,
and beside them those of everything else; so two launches meet at most. Of a launch that waits
nowhere one worker at a time is enough, since the others follow when it has ended. What a library
computes waits before it is launched, on its stream.

Source: DESIGN.md section 7.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ditron.analysis.arrays import changes, longs
from ditron.analysis.counterexample import Found
from ditron.errors import DeadlockError
from ditron.plan.tables import LIBRARY, OpKind, Plan

HOST = (OpKind.ACQUIRE, OpKind.RELEASE)


@dataclass(frozen=True)
class NotResident(Found):
    """Launches of one rank that may meet: op, workers that wait, all its workers, `file:line`."""

    rank: int
    launches: tuple[tuple[str, int, int, str], ...]
    resident: int

    @property
    def where(self) -> str:
        return max(self.launches, key=lambda launch: launch[1])[3]

    @property
    def text(self) -> str:
        names = " and ".join(
            f"{waiting} of @{op}'s {lanes} lanes" for op, waiting, lanes, _ in self.launches
        )
        return (
            f"{names} wait on rank {self.rank}, where {self.resident} workers are resident at once:"
            f" those that wait keep their places, and what they wait for may never start; use"
            f" fewer lanes"
        )


def check_residency(plan: Plan, resident: int, *, copies: bool = True) -> int:
    """Prove that what waits at once, and what it waits for, fits in `resident` workers a rank.

    `copies`: workers make the transfers, too. Returns the most places that are needed.

    Raises:
        DeadlockError: it does not fit.
    """
    needed = 0
    sides = _needs(plan)[: 1 + copies]
    for rank in range(plan.ranks):
        worst = [max(side.get(rank, [(0, 0, 0, 0)])) for side in sides]
        places = sum(need for need, *_ in worst)
        if places > resident and any(waiting for _, waiting, _, _ in worst):
            launches = tuple(
                (plan.ops[op].name, waiting, lanes, plan.ops[op].location)
                for _, waiting, lanes, op in worst
                if lanes
            )
            found = NotResident((), rank, launches, resident)
            raise DeadlockError(found.text, found.where, found)
        needed = max(needed, places)
    return needed


def check_persistent(plan: Plan, resident: int) -> int:
    """Prove that all lanes of a persistent launch fit; returns how many there are a rank.

    The host's lane has no worker of its own.

    Raises:
        DeadlockError: they do not fit.
    """
    engines = np.array(plan.lanes.engine)
    many = np.bincount(plan.lanes.rank[engines != "host"], minlength=plan.ranks)
    needed = int(many.max(initial=0))
    if needed > resident:
        rank = int(many.argmax())
        launches = ((plan.name, needed, needed, ""),)
        found = NotResident((), rank, launches, resident)
        raise DeadlockError(found.text, found.where, found)
    return needed


Need = tuple[int, int, int, int]  # places, lanes that wait, lanes, op


def _needs(plan: Plan) -> tuple[dict[int, list[Need]], dict[int, list[Need]]]:
    """By rank what each launch needs; transfers apart."""
    op, lane = longs(plan.tasks.op), longs(plan.tasks.lane)
    waits = np.zeros(len(op), np.bool_)
    waits[plan.waits.task] = True
    order = np.lexsort((~waits, lane, op))
    first = order[changes(op[order], lane[order])]  # of each op and lane; one that waits, if any
    key = op[first] * plan.ranks + plan.lanes.rank[lane[first]]
    lanes = np.bincount(key, minlength=len(plan.ops) * plan.ranks)
    waiting = np.bincount(key, waits[first], minlength=len(lanes)).astype(np.int64)
    sides: tuple[dict[int, list[Need]], dict[int, list[Need]]] = ({}, {})
    for row in np.flatnonzero(lanes).tolist():
        number, rank = divmod(row, plan.ranks)
        many, held = int(lanes[row]), int(waiting[row])
        if plan.ops[number].kind not in HOST and plan.ops[number].engine != LIBRARY:
            side = sides[plan.ops[number].engine == "copy"]
            side.setdefault(rank, []).append((held + (many > held), held, many, number))
    return sides
