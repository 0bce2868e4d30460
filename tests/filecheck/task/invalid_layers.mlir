// RUN: ditron-opt %s --split-input-file --verify-diagnostics | filecheck %s

// CHECK: task.rms_norm: rms_norm has no rule for x [shard(1)]; to mend it use all_gather(x, dim=1) or all_to_all(x, split_dim=0, concat_dim=1)
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8x4xf32, [shard(1)]>
  %y = task.rms_norm %x eps 1.0e-6 : !task.tensor<8x4xf32, [shard(1)]> -> !task.tensor<8x4xf32, [shard(1)]>
  task.output "y", %y : !task.tensor<8x4xf32, [shard(1)]>
}

// -----
// CHECK: task.rms_norm: rms_norm of x 8x4 takes a gain of shape (4,), got gain 8
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8x4xf32, [shard(0)]>
  %g = task.input "g" : !task.tensor<8xf32, [replicate]>
  %y = task.rms_norm %x gain %g eps 1.0e-6 : !task.tensor<8x4xf32, [shard(0)]>, !task.tensor<8xf32, [replicate]> -> !task.tensor<8x4xf32, [shard(0)]>
  task.output "y", %y : !task.tensor<8x4xf32, [shard(0)]>
}

// -----
// CHECK: task.rms_norm: rms_norm's eps is a small number, 0 or more, got -1.0
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8x4xf32, [shard(0)]>
  %y = task.rms_norm %x eps -1.0 : !task.tensor<8x4xf32, [shard(0)]> -> !task.tensor<8x4xf32, [shard(0)]>
  task.output "y", %y : !task.tensor<8x4xf32, [shard(0)]>
}

// -----
// CHECK: task.softmax: softmax has no rule for x [shard(0)]; to mend it use all_gather(x, dim=0)
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8x4xf32, [shard(0)]>
  %y = task.softmax %x dim 0 : !task.tensor<8x4xf32, [shard(0)]> -> !task.tensor<8x4xf32, [shard(0)]>
  task.output "y", %y : !task.tensor<8x4xf32, [shard(0)]>
}

// -----
// CHECK: task.softmax: softmax along dim 2, but x is 8x4
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8x4xf32, [shard(0)]>
  %y = task.softmax %x dim 2 : !task.tensor<8x4xf32, [shard(0)]> -> !task.tensor<8x4xf32, [shard(0)]>
  task.output "y", %y : !task.tensor<8x4xf32, [shard(0)]>
}

// -----
// CHECK: task.rope: rope of x 8x6 and cos 6x6: expected cos with the same last dimension, and with sizes 1 or the same before it
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8x6xf32, [shard(0)]>
  %c = task.input "c" : !task.tensor<6x6xf32, [replicate]>
  %y = task.rope %x, %c, %c : !task.tensor<8x6xf32, [shard(0)]>, !task.tensor<6x6xf32, [replicate]>, !task.tensor<6x6xf32, [replicate]> -> !task.tensor<8x6xf32, [shard(0)]>
  task.output "y", %y : !task.tensor<8x6xf32, [shard(0)]>
}

// -----
// CHECK: task.embedding: embedding has no rule for ids [shard(0)] and table [shard(0)]; to mend it use all_gather(ids, dim=0) or all_gather(table, dim=0)
task.program @p mesh #task.mesh<tp = 4> {
  %i = task.input "i" : !task.tensor<8xi64, [shard(0)]>
  %t = task.input "t" : !task.tensor<10x6xf32, [shard(0)]>
  %y = task.embedding %i, %t : !task.tensor<8xi64, [shard(0)]>, !task.tensor<10x6xf32, [shard(0)]> -> !task.tensor<8x6xf32, [partial(sum)]>
  task.output "y", %y : !task.tensor<8x6xf32, [partial(sum)]>
}
