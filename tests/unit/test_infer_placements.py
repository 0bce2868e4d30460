"""infer-placements on unplaced programs."""

from __future__ import annotations

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp

from ditron.errors import PlacementError
from ditron.ir import task
from ditron.ir.frontend import parse_module
from ditron.ir.locations import op_location
from ditron.passes.infer_placements import InferPlacementsPass

TEXT = """
task.program @mlp mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8x6xf32, [shard(1)]>
  %w = task.weight "w" : !task.tensor<6x4xf32, [shard(0)]>
  %p = task.matmul %x, %w : !task.tensor<8x6xf32, [shard(1)]>, !task.tensor<6x4xf32, [shard(0)]> -> !task.tensor<8x4xf32>
  %a = task.silu %p : !task.tensor<8x4xf32> -> !task.tensor<8x4xf32>
  %b = task.exp %p : !task.tensor<8x4xf32> -> !task.tensor<8x4xf32>
  %c = task.add %a, %b : !task.tensor<8x4xf32>, !task.tensor<8x4xf32> -> !task.tensor<8x4xf32>
  task.output "y", %c : !task.tensor<8x4xf32>
}
"""  # noqa: E501


def parse(text: str) -> tuple[Context, ModuleOp]:
    ctx = Context()
    ctx.load_dialect(Builtin)
    ctx.load_dialect(task.Task)
    return ctx, parse_module(ctx, text, "mlp.mlir")


def test_the_error_names_op_and_mend():
    ctx, module = parse(TEXT)
    with pytest.raises(PlacementError) as error:
        InferPlacementsPass().apply(ctx, module)
    assert error.value.where == "mlp.mlir:6"
    assert error.value.message.startswith("silu has no rule for x [partial(sum)]; to mend it")


def test_insert_mends_once_for_all_users():
    ctx, module = parse(TEXT)
    InferPlacementsPass(insert=True).apply(ctx, module)
    module.verify()
    ops = {op.name: op for op in module.walk()}
    assert [op.name for op in module.walk()].count("task.all_reduce") == 1
    assert op_location(ops["task.all_reduce"]) == op_location(ops["task.silu"])
    assert (
        task.spec_of(ops["task.add"].results[0]).placements[0]
        == task.spec_of(ops["task.all_reduce"].results[0]).placements[0]
    )


def test_a_placed_program_stays_as_it_is():
    ctx, module = parse(TEXT)
    InferPlacementsPass(insert=True).apply(ctx, module)
    before = str(module)
    ctx, module = parse(before)
    InferPlacementsPass(insert=True).apply(ctx, module)
    assert str(module) == before


TWO_AXES = """
task.program @two mesh #task.mesh<dp = 2, tp = 2> {
  %a = task.input "a" : !task.tensor<8x4xf32, [shard(0), shard(0)]>
  %b = task.input "b" : !task.tensor<8x4xf32, [replicate, shard(0)]>
  %c = task.add %a, %b : !task.tensor<8x4xf32, [shard(0), shard(0)]>, !task.tensor<8x4xf32, [replicate, shard(0)]> -> !task.tensor<8x4xf32>
  %n = task.softmax %c dim 0 : !task.tensor<8x4xf32> -> !task.tensor<8x4xf32>
  %s = task.broadcast %a dim 1 root 0 axis "tp" : !task.tensor<8x4xf32, [shard(0), shard(0)]> -> !task.tensor<8x2xf32>
  task.output "y", %n : !task.tensor<8x4xf32>
  task.output "z", %s : !task.tensor<8x2xf32>
}
"""  # noqa: E501


def test_two_axes():
    ctx, module = parse(TWO_AXES)
    with pytest.raises(PlacementError, match=r'use all_gather\(b, dim=0, axis="tp"\)'):
        InferPlacementsPass().apply(ctx, module)
    ctx, module = parse(TWO_AXES.replace("shard(0), shard(0)", "shard(0), shard(1)"))
    InferPlacementsPass(insert=True).apply(ctx, module)
    module.verify()
    made = [op for op in module.walk() if isinstance(op, task.ComputeOp)]
    placements = {op.label(): " ".join(map(str, task.spec_of(op.result).placements)) for op in made}
    assert placements == {
        "all_gather": "replicate shard(1)",
        "add": "shard(0) shard(1)",
        "softmax": "replicate shard(1)",
        "broadcast": "shard(0) replicate",
    }


def test_a_state_stays_where_it_lies():
    text = """
task.program @s mesh #task.mesh<tp = 2> {
  %k = task.state "k" : !task.tensor<8x4xf32, [shard(0)]>
  %v = task.input "v" : !task.tensor<2x4xf32, [shard(1)]>
  %u = task.update %k, %v dim 0 at 3 : !task.tensor<8x4xf32, [shard(0)]>, !task.tensor<2x4xf32, [shard(1)]> -> !task.tensor<8x4xf32>
  %y = task.reshape %u : !task.tensor<8x4xf32> -> !task.tensor<32xf32>
  task.output "y", %y : !task.tensor<32xf32>
}
"""  # noqa: E501
    ctx, module = parse(text)
    InferPlacementsPass(insert=True).apply(ctx, module)
    module.verify()
    kinds = [op.name for op in module.walk()]
    assert kinds[4:6] == ["task.all_gather", "task.update"]
    assert "!task.tensor<32xf32, [shard(0)]>" in str(module)
