// RUN: ditron-opt %s --split-input-file --verify-diagnostics | filecheck %s

// CHECK: task.all_gather: all_gather(dim=1) needs x shard(1), but it is shard(0): all_gather(x, dim=0) makes it whole
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8x4xf32, [shard(0)]>
  %y = task.all_gather %x dim 1 axis "tp" : !task.tensor<8x4xf32, [shard(0)]> -> !task.tensor<8x4xf32, [replicate]>
  task.output "y", %y : !task.tensor<8x4xf32, [replicate]>
}

// -----
// CHECK: task.reduce_scatter: reduce_scatter(dim=0) needs x partial(sum), but it is replicate: x is whole on every rank already
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8x4xf32, [replicate]>
  %y = task.reduce_scatter %x dim 0 axis "tp" : !task.tensor<8x4xf32, [replicate]> -> !task.tensor<8x4xf32, [shard(0)]>
  task.output "y", %y : !task.tensor<8x4xf32, [shard(0)]>
}

// -----
// CHECK: task.all_reduce: Mesh(tp=4) has no axis 'dp'; it has tp
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8x4xf32, [partial(sum)]>
  %y = task.all_reduce %x axis "dp" : !task.tensor<8x4xf32, [partial(sum)]> -> !task.tensor<8x4xf32, [replicate]>
  task.output "y", %y : !task.tensor<8x4xf32, [replicate]>
}

// -----
// CHECK: task.program: two inputs or outputs are called x
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8xf32, [shard(0)]>
  %w = task.weight "x" : !task.tensor<8xf32, [shard(0)]>
  task.output "y", %x : !task.tensor<8xf32, [shard(0)]>
}

// -----
// CHECK: task.program: a value is output twice
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8xf32, [shard(0)]>
  task.output "y", %x : !task.tensor<8xf32, [shard(0)]>
  task.output "z", %x : !task.tensor<8xf32, [shard(0)]>
}

// -----
// CHECK: task.program: a program needs at least one output
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8xf32, [shard(0)]>
}

// -----
// CHECK: task.program: input "x" needs placements
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8xf32>
  task.output "y", %x : !task.tensor<8xf32>
}

// -----
// CHECK: task.program: task.weight: !task.tensor<8xf32, [shard(0), replicate]> needs 1 placement, one per mesh axis
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.weight "x" : !task.tensor<8xf32, [shard(0), replicate]>
  task.output "y", %x : !task.tensor<8xf32, [shard(0), replicate]>
}

// -----
// CHECK: task.program: programs on Mesh(dp=2, tp=4) are not supported yet: use one axis
task.program @p mesh #task.mesh<dp = 2, tp = 4> {
  %x = task.input "x" : !task.tensor<8xf32, [shard(0), replicate]>
  task.output "y", %x : !task.tensor<8xf32, [shard(0), replicate]>
}

// -----
// CHECK: task.program: test.op does not belong in a task.program
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8xf32, [shard(0)]>
  "test.op"() : () -> ()
  task.output "y", %x : !task.tensor<8xf32, [shard(0)]>
}

// -----
// CHECK: task.output: 'task.output' expects parent op 'task.program'
%x = "test.op"() : () -> !task.tensor<8xf32, [shard(0)]>
task.output "y", %x : !task.tensor<8xf32, [shard(0)]>

// -----
// CHECK: 'task.input' expects parent op 'task.program'
%x = task.input "x" : !task.tensor<8xf32, [shard(0)]>
