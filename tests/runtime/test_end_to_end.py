"""Programs on real rank processes: compile, bind, run, measure, trace, reset, close."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import alive, gone

import ditron as dt
from ditron.errors import InputError, LaunchError, OptionError
from ditron.executable import Executable
from ditron.ir import task
from ditron.runtime.posix import CpuExecutor
from ditron.tools.check import bit_equal, check_outputs
from tests.property.programs import Case
from tests.property.running import check_launch, check_layout

Tensors = dict[str, torch.Tensor]
Make = Callable[[int, dt.DType], dt.Program]

S0, S1, R = dt.Shard(0), dt.Shard(1), dt.Replicate()


def ag_gemm(tp: int, dtype: dt.DType, m: int = 37) -> dt.Program:
    with dt.Program("ag_gemm", dt.Mesh(tp=tp)) as p:
        x = p.input("x", (m, 24), dtype, S0)
        w = p.weight("w", (24, 19), dtype, S1)
        p.output("y", dt.matmul(dt.all_gather(x, dim=0), w))
    return p


def gemm_rs(tp: int, dtype: dt.DType) -> dt.Program:
    with dt.Program("gemm_rs", dt.Mesh(tp=tp)) as p:
        x = p.input("x", (30, 21), dtype, S1)
        w = p.weight("w", (18, 21), dtype, S1)
        p.output("y", dt.reduce_scatter(dt.matmul(x, w, transpose_b=True), dim=0))
    return p


def gemm_ar(tp: int, dtype: dt.DType) -> dt.Program:
    with dt.Program("gemm_ar", dt.Mesh(tp=tp)) as p:
        x = p.input("x", (5, 21), dtype, S1)
        w = p.weight("w", (21, 18), dtype, S0)
        p.output("y", dt.all_reduce(dt.matmul(x, w)))
    return p


def mlp(tp: int, dtype: dt.DType) -> dt.Program:
    with dt.Program("mlp", dt.Mesh(tp=tp)) as p:
        x = p.input("x", (33, 16), dtype, S0)
        gate = p.weight("gate", (16, 22), dtype, S1)
        up = p.weight("up", (16, 22), dtype, S1)
        down = p.weight("down", (22, 16), dtype, S0)
        rows = dt.all_gather(x, dim=0)
        h = dt.silu(dt.matmul(rows, gate)) * dt.matmul(rows, up)
        p.output("y", x + dt.reduce_scatter(dt.matmul(h, down), dim=0))
        p.output("h", h)
    return p


PROGRAMS = (ag_gemm, gemm_rs, gemm_ar, mlp)


def split(case: Case, launch: int) -> tuple[Tensors, Tensors]:
    """The inputs and the weights of a launch."""
    tensors = case.tensors(launch)
    weights = {op.tensor_name.data for op in case.task.inputs if op.name == "task.weight"}
    return (
        {name: t for name, t in tensors.items() if name not in weights},
        {name: t for name, t in tensors.items() if name in weights},
    )


def open_case(case: Case) -> Executable:
    """Compiled, with weights in place."""
    executable = dt.compile(case.program, target="cpu", options=case.options)
    executable.bind(split(case, 1)[1])
    return executable


def locals_of(case: Case, executable: Executable) -> dict[str, list[torch.Tensor]]:
    """What every rank holds of every output."""
    names = [op.tensor_name.data for op in case.task.outputs]
    return {n: [executable.local(n, r) for r in range(executable.plan.ranks)] for n in names}


def rank_pids(executable: Executable) -> list[int]:
    """The process ids of an executable's ranks."""
    executor = executable._executor
    assert isinstance(executor, CpuExecutor)
    executor.start()
    assert executor.pool is not None
    return list(executor.pool.processes.pids)


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("dtype", [dt.f32, dt.bf16], ids=str)
@pytest.mark.parametrize("tp", [1, 3, 4])
def test_agrees_with_torch_launch_after_launch(make: Make, tp: int, dtype: dt.DType) -> None:
    case = Case(make(tp, dtype), dt.Options(tile=(8, 8), chunk_bytes=128), exact=False)
    with open_case(case) as executable:
        for launch in (1, 2, 3):
            inputs, weights = split(case, launch)
            out = executable.run(inputs)
            check_launch(case, inputs | weights, locals_of(case, executable))
            agreements = check_outputs(case.task, inputs | weights, out, executable.local)
            assert all(a.agrees for a in agreements), agreements


def test_two_hundred_launches_give_identical_bits() -> None:
    case = Case(mlp(4, dt.bf16), dt.Options(tile=(8, 8), chunk_bytes=64), exact=False)
    with open_case(case) as executable:
        inputs, _ = split(case, 1)
        first = executable.run(inputs)
        for _ in range(200):
            again = executable.run(inputs)
            assert all(bit_equal(again[name], first[name]) for name in first)


