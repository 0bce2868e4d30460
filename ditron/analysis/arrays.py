"""Small numpy idioms that the proofs share."""

from __future__ import annotations

import numpy as np

from ditron.plan.tables import Bools, Longs


def spans(starts: Longs, counts: Longs) -> Longs:
    """Concatenated ranges: `starts[i], starts[i] + 1, ...` for `counts[i]` entries each."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - ends + counts, counts) + np.arange(total)


def distinct(values: Longs) -> Longs:
    """Each value once, sorted; np.unique takes far longer for integers, by hashing."""
    values = np.sort(values)
    return values[changes(values)]


def offsets(key: Longs, size: int) -> Longs:
    """Where each value 0..size of a sorted key starts, with the end appended."""
    return np.searchsorted(key, np.arange(size + 1)).astype(np.int64)


def changes(*keys: Longs) -> Bools:
    """True where any key differs from the row before; the first row is True."""
    first = np.ones(len(keys[0]), np.bool_)
    if len(first):
        first[1:] = np.logical_or.reduce([k[1:] != k[:-1] for k in keys])
    return first


def last_of_run(first: Bools) -> Bools:
    """From the first row of each run, the last row of each run."""
    return np.append(first[1:], True) if len(first) else first


def longs(values: object) -> Longs:
    """As an int64 array."""
    return np.asarray(values, dtype=np.int64)


def record_highs(first: Bools, values: Longs) -> Bools:
    """Which values are greater than all before them in their run; `first` begins a run.

    Values are 0 or more.
    """
    # Each run lifted above those before it, so that one running maximum serves all.
    lifted = values + (np.cumsum(first) - 1) * (int(values.max(initial=0)) + 1)
    highest = np.maximum.accumulate(lifted) if len(lifted) else lifted
    high = np.ones(len(values), np.bool_)
    high[1:] = highest[1:] > highest[:-1]
    return high | first


def sorted_by(*columns: Longs) -> Longs:
    """The order of rows by their columns, the first above all; equal rows in any order.

    As `np.lexsort`, which takes several times as long as to sort one number made of all columns.
    """
    if not len(columns[0]):
        return np.zeros(0, np.int64)
    keys, room = list[Longs](), 0
    for column in columns:
        lowest = int(column.min())
        size = int(column.max()) - lowest + 1
        if size <= room:
            keys[-1], room = keys[-1] * size + (column - lowest), room // size
        else:
            # What spans more than 63 bits stays as it is: a difference would not fit.
            keys = [*keys, column if size >> 63 else column - lowest]
            room = (1 << 62) // size
    return longs(np.argsort(keys[0]) if len(keys) == 1 else np.lexsort(keys[::-1]))


def distinct_rows(*columns: Longs) -> tuple[Longs, Longs]:
    """Distinct rows of some columns, and which of them each row is.

    As `np.unique` of rows, which sorts them as bytes and takes ten times as long.
    """
    order = sorted_by(*columns)
    first = changes(*(c[order] for c in columns))
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(first) - 1
    return np.stack([c[order[first]] for c in columns], axis=1), number
