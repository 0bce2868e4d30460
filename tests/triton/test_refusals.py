"""What has no Triton code is refused when it is compiled, at the user's line."""

from __future__ import annotations

import pytest

import ditron as dt
from ditron.backends.triton.values import RULES
from ditron.errors import PlanError
from ditron.ir import core


def test_refused_at_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """An op without a rule, as a new one would be."""
    monkeypatch.delitem(RULES, core.GeluOp)
    with dt.Program("p", dt.Mesh(tp=1)) as p:
        p.output("y", dt.gelu(p.input("x", (64, 64), dt.f32, dt.Replicate())))
    with pytest.raises(PlanError, match=r"@gelu: Triton has no code for core\.gelu") as caught:
        dt.compile(p, target="sm_90")
    assert "test_refusals.py:" in str(caught.value)
    dt.compile(p).close()