def test_two_executables_take_turns() -> None:
    one, two = (Case(make(3, dt.f32), dt.Options(), exact=True) for make in (ag_gemm, gemm_rs))
    with open_case(one) as a, open_case(two) as b:
        assert not set(rank_pids(a)) & set(rank_pids(b))
        for launch in range(1, 6):
            for case, executable in ((one, a), (two, b)):
                inputs, weights = split(case, launch)
                executable.run(inputs)
                check_launch(case, inputs | weights, locals_of(case, executable))
        a.close()
        inputs, weights = split(two, 9)
        b.run(inputs)
        check_launch(two, inputs | weights, locals_of(two, b))


def test_results_are_copies() -> None:
    case = Case(ag_gemm(2, dt.f32), dt.Options(), exact=True)
    with open_case(case) as executable:
        one = executable.run(split(case, 1)[0])["y"]
        kept = one.clone()
        other = executable.run(split(case, 2)[0])["y"]
        assert bit_equal(one, kept)
        assert not one.equal(other)
        one.fill_(1000)
        assert not executable.local("y", 0).eq(1000).any()


def test_shards_are_those_of_torch_chunk() -> None:
    program = ag_gemm(4, dt.f32, m=5)
    case = Case(program, dt.Options(), exact=True)
    with open_case(case) as executable:
        inputs, weights = split(case, 1)
        y = executable.run(inputs)["y"]
        parts = locals_of(case, executable)["y"]
        check_layout(task.spec_of(next(iter(case.task.outputs)).operand), parts)
        chunks = (inputs["x"] @ weights["w"]).chunk(4, dim=1)
        assert all(part.equal(chunk) for part, chunk in zip(parts, chunks, strict=True))
        assert y.equal(torch.cat(chunks, 1))


def test_a_partial_output_comes_back_summed() -> None:
    with dt.Program("partial", dt.Mesh(tp=3)) as program:
        x = program.input("x", (6, 7), dt.bf16, S1)
        program.output("y", dt.matmul(x, program.weight("w", (7, 4), dt.bf16, S0)))
    case = Case(program, dt.Options(), exact=True)
    with open_case(case) as executable:
        inputs, weights = split(case, 1)
        out = executable.run(inputs)["y"]
        assert bit_equal(out + 0, (inputs["x"].float() @ weights["w"].float()).bfloat16() + 0)
        parts = locals_of(case, executable)["y"]
        assert out.equal(torch.stack(parts).float().sum(0).bfloat16())
        assert not parts[0].equal(out)


def test_outputs_keep_their_names_in_any_order() -> None:
    with dt.Program("order", dt.Mesh(tp=2)) as program:
        x = program.input("x", (4, 3), dt.f32, S0)
        first, second = dt.relu(x), dt.exp(x)
        program.output("late", second)
        program.output("given", x)
        program.output("early", first)
    x = torch.randn(4, 3)
    with dt.compile(program) as executable:
        out = executable.run({"x": x})
    assert list(out) == ["late", "given", "early"]
    assert out["given"].equal(x)
    assert out["early"].equal(torch.relu(x))
    torch.testing.assert_close(out["late"], torch.exp(x))


def test_a_name_of_an_op_may_be_that_of_an_output() -> None:
    with dt.Program("names", dt.Mesh(tp=2)) as program:
        x = program.input("x", (4, 3), dt.f32, S0)
        h = dt.relu(x, name="y")
        program.output("y.1", dt.exp(h, name="rank"))
        program.output("y", dt.all_gather(h, dim=0, name="x"))
    x = torch.randn(4, 3)
    with dt.compile(program, options=dt.Options(fusion=False)) as executable:
        out = executable.run({"x": x})
    assert out["y"].equal(torch.relu(x))
    torch.testing.assert_close(out["y.1"], torch.exp(torch.relu(x)))


def test_elements_that_are_no_numbers_come_through() -> None:
    case = Case(ag_gemm(3, dt.bf16), dt.Options(), exact=True)
    inputs, weights = split(case, 1)
    inputs["x"][3, 4], inputs["x"][30, 0], weights["w"][0, 0] = torch.nan, torch.inf, 0
    with dt.compile(case.program) as executable:
        executable.bind(weights)
        out = executable.run(inputs)["y"]
    theirs = case.program.reference(inputs | weights)["y"]
    assert torch.equal(out.isnan(), theirs.isnan())
    assert out.nan_to_num(1.0, 2.0, 3.0).equal(theirs.nan_to_num(1.0, 2.0, 3.0))


