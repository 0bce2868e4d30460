"""What has no Triton code is refused when it is compiled, at the user's line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import ditron as dt
from ditron.errors import PlanError

R = dt.Replicate()


def reshaped(p: dt.Program) -> None:
    p.output("y", dt.reshape(p.input("x", (8, 12), dt.f32, R), (8, 3, 4)))


def looked_up(p: dt.Program) -> None:
    ids, table = p.input("ids", (8,), dt.i32, R), p.input("table", (16, 4), dt.f32, R)
    p.output("y", dt.embedding(ids, table))


def attended(p: dt.Program) -> None:
    q, k, v = (p.input(n, (1, 4, 2, 8), dt.f32, R) for n in "qkv")
    p.output("y", dt.attention(q, k, v))


def stacked(p: dt.Program) -> None:
    a, b = (p.input(n, (2, 16, 16), dt.f32, R) for n in "ab")
    p.output("y", dt.matmul(a, b))


CASES: dict[Callable[[dt.Program], None], str] = {
    reshaped: "@reshape: a copy between boxes of two shapes",
    looked_up: "@embedding: Triton has no code for core.index",
    attended: "@attention: Triton has no code for core.transpose",
    stacked: "@matmul: Triton has no code for products of stacks of matrices",
}


@pytest.mark.parametrize("body", CASES, ids=lambda body: body.__name__)
def test_refused_at_the_line(body: Callable[[dt.Program], None]):
    with dt.Program("p", dt.Mesh(tp=1)) as p:
        body(p)
    with pytest.raises(PlanError, match=CASES[body]) as caught:
        dt.compile(p, target="sm_90")
    assert "test_refusals.py:" in str(caught.value)
    dt.compile(p).close()
