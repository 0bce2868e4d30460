"""Many tasks before many others, at once: each of one set before each of another.

What all of the second set know is the lowest of their clocks, column by column; each task of the
first set is looked up in that. So a set pair costs the sum of its sizes and not their product. It
is enough but not needed that the lowest clock says so (a task may stand before another on its own
lane, or be fenced later): pairs that fail are to be asked one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ditron.analysis.arrays import longs, spans
from ditron.analysis.clocks import Asked
from ditron.analysis.happens_before import HappensBefore
from ditron.plan.tables import Bools, Longs

# Set pairs with more pairs of tasks than this in all are worth it,
MANY = 1 << 18
# and those of them with so many times more pairs than tasks.
TIMES = 4


@dataclass(frozen=True)
class SetPairs:
    """Pair i: `before[before_start[i] : before_start[i] + m[i]]` against the same of `after`.

    `gap` [i] is how many launches the second set is later; m, n [i] are the sizes.
    """

    before: Longs
    before_start: Longs
    m: Longs
    after: Longs
    after_start: Longs
    n: Longs
    gap: Longs

    def big(self) -> Longs:
        """The pairs that are better asked whole."""
        product = self.m * self.n
        big = product > TIMES * (self.m + self.n)
        return np.flatnonzero(big) if int(product[big].sum()) > MANY else np.zeros(0, np.int64)


def ordered_whole(order: HappensBefore, pairs: SetPairs, which: Longs, *, begun: bool) -> Bools:
    """Which of some set pairs are sure to be ordered: ends (or begins) before begins."""
    m, n = pairs.m[which], pairs.n[which]
    after = pairs.after[spans(pairs.after_start[which], n)]
    start = np.append(0, np.cumsum(n))
    rows = order.rows(after, np.repeat(pairs.gap[which], n))
    before = pairs.before[spans(pairs.before_start[which], m)]
    column, value = order.progress(before, begun=begun)
    at = np.repeat(np.arange(len(which)), m)
    sure = order.all_at_least(rows, start, Asked(longs(at), column, value))
    result = np.ones(len(which), np.bool_)
    result[at[~sure]] = False
    return result