def test_inputs_of_any_layout() -> None:
    case = Case(ag_gemm(3, dt.f32), dt.Options(), exact=True)
    inputs, weights = split(case, 1)
    expected = inputs["x"] @ weights["w"]
    turned = inputs["x"].t().contiguous().t()
    views = [turned, torch.stack([turned] * 2, -1)[..., 1], turned.clone().requires_grad_()]
    with open_case(case) as executable:
        for view in views:
            out = executable.run({"x": view})["y"]
            assert out.equal(expected)
            assert not out.requires_grad


def test_weights_may_be_bound_one_by_one_and_again() -> None:
    case = Case(mlp(2, dt.f32), dt.Options(), exact=True)
    inputs, weights = split(case, 1)
    _, others = split(replace(case, seed=1), 1)
    with dt.compile(case.program) as executable:
        executable.bind({"gate": weights["gate"]})
        with pytest.raises(InputError, match="bind down, up first"):
            executable.run(inputs)
        with pytest.raises(InputError, match="bind down, up first"):
            executable.measure(inputs)
        with pytest.raises(InputError, match="bind down, up first"):
            executable.trace("/nowhere/trace.json")
        executable.bind({"down": weights["down"], "up": weights["up"]})
        executable.run(inputs)
        executable.bind({"up": others["up"]})
        out = executable.run(inputs)
        now = weights | {"up": others["up"]}
        theirs = case.program.reference(inputs | now)
    torch.testing.assert_close(out["y"], theirs["y"])


def test_measure_and_trace_leave_results_in_place(tmp_path: Path) -> None:
    case = Case(gemm_ar(3, dt.f32), dt.Options(), exact=True)
    with open_case(case) as executable:
        inputs, weights = split(case, 1)
        seconds = executable.measure(inputs, repeats=7)
        assert len(seconds) == 7
        assert all(0 < s < 5 for s in seconds)
        check_launch(case, inputs | weights, locals_of(case, executable))
        executable.trace(tmp_path / "trace.json")
        executable.trace(str(tmp_path / "again.json"))
        check_launch(case, inputs | weights, locals_of(case, executable))
        events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        tasks = sorted(e["args"]["task"] for e in events if e["ph"] == "X")
        assert tasks == list(range(len(executable.plan.tasks)))
        with pytest.raises(OptionError, match="at least one repeat, got 0"):
            executable.measure(inputs, repeats=0)


def test_after_a_dead_rank_reset_makes_it_usable() -> None:
    case = Case(mlp(3, dt.f32), dt.Options(), exact=True)
    with open_case(case) as executable:
        inputs, _ = split(case, 1)
        before = executable.run(inputs)
        ranks = rank_pids(executable)
        os.kill(ranks[1], signal.SIGKILL)
        with pytest.raises(LaunchError, match=r"rank 1 .*SIGKILL"):
            executable.run(inputs)
        with pytest.raises(LaunchError, match=r"call reset\(\) first"):
            executable.run(inputs)
        assert gone(ranks)
        executable.reset()
        after = executable.run(inputs)
        assert all(bit_equal(before[name], after[name]) for name in before)


def test_a_closed_executable_is_closed() -> None:
    case = Case(ag_gemm(2, dt.f32), dt.Options(), exact=True)
    executable = open_case(case)
    inputs, weights = split(case, 1)
    with executable as same:
        assert same is executable
        executable.run(inputs)
        ranks = rank_pids(executable)
        assert alive(ranks) == ranks
    assert gone(ranks)
    executable.close()
    uses: list[Callable[[], object]] = [
        lambda: executable.run(inputs),
        lambda: executable.bind(weights),
        lambda: executable.measure(inputs),
        lambda: executable.trace("/nowhere/trace.json"),
        lambda: executable.local("y", 0),
    ]
    for use in uses:
        with pytest.raises(LaunchError, match="it is closed"):
            use()
    assert "task.program" in executable.stages["00-input"]
    assert str(executable.report)


def test_an_executable_that_never_ran_may_be_closed() -> None:
    with dt.compile(ag_gemm(2, dt.f32)) as executable:
        assert len(executable.plan.tasks)
    executable.close()


def test_reset_does_not_open_a_closed_executable() -> None:
    executable = dt.compile(ag_gemm(2, dt.f32))
    executable.close()
    with pytest.raises(LaunchError, match="it is closed"):
        executable.reset()


def test_an_error_in_the_block_closes_it_too() -> None:
    case = Case(ag_gemm(2, dt.f32), dt.Options(), exact=True)
    ranks: list[int] = []

    def fail() -> None:
        with open_case(case) as executable:
            ranks.extend(rank_pids(executable))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert gone(ranks)
