// RUN: ditron-opt %s --split-input-file --verify-diagnostics | filecheck %s

// CHECK: task.matmul: matmul has no rule for a [shard(0)] and b [shard(1)]; to mend it use all_gather(a, dim=0) or all_gather(b, dim=1)
task.program @p mesh #task.mesh<tp = 4> {
  %a = task.input "a" : !task.tensor<8x6xf32, [shard(0)]>
  %b = task.input "b" : !task.tensor<6x4xf32, [shard(1)]>
  %y = task.matmul %a, %b : !task.tensor<8x6xf32, [shard(0)]>, !task.tensor<6x4xf32, [shard(1)]> -> !task.tensor<8x4xf32, [shard(0)]>
  task.output "y", %y : !task.tensor<8x4xf32, [shard(0)]>
}

// -----
// CHECK: task.matmul: matmul of a 8x6 and b 6x4: a's dim 1 is 6, but b's dim 1 is 4
task.program @p mesh #task.mesh<tp = 4> {
  %a = task.input "a" : !task.tensor<8x6xf32, [replicate]>
  %b = task.input "b" : !task.tensor<6x4xf32, [replicate]>
  %y = task.matmul %a, %b transpose_b : !task.tensor<8x6xf32, [replicate]>, !task.tensor<6x4xf32, [replicate]> -> !task.tensor<8x6xf32, [replicate]>
  task.output "y", %y : !task.tensor<8x6xf32, [replicate]>
}

// -----
// CHECK: task.matmul: matmul of a 2x8x6 and b 3x6x4: leading dimensions 2 and 3 must agree, or b have none
task.program @p mesh #task.mesh<tp = 4> {
  %a = task.input "a" : !task.tensor<2x8x6xf32, [replicate]>
  %b = task.input "b" : !task.tensor<3x6x4xf32, [replicate]>
  %y = task.matmul %a, %b : !task.tensor<2x8x6xf32, [replicate]>, !task.tensor<3x6x4xf32, [replicate]> -> !task.tensor<2x8x4xf32, [replicate]>
  task.output "y", %y : !task.tensor<2x8x4xf32, [replicate]>
}

// -----
// CHECK: task.add: add has no rule for a [shard(0)] and b [shard(0)]; to mend it use all_gather(b, dim=0)
task.program @p mesh #task.mesh<tp = 4> {
  %a = task.input "a" : !task.tensor<8x6xf32, [shard(0)]>
  %b = task.input "b" : !task.tensor<1x6xf32, [shard(0)]>
  %y = task.add %a, %b : !task.tensor<8x6xf32, [shard(0)]>, !task.tensor<1x6xf32, [shard(0)]> -> !task.tensor<8x6xf32, [shard(0)]>
  task.output "y", %y : !task.tensor<8x6xf32, [shard(0)]>
}

// -----
// CHECK: task.sub: sub of a f32 and b bf16: dtypes must agree; cast one of them
task.program @p mesh #task.mesh<tp = 4> {
  %a = task.input "a" : !task.tensor<8xf32, [shard(0)]>
  %b = task.input "b" : !task.tensor<8xbf16, [shard(0)]>
  %y = task.sub %a, %b : !task.tensor<8xf32, [shard(0)]>, !task.tensor<8xbf16, [shard(0)]> -> !task.tensor<8xf32, [shard(0)]>
  task.output "y", %y : !task.tensor<8xf32, [shard(0)]>
}

// -----
// CHECK: task.mul: mul has no rule for a [partial(sum)] and b [partial(sum)]; to mend it use all_reduce(a) or all_reduce(b)
task.program @p mesh #task.mesh<tp = 4> {
  %a = task.input "a" : !task.tensor<8xf32, [partial(sum)]>
  %y = task.mul %a, %a : !task.tensor<8xf32, [partial(sum)]>, !task.tensor<8xf32, [partial(sum)]> -> !task.tensor<8xf32, [partial(sum)]>
  task.output "y", %y : !task.tensor<8xf32, [partial(sum)]>
}

// -----
// CHECK: task.silu: silu takes float dtypes, got i32
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8xi32, [shard(0)]>
  %y = task.silu %x : !task.tensor<8xi32, [shard(0)]> -> !task.tensor<8xi32, [shard(0)]>
  task.output "y", %y : !task.tensor<8xi32, [shard(0)]>
}

// -----
// CHECK: task.gelu: the result should be !task.tensor<8xf32, [shard(0)]>, got !task.tensor<8xf32, [replicate]>
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8xf32, [shard(0)]>
  %y = task.gelu %x : !task.tensor<8xf32, [shard(0)]> -> !task.tensor<8xf32, [replicate]>
  task.output "y", %y : !task.tensor<8xf32, [replicate]>
}

// -----
// CHECK: task.relu: relu takes float or int dtypes, got bool
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8xi1, [shard(0)]>
  %y = task.relu %x : !task.tensor<8xi1, [shard(0)]> -> !task.tensor<8xi1, [shard(0)]>
  task.output "y", %y : !task.tensor<8xi1, [shard(0)]>
}

// -----
// CHECK: task.exp: exp has no rule for x [partial(sum)]; to mend it use all_reduce(x) or reduce_scatter(x, dim=0)
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8xf32, [partial(sum)]>
  %y = task.exp %x : !task.tensor<8xf32, [partial(sum)]> -> !task.tensor<8xf32, [partial(sum)]>
  task.output "y", %y : !task.tensor<8xf32, [partial(sum)]>
}

// -----
// CHECK: task.cast: cast to i32 has no rule for x [partial(sum)]; to mend it use all_reduce(x)
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8xf32, [partial(sum)]>
  %y = task.cast %x : !task.tensor<8xf32, [partial(sum)]> -> !task.tensor<8xi32, [partial(sum)]>
  task.output "y", %y : !task.tensor<8xi32, [partial(sum)]>
}

// -----
// CHECK: task.relu: the result is placed, but an operand is not
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8xf32, [shard(0)]>
  %a = task.relu %x : !task.tensor<8xf32, [shard(0)]> -> !task.tensor<8xf32>
  %y = task.relu %a : !task.tensor<8xf32> -> !task.tensor<8xf32, [shard(0)]>
  task.output "y", %y : !task.tensor<8xf32, [shard(0)]>
}
