"""What a lane hands on from task to task with no signal between is seen, and refused on GPUs."""

from __future__ import annotations

from typing import Any

import pytest

import ditron as dt
from ditron.analysis.lane_barriers import find_without_barrier
from ditron.errors import PlanError
from tests.property.mutant_table import compiled, programs

BOX = (0, 0), (1, 16)


@dt.kernel
def add(k: Any, a: Any, b: Any, y: Any):
    k.store(y, k.load(a) + k.load(b))


@dt.kernel
def keep(k: Any, a: Any, y: Any):
    k.store(y, k.load(a))


def running_sum(*, signalled: bool, lanes: int = 1) -> dt.DeviceProgram:
    """Rows added to one result, one after another."""
    with dt.DeviceProgram("running_sum", dt.Mesh(tp=1)) as d:
        x = d.input("x", (4, 16), dt.f32, dt.Replicate())
        y = d.output("y", (1, 16), dt.f32, dt.Replicate())
        done = d.signals("done", 1)
        with d.grid("first", engine="sm") as g:
            g.call(keep, g.view(x, *BOX), g.view(y, *BOX))
            g.notify(done, 0)
        with d.grid("add", engine="sm", i=3) as g:
            if signalled:
                g.wait(done, 0, ge=g["i"] + 1)
                g.notify(done, 0)
            row = g.view(x, (g["i"] + 1, 0), BOX[1])
            g.call(add, g.view(y, *BOX), row, g.view(y, *BOX))
    return d


def test_a_running_sum_without_signals():
    with dt.compile(running_sum(signalled=False)) as exe:
        plan = exe.plan
        found = find_without_barrier(plan)
    assert found is not None
    assert [plan.describe_task(t).partition(" ")[0] for t in found] == ["@add[0]", "@add[1]"]
    with pytest.raises(PlanError, match=r"@add\[1\] on rank 0 .* uses what @add\[0\]"):
        dt.compile(running_sum(signalled=False), target="sm_90")


def test_with_signals_it_has_barriers():
    with dt.compile(running_sum(signalled=True)) as exe:
        assert find_without_barrier(exe.plan) is None


@pytest.mark.parametrize("ranks", [2])
def test_generated_programs_have_none(ranks: int):
    for name, program, options in programs(ranks):
        executable = compiled(program, options)
        if executable is not None:
            with executable:
                assert find_without_barrier(executable.plan) is None, name
