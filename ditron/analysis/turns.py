"""Turns: bytes of the heap that go from one buffer to another, and who has to wait for whom there.

All accesses of one buffer come before those of the next, in program order, in each cell of bytes
between the first and the last of their boxes. Most often the order of data says so by itself, and
the sweep of the race proof sees that for whole buffers at once; only where it does not are cells
and tasks looked at one by one.
"""

from __future__ import annotations

import numpy as np

from ditron.analysis.arrays import distinct_rows
from ditron.analysis.cell_grid import Where
from ditron.analysis.happens_before import HappensBefore
from ditron.analysis.pairing import Groups, Pairing
from ditron.analysis.sweep import sweep, unordered_pairs
from ditron.analysis.touches import find_touches


def add_turns(pairing: Pairing, order: HappensBefore) -> Pairing:
    """The edges of a pairing, and those that the turns of a plan lack under an order."""
    columns, plan = order.columns, order.plan
    place = np.arange(len(plan.tasks))  # rows stand in program order
    heap = Where.all_bytes(plan)
    whole = find_touches(columns, place, grouped=True, coarse=True, whole=True, within=heap)
    missing = whole.where(sweep(order, place, whole).unordered)
    fine = find_touches(columns, place, grouped=False, coarse=False, within=missing)
    none = (np.zeros(0, np.int64),) * 3
    found = zip(none, *unordered_pairs(order, fine), strict=True)
    before, after, lag = distinct_rows(*map(np.concatenate, found))[0].T
    ends = np.append(before, after)
    groups = pairing.groups + Groups.of_single(plan, ends)
    number = len(pairing.groups) + np.arange(len(ends))
    before, after = np.split(number, 2)
    over = np.zeros(len(lag), np.bool_)
    pairing = Pairing(groups, pairing.before, pairing.after, pairing.lag, pairing.data)
    return pairing + Pairing(groups, before, after, lag, over)
