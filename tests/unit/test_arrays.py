import numpy as np
import pytest

from ditron.analysis.arrays import distinct_rows, sorted_by

WIDE = (-(1 << 63), (1 << 63) - 1)


@pytest.mark.parametrize(
    "ranges",
    [
        [(0, 3)],
        [(-2, 5), (0, 1), (7, 9)],
        [(0, 1 << 40), (0, 1 << 30), (0, 4)],
        [WIDE, (0, 3), WIDE],
    ],
)
def test_rows_are_sorted_as_lexsort_does(ranges: list[tuple[int, int]]):
    rng = np.random.default_rng(1)
    some = [rng.integers(lo, hi, 40, endpoint=True) for lo, hi in ranges]
    columns = [np.append(c, c[:20]) for c in some]  # some rows twice
    want = np.stack(columns)[:, np.lexsort(columns[::-1])]
    assert (np.stack(columns)[:, sorted_by(*columns)] == want).all()
    rows, number = distinct_rows(*columns)
    assert (rows == np.unique(np.stack(columns, axis=1), axis=0)).all()
    assert (rows[number] == np.stack(columns, axis=1)).all()


def test_no_rows_are_sorted():
    none = np.zeros(0, np.int64)
    assert len(sorted_by(none, none)) == 0
