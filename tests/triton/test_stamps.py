"""Stamps: when each task of a kernel began, its waits over, and ended, before it notified."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from triton_support import cross, example, interpreted, random_inputs, run

import ditron as dt
from ditron.backends.triton.compile import compile_program
from ditron.backends.triton.interpreted import Worker
from ditron.plan.tables import OpKind

SIZES: dict[str, Any] = {"tokens": 50, "hidden": 36, "inner": 44, "tp": 3}
OPTIONS: dict[str, Any] = {"workers": 2, "tile": (16, 32), "stamps": True}


@pytest.mark.parametrize("megakernel", [False, True])
def test_every_task_is_stamped_and_signals_order_them(worker: Worker, megakernel: bool) -> None:
    options = dt.Options(megakernel=megakernel, algorithm="mesh-push", **OPTIONS)
    exe = dt.compile(example("04_mlp", **SIZES), target="sm_90", options=options)
    executor = interpreted(exe, worker)
    executor.launches = 2
    run(exe, random_inputs(exe, 1))
    plan, rank = exe.plan, exe.plan.tasks.rank
    stamps = np.stack([part.numpy() for part in executor.stamps])[rank, np.arange(len(rank))]
    ran = stamps[:, 0] > 0
    signals = np.union1d(plan.waits.task, plan.notifies.task)
    for op in plan.tasks.op[~ran].tolist():
        assert plan.ops[int(op)].kind in (OpKind.ACQUIRE, OpKind.RELEASE)
    assert ran[signals].all()
    assert (stamps[ran, 0] < stamps[ran, 1]).all()
    whole = (plan.waits.lag == 0) & (plan.waits.value == plan.slots.count[plan.waits.slot])
    assert whole.any()
    for task, slot in zip(plan.waits.task[whole], plan.waits.slot[whole], strict=True):
        told = plan.notifies.task[plan.notifies.slot == slot]
        assert stamps[told, 1].max() < stamps[task, 0]


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
@pytest.mark.parametrize("megakernel", [False, True])
def test_stamped_kernels_pass_the_gate(target: str, megakernel: bool) -> None:
    options = dt.Options(megakernel=megakernel, workers=16, stamps=True)
    exe = dt.compile(example("04_mlp", tp=2), target=target, options=options)
    clock = "globaltimer" if target == "sm_90" else "s_memrealtime"
    for kernel in compile_program(cross(exe).program):
        assert clock in kernel.text
