// RUN: ditron-opt %s --split-input-file --verify-diagnostics | filecheck %s

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
// CHECK: task.program: task.weight: !task.tensor<8xf32, [shard(0), replicate]> needs one placement per mesh axis, so 1
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.weight "x" : !task.tensor<8xf32, [shard(0), replicate]>
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
