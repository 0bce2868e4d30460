"""What the command line is made of: settings, inputs, and agreement with float64."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

import ditron as dt
from ditron.errors import OptionError
from ditron.ir import task
from ditron.plan.options import OpOptions, Options
from ditron.tools.check import Agreement, bit_equal, check_outputs, largest_error, last_place
from ditron.tools.inputs import load_inputs, make_inputs, split_weights
from ditron.tools.settings import make_options
from ditron.tools.show import Decision, decision_rows


def program_op(program: dt.Program) -> task.ProgramOp:
    (op,) = program.ir.ops
    assert isinstance(op, task.ProgramOp)
    return op


@pytest.fixture
def program() -> task.ProgramOp:
    with dt.Program("p", dt.Mesh(tp=2)) as p:
        x = p.input("x", (64, 400), dt.f32, dt.Shard(0))
        w = p.weight("w", (400, 64), dt.bf16, dt.Shard(1))
        b = p.input("b", (64, 64), dt.i32, dt.Shard(0))
        p.output("y", dt.matmul(dt.all_gather(dt.relu(x), dim=0), dt.cast(w, dt.f32)))
        p.output("z", dt.add(b, b))
    return program_op(p)


def test_options():
    options = make_options(["workers=2", "layers.*.up:tile=64x128", "copy-lanes=3"], {"tile": None})
    assert options == Options(
        workers=2, copy_lanes=3, per_op={"layers.*.up": OpOptions(tile=(64, 128))}
    )


@pytest.mark.parametrize("word", ["a:workers=2", "per_op=x", "tile=1x2x3", "fusion=7", "=1"])
def test_bad_options(word: str):
    with pytest.raises(OptionError):
        make_options([word])


def test_inputs_are_seeded_and_scaled(program: task.ProgramOp):
    inputs = make_inputs(program, seed=3)
    again = make_inputs(program, seed=3)
    other = make_inputs(program, seed=4)
    assert inputs.keys() == {"x", "w", "b"}
    assert all(torch.equal(inputs[name], again[name]) for name in inputs)
    assert not torch.equal(inputs["x"], other["x"])
    assert inputs["w"].dtype == torch.bfloat16
    assert float(inputs["x"].std()) == pytest.approx(1 / math.sqrt(400), rel=0.05)
    assert inputs["b"].dtype == torch.int32


def test_weights_are_told_apart(program: task.ProgramOp):
    inputs, weights = split_weights(["w"], make_inputs(program, seed=0))
    assert (set(inputs), set(weights)) == ({"x", "b"}, {"w"})


def test_inputs_from_a_file(tmp_path: Path):
    (tmp_path / "x.safetensors").write_bytes(save({"x": torch.arange(4)}))
    assert torch.equal(load_inputs(tmp_path / "x.safetensors")["x"], torch.arange(4))
    (tmp_path / "bad.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(OptionError, match="cannot read inputs"):
        load_inputs(tmp_path / "bad.safetensors")


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (1.0, torch.float32, 2.0**-23),
        (1.5, torch.bfloat16, 2.0**-7),
        (2.0, torch.bfloat16, 2.0**-6),
        (0.3, torch.float16, 2.0**-12),
        (7.0, torch.int32, 0.0),
    ],
)
def test_last_place(value: float, dtype: torch.dtype, expected: float):
    truth = torch.tensor([0.0, -value, math.inf])
    assert last_place(truth, dtype) == expected
    if dtype.is_floating_point:
        x = torch.tensor(value, dtype=dtype)
        assert torch.nextafter(x.float(), torch.tensor(math.inf)) > x.float()


def test_errors_that_are_not_finite_count():
    nan, inf = math.nan, math.inf
    truth = torch.tensor([1.0, nan, inf, -inf])
    assert largest_error(truth.clone(), truth) == 0.0
    assert largest_error(torch.tensor([nan, nan, inf, -inf]), truth) == inf
    assert largest_error(torch.tensor([1.0, 0.0, inf, -inf]), truth) == inf
    assert largest_error(torch.tensor([1.0, nan, inf, inf]), truth) == inf
    assert largest_error(torch.empty(0, 4), torch.empty(0, 4)) == 0.0


def test_bit_equality_sees_what_equality_does_not():
    assert bit_equal(torch.tensor([math.nan]), torch.tensor([math.nan]))
    assert not bit_equal(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not bit_equal(torch.zeros(2), torch.zeros(2, dtype=torch.bfloat16))


@pytest.fixture
def summed() -> task.ProgramOp:
    with dt.Program("s", dt.Mesh(tp=2)) as p:
        x = p.input("x", (8, 64), dt.bf16, dt.Shard(1))
        w = p.input("w", (64, 8), dt.bf16, dt.Shard(0))
        p.output("y", dt.all_reduce(dt.matmul(x, w)))
    return program_op(p)


def check(program: task.ProgramOp, wrong_by: float, last_rank_by: float = 0.0) -> Agreement:
    inputs = make_inputs(program, seed=0)
    right = (inputs["x"].double() @ inputs["w"].double()).to(torch.bfloat16)
    locals_ = [right + wrong_by, right + wrong_by + last_rank_by]
    (found,) = check_outputs(program, inputs, {"y": locals_[0]}, lambda _, rank: locals_[rank])
    return found


def test_agreement(summed: task.ProgramOp):
    found = check(summed, 0.0)
    assert found.agrees
    assert (found.replicas, found.bound) == (2, 2 * found.torch_error + found.ulp)
    assert "2 replicas are bit-equal" in str(found)


def test_a_result_that_is_too_far_off_is_noticed(summed: task.ProgramOp):
    limit = check(summed, 0.0).bound
    assert not check(summed, 2 * limit).agrees


def test_replicas_that_differ_are_noticed(summed: task.ProgramOp):
    found = check(summed, 0.0, last_rank_by=1e-3)
    assert found.error <= found.bound
    assert not found.agrees
    assert "replicas DIFFER" in str(found)


def test_alike_decisions_share_a_row():
    rope = [Decision("rope", f"layers.{i}.{n}", "8x8", "a.py:2") for i in range(3) for n in "qkvow"]
    one = Decision("matmul", "head", "16x8", "a.py:2")
    rows = decision_rows([*rope, one, Decision("matmul", "x", "16x8", "a.py:3")])
    assert rows == [
        ("layers.*.q, layers.*.k, layers.*.v and 2 more", "8x8", "a.py:2"),
        ("head", "16x8", "a.py:2"),
        ("x", "16x8", "a.py:3"),
    ]
