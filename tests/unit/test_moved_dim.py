"""Along which dimension a collective moves."""

from __future__ import annotations

import pytest

import ditron as dt
from ditron.analysis.shards import moved_dim
from ditron.ir import task


@pytest.mark.parametrize(
    ("shape", "dim"),
    [
        ((8, 5), 0),
        ((7, 100), 0),  # 2, 2, 2, 1
        ((5, 100), 1),  # 2, 2, 1 and none
        ((1, 100), 1),
        ((1, 6, 100), 2),
        ((1, 7, 5), 1),
        ((3, 2), 0),  # nothing has a part for each: the longest
        ((0, 4), 1),
        ((0, 0), 0),
    ],
)
def test_an_all_reduce_has_a_part_for_every_rank(shape: tuple[int, ...], dim: int):
    with dt.Program("ar", dt.Mesh(tp=4)) as p:
        p.output("y", dt.all_reduce(p.input("x", shape, dt.f32, dt.Partial())))
    found = [op for op in p.ir.walk() if isinstance(op, task.AllReduceOp)]
    assert [moved_dim(op) for op in found] == [dim]


def test_what_another_axis_cuts_is_left():
    with dt.Program("ar", dt.Mesh(dp=2, tp=2)) as p:
        x = p.input("x", (64, 4), dt.f32, (dt.Shard(0), dt.Partial()))
        p.output("y", dt.all_reduce(x))
    found = [op for op in p.ir.walk() if isinstance(op, task.AllReduceOp)]
    assert [moved_dim(op) for op in found] == [1]
