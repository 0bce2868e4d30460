// RUN: ditron-opt %s --split-input-file --verify-diagnostics | filecheck %s

// CHECK: task.attention: attention of q 1x2x4x8, k 1x6x3x8, v 1x6x3x8: 3 key heads do not divide 4 query heads
task.program @p mesh #task.mesh<tp = 2> {
  %q = task.input "q" : !task.tensor<1x2x4x8xf32, [shard(2)]>
  %k = task.input "k" : !task.tensor<1x6x3x8xf32, [shard(2)]>
  %y = task.attention %q, %k, %k at 0 scale 1.0 : !task.tensor<1x2x4x8xf32, [shard(2)]>, !task.tensor<1x6x3x8xf32, [shard(2)]>, !task.tensor<1x6x3x8xf32, [shard(2)]> -> !task.tensor<1x2x4x8xf32, [shard(2)]>
  task.output "y", %y : !task.tensor<1x2x4x8xf32, [shard(2)]>
}

// -----
// CHECK: task.attention: attention of q 1x2x4x8, k 1x6x1x8, v 1x6x1x8 that are [shard(2)]: the parts of 4 heads are not those of 1 key heads; use fewer ranks, or all_gather(dim=2) all three first
task.program @p mesh #task.mesh<tp = 2> {
  %q = task.input "q" : !task.tensor<1x2x4x8xf32, [shard(2)]>
  %k = task.input "k" : !task.tensor<1x6x1x8xf32, [shard(2)]>
  %y = task.attention %q, %k, %k at 0 scale 1.0 : !task.tensor<1x2x4x8xf32, [shard(2)]>, !task.tensor<1x6x1x8xf32, [shard(2)]>, !task.tensor<1x6x1x8xf32, [shard(2)]> -> !task.tensor<1x2x4x8xf32, [shard(2)]>
  task.output "y", %y : !task.tensor<1x2x4x8xf32, [shard(2)]>
}

// -----
// CHECK: task.attention: attention has no rule for q [shard(2)] and k [replicate] and v [replicate]
task.program @p mesh #task.mesh<tp = 2> {
  %q = task.input "q" : !task.tensor<1x2x4x8xf32, [shard(2)]>
  %k = task.input "k" : !task.tensor<1x6x4x8xf32, [replicate]>
  %y = task.attention %q, %k, %k at 0 scale 1.0 : !task.tensor<1x2x4x8xf32, [shard(2)]>, !task.tensor<1x6x4x8xf32, [replicate]>, !task.tensor<1x6x4x8xf32, [replicate]> -> !task.tensor<1x2x4x8xf32, [shard(2)]>
  task.output "y", %y : !task.tensor<1x2x4x8xf32, [shard(2)]>
}

// -----
// CHECK: task.attention: attention of q 1x2x4x8, k 1x6x4x8, v 1x6x4x8: 2 tokens at 5 do not lie within 6 places
task.program @p mesh #task.mesh<tp = 2> {
  %q = task.input "q" : !task.tensor<1x2x4x8xf32, [shard(2)]>
  %k = task.input "k" : !task.tensor<1x6x4x8xf32, [shard(2)]>
  %y = task.attention %q, %k, %k causal at 5 scale 1.0 : !task.tensor<1x2x4x8xf32, [shard(2)]>, !task.tensor<1x6x4x8xf32, [shard(2)]>, !task.tensor<1x6x4x8xf32, [shard(2)]> -> !task.tensor<1x2x4x8xf32, [shard(2)]>
  task.output "y", %y : !task.tensor<1x2x4x8xf32, [shard(2)]>
}

// -----
// CHECK: task.attention: attention's scale is a number above 0, got -1.0
task.program @p mesh #task.mesh<tp = 2> {
  %q = task.input "q" : !task.tensor<1x2x4x8xf32, [shard(2)]>
  %k = task.input "k" : !task.tensor<1x6x4x8xf32, [shard(2)]>
  %y = task.attention %q, %k, %k causal at 0 scale -1.0 : !task.tensor<1x2x4x8xf32, [shard(2)]>, !task.tensor<1x6x4x8xf32, [shard(2)]>, !task.tensor<1x6x4x8xf32, [shard(2)]> -> !task.tensor<1x2x4x8xf32, [shard(2)]>
  task.output "y", %y : !task.tensor<1x2x4x8xf32, [shard(2)]>
}

