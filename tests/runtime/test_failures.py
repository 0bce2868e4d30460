"""What goes wrong in rank processes ends at once, says what it was, and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import Start, alive, gone, pids
from handmade import AgGemm

from ditron.errors import HangError, LaunchError
from ditron.runtime.launch import zygote

HERE = Path(__file__).parent

FAILS = """
def matmul(a, b, y):
    torch.mm(a, b, out=y)
    if 5 in y.shape:
        raise ValueError("no good")
"""
SLEEPS = """
import time
def matmul(a, b, y):
    time.sleep(60)
"""
DIES = """
import os
def matmul(a, b, y):
    os._exit(7)
"""


def test_an_exception_in_a_kernel_names_rank_task_and_line(start: Start) -> None:
    executor = start(AgGemm(ranks=3, m=15), FAILS)
    ranks = pids(executor)
    with pytest.raises(LaunchError) as caught:
        executor.launch()
    text = str(caught.value)
    assert text.startswith("user.py:2: rank ")
    assert "(sm lane 0, task 0): ValueError: no good" in text
    assert 'raise ValueError("no good")' in text
    assert gone(ranks)
    with pytest.raises(LaunchError, match=r"rank . failed in @matmul.*; call reset\(\) first"):
        executor.launch()


def test_after_reset_it_works_again(start: Start) -> None:
    shape = AgGemm(ranks=2)
    executor = start(shape)
    executor.launch()
    expected = executor.read("y", 0)
    (victim, _) = pids(executor)
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(LaunchError, match=r"rank 0 .* died.*: killed by signal 9 \(SIGKILL\)"):
        executor.launch()
    executor.reset()
    executor.launch()
    assert executor.read("y", 0).equal(expected)


def test_an_output_of_the_wrong_shape_is_an_error_not_a_stray_write(start: Start) -> None:
    executor = start(AgGemm(ranks=2), "def matmul(a, b, y):\n    torch.mm(a, b, out=y[:1])\n")
    with pytest.raises(LaunchError, match="An output with one or more elements was resized"):
        executor.launch()


def test_a_kernel_source_that_does_not_compile(start: Start) -> None:
    with pytest.raises(LaunchError, match=r"rank . failed: SyntaxError"):
        start(AgGemm(ranks=2), "def matmul(:\n").launch()


def test_a_rank_killed_while_others_wait_for_it(start: Start) -> None:
    executor = start(AgGemm(ranks=2), SLEEPS)
    ranks = pids(executor)
    threading.Timer(0.3, os.kill, (ranks[1], signal.SIGKILL)).start()
    begin = time.monotonic()
    with pytest.raises(LaunchError, match=r"rank 1 .* died in @matmul\[0\] on rank 1.*SIGKILL"):
        executor.launch()
    assert time.monotonic() - begin < 2
    assert gone(ranks)


def test_a_rank_that_exits(start: Start) -> None:
    with pytest.raises(LaunchError, match=r"rank . .* died in @matmul.*: exited with status 7"):
        start(AgGemm(ranks=2), DIES).launch()


def test_a_wait_that_never_comes_is_reported(start: Start) -> None:
    plan = AgGemm(ranks=2).plan()
    value = plan.waits.value.copy()
    victim = int(np.flatnonzero((plan.waits.lag == 0) & (plan.tasks.rank[plan.waits.task] == 1))[0])
    value[victim] = 2
    plan = replace(plan, waits=replace(plan.waits, value=value))
    executor = start(AgGemm(ranks=2), plan=plan, wait_bound_s=0.4)
    ranks = pids(executor)
    with pytest.raises(HangError) as caught:
        executor.launch()
    assert str(caught.value) == (
        "user.py:2: ag_gemm: no task has finished for 0.4 s\n"
        "@matmul[0] on rank 1 (sm lane 0, task 0) waits for %ready[1] at rank 1:"
        " seen 1, wanted 2, lag 0\n"
        "    all its notifies came: they add up to less than the wait wants"
    )
    assert gone(ranks)


def test_a_stuck_rank_is_named_as_what_others_wait_for(start: Start) -> None:
    plan = AgGemm(ranks=2).plan()
    gather = replace(plan.ops[0], kind=plan.ops[1].kind, kernel="stuck")
    plan = replace(plan, ops=(gather, *plan.ops[1:]))
    kernels = "import time\ndef matmul(a, b, y): pass\n"
    kernels += "def stuck(x, xg):\n    if x[0, 0] == 7: time.sleep(60)\n"
    executor = start(AgGemm(ranks=2), kernels, plan=plan, wait_bound_s=0.4)
    x, _ = AgGemm(ranks=2).data()
    executor.write("x", 1, x[4:].fill_(7))
    begin = time.monotonic()
    with pytest.raises(HangError) as caught:
        executor.launch()
    assert time.monotonic() - begin < 2
    lines = str(caught.value).splitlines()
    assert lines[1:] == [
        "@matmul[1] on rank 0 (sm lane 0, task 1) waits for %ready[1] at rank 0:"
        " seen 0, wanted 1, lag 0",
        "    never came: @gather[1] on rank 1 (copy lane 0, task 1) of launch 1, which adds 1;"
        " its lane is inside @gather[0] (task 0) of launch 1",
        "@gather[0] on rank 1 (copy lane 0, task 0) is running",
    ]


def test_a_stopped_rank_is_a_hang(start: Start) -> None:
    executor = start(AgGemm(ranks=2), wait_bound_s=0.4)
    ranks = pids(executor)
    os.kill(ranks[0], signal.SIGSTOP)
    with pytest.raises(HangError, match="never came"):
        executor.launch()
    assert gone(ranks)


def test_the_zygote_may_die_too(start: Start) -> None:
    executor = start(AgGemm(ranks=2), SLEEPS)
    ranks = pids(executor)
    first = zygote().pid
    threading.Timer(0.3, os.kill, (first, signal.SIGKILL)).start()
    with pytest.raises(LaunchError, match="died"):
        executor.launch()
    assert gone(ranks)
    executor.reset()
    assert len(pids(executor)) == 2
    assert zygote().pid != first


def test_a_stopped_zygote_is_named_and_replaced(start: Start) -> None:
    executor = start(AgGemm(ranks=2))
    executor.launch()
    first = zygote().pid
    os.kill(first, signal.SIGSTOP)
    executor.launch()  # ranks that run need no zygote
    begin = time.monotonic()
    executor.reset()
    with pytest.raises(LaunchError, match=rf"process {first}, .* was stopped \(SIGSTOP\)"):
        executor.launch()
    assert time.monotonic() - begin < 15
    executor.reset()
    executor.launch()
    assert zygote().pid != first


SCRIPT = """
import sys
sys.path[:0] = [{here!r}, {root!r}]
from conftest import pids
from handmade import KERNELS, AgGemm
from ditron.runtime.launch import zygote
from ditron.runtime.posix import CpuExecutor
executor = CpuExecutor(AgGemm(ranks=3, m=9).plan(), {kernels})
print(zygote().pid, *pids(executor), flush=True)
executor.launch()
{then}
"""


def script(kernels: str, then: str = "") -> tuple[subprocess.Popen[str], list[int]]:
    """A user's script without a `__main__` guard; returns it and its processes."""
    source = SCRIPT.format(
        here=str(HERE), root=str(HERE.parent.parent), kernels=kernels, then=textwrap.dedent(then)
    )
    process = subprocess.Popen(
        [sys.executable, "-c", source],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert process.stdout is not None
    return process, [int(pid) for pid in process.stdout.readline().split()]


def test_the_end_of_the_script_ends_all() -> None:
    process, others = script("KERNELS")
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "", "")
    assert gone(others, 1)


@pytest.mark.parametrize("when", ["launching", "between launches"])
def test_a_killed_parent_takes_all_with_it(when: str) -> None:
    launching = when == "launching"
    process, others = script(
        repr(SLEEPS) if launching else "KERNELS", "import time; time.sleep(60)"
    )
    time.sleep(0.2)
    process.kill()
    process.communicate(timeout=20)
    assert len(others) == 4
    assert gone(others, 2)


def test_ctrl_c_ends_a_launch_and_the_executor_can_be_reset() -> None:
    process, others = script(repr(SLEEPS))
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert out == ""
    assert err.strip().endswith("KeyboardInterrupt")
    assert err.count("Traceback") == 1  # the parent's alone
    assert gone(others, 2)


def test_a_fork_of_the_users_process_leaves_the_ranks_alone(start: Start) -> None:
    executor = start(AgGemm(ranks=2))
    ranks = pids(executor)
    child = os.fork()
    if not child:
        executor.close()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert alive(ranks) == ranks
    executor.launch()
