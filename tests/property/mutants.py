"""Plans with one thing broken: a wait, a notify or a threshold less than `insert-signals` made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import TypeVar

import numpy as np

from ditron.plan.tables import Bools, Notifies, Plan, Slots, Waits

Rows = TypeVar("Rows", Waits, Notifies)


@dataclass(frozen=True)
class Mutant:
    """A broken plan, and what is broken."""

    what: str
    plan: Plan


def mutants(plan: Plan) -> Iterator[Mutant]:
    """One mutant for each wait, notify and threshold of a plan."""
    for row in range(len(plan.waits)):
        task, slot = int(plan.waits.task[row]), int(plan.waits.slot[row])
        wait = f"the wait of {plan.describe_task(task)} for {plan.describe_slot(slot)}"
        yield Mutant(f"without {wait}", replace(plan, waits=_without(plan.waits, row)))
        if plan.waits.value[row] > 1:
            yield Mutant(f"{wait} for one less", _lowered(plan, row))
        lag = plan.waits.lag.copy()
        lag[row] += 1
        yield Mutant(f"{wait} one launch late", replace(plan, waits=replace(plan.waits, lag=lag)))
    for row in range(len(plan.notifies)):
        task, slot = int(plan.notifies.task[row]), int(plan.notifies.slot[row])
        notify = f"the notify of {plan.describe_slot(slot)} by {plan.describe_task(task)}"
        yield Mutant(f"without {notify}", replace(plan, notifies=_without(plan.notifies, row)))
        yield Mutant(f"without {notify}, not counted either", _uncounted(plan, row))


def _without(rows: Rows, row: int) -> Rows:
    return replace(rows, **{f.name: np.delete(getattr(rows, f.name), row) for f in fields(rows)})


def _lowered(plan: Plan, row: int) -> Plan:
    value = plan.waits.value.copy()
    value[row] -= 1
    return replace(plan, waits=replace(plan.waits, value=value))


def _uncounted(plan: Plan, row: int) -> Plan:
    """As if `insert-signals` had forgotten one who notifies: slot and waits count without it."""
    slot, amount = plan.notifies.slot[row], plan.notifies.amount[row]
    count = plan.slots.count.copy()
    count[slot] -= amount
    slots: Slots = replace(plan.slots, count=count)
    value = plan.waits.value.copy()
    value[plan.waits.slot == slot] -= amount
    waits = replace(plan.waits, value=value)
    gone: Bools = (waits.slot == slot) & (value < 1)
    waits = replace(waits, **{f.name: getattr(waits, f.name)[~gone] for f in fields(waits)})
    return replace(plan, slots=slots, waits=waits, notifies=_without(plan.notifies, row))