// -----
// CHECK: task.amax: amax has no rule for x [shard(0)]; to mend it use all_gather(x, dim=0)
task.program @p mesh #task.mesh<tp = 2> {
  %x = task.input "x" : !task.tensor<8x4xf32, [shard(0)]>
  %y = task.amax %x dim 0 : !task.tensor<8x4xf32, [shard(0)]> -> !task.tensor<1x4xf32, [replicate]>
  task.output "y", %y : !task.tensor<1x4xf32, [replicate]>
}

// -----
// CHECK: task.amax: the result should be !task.tensor<8x1xf32, [shard(0)]>, got !task.tensor<8x1xi64, [shard(0)]>
task.program @p mesh #task.mesh<tp = 2> {
  %x = task.input "x" : !task.tensor<8x4xf32, [shard(0)]>
  %y = task.amax %x dim 1 : !task.tensor<8x4xf32, [shard(0)]> -> !task.tensor<8x1xi64, [shard(0)]>
  task.output "y", %y : !task.tensor<8x1xi64, [shard(0)]>
}

// -----
// CHECK: task.argmax: argmax of x 8x4 along dim 2: there is no such dim
task.program @p mesh #task.mesh<tp = 2> {
  %x = task.input "x" : !task.tensor<8x4xf32, [shard(0)]>
  %y = task.argmax %x dim 2 : !task.tensor<8x4xf32, [shard(0)]> -> !task.tensor<8x1xi64, [shard(0)]>
  task.output "y", %y : !task.tensor<8x1xi64, [shard(0)]>
}

// -----
// CHECK: task.argmax: argmax takes labels of an int dtype, got labels f32
task.program @p mesh #task.mesh<tp = 2> {
  %x = task.input "x" : !task.tensor<8x4xf32, [shard(0)]>
  %y = task.argmax %x labels %x dim 1 : !task.tensor<8x4xf32, [shard(0)]>, !task.tensor<8x4xf32, [shard(0)]> -> !task.tensor<8x1xi64, [shard(0)]>
  task.output "y", %y : !task.tensor<8x1xi64, [shard(0)]>
}

// -----
// CHECK: task.attention_parts: attention_parts of 2 tokens a sequence by 3 of 6 places: expected one token, and ranges of 1 to 6 places
task.program @p mesh #task.mesh<tp = 2> {
  %q = task.input "q" : !task.tensor<1x2x4x8xf32, [shard(2)]>
  %k = task.input "k" : !task.tensor<1x6x4x8xf32, [shard(2)]>
  %y = task.attention_parts %q, %k, %k at 0 scale 1.0 places 3 : !task.tensor<1x2x4x8xf32, [shard(2)]>, !task.tensor<1x6x4x8xf32, [shard(2)]>, !task.tensor<1x6x4x8xf32, [shard(2)]> -> !task.tensor<1x2x4x10xf32, [shard(2)]>
  task.output "y", %y : !task.tensor<1x2x4x10xf32, [shard(2)]>
}

// -----
// CHECK: task.attention_join: attention_join of 1x3x4x8, 1x3x4x8, 1x3x4x8: expected [B, ranges, H, D], and twice [B, ranges, H, 1]
task.program @p mesh #task.mesh<tp = 2> {
  %o = task.input "o" : !task.tensor<1x3x4x8xf32, [shard(2)]>
  %y = task.attention_join %o, %o, %o : !task.tensor<1x3x4x8xf32, [shard(2)]>, !task.tensor<1x3x4x8xf32, [shard(2)]>, !task.tensor<1x3x4x8xf32, [shard(2)]> -> !task.tensor<1x1x4x8xf32, [shard(2)]>
  task.output "y", %y : !task.tensor<1x1x4x8xf32, [shard(2)]>
}
