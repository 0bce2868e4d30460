// RUN: ditron-opt %s --split-input-file --verify-diagnostics | filecheck %s

// CHECK: task.slice: slice of x 8x4: 3 elements at 6 do not lie within its dim 0 of 8 elements
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8x4xf32, [replicate]>
  %y = task.slice %x dim 0 at 6 size 3 : !task.tensor<8x4xf32, [replicate]> -> !task.tensor<3x4xf32, [replicate]>
  task.output "y", %y : !task.tensor<3x4xf32, [replicate]>
}

// -----
// CHECK: task.slice: slice of x 8x4: 3 elements at up to 6 do not lie within its dim 0 of 8 elements
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8x4xf32, [replicate]>
  %p = task.scalar "p" max 6 : !task.tensor<1xi32, [replicate]>
  %y = task.slice %x dim 0 at 0 plus %p size 3 : !task.tensor<8x4xf32, [replicate]>, !task.tensor<1xi32, [replicate]> -> !task.tensor<3x4xf32, [replicate]>
  task.output "y", %y : !task.tensor<3x4xf32, [replicate]>
}

// -----
// CHECK: task.slice: a place at run time is a p.scalar(name, dtype, max=...), whose max is known
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8x4xf32, [replicate]>
  %p = task.scalar "p" : !task.tensor<1xi32, [replicate]>
  %y = task.slice %x dim 0 at 0 plus %p size 3 : !task.tensor<8x4xf32, [replicate]>, !task.tensor<1xi32, [replicate]> -> !task.tensor<3x4xf32, [replicate]>
  task.output "y", %y : !task.tensor<3x4xf32, [replicate]>
}

// -----
// CHECK: task.slice: slice has no rule for x [shard(0)]; to mend it use all_gather(x, dim=0)
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8x4xf32, [shard(0)]>
  %y = task.slice %x dim 0 at 0 size 3 : !task.tensor<8x4xf32, [shard(0)]> -> !task.tensor<3x4xf32, [shard(0)]>
  task.output "y", %y : !task.tensor<3x4xf32, [shard(0)]>
}

// -----
// CHECK: task.update: update writes to what p.state or update returned; its first operand is neither
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8x4xf32, [replicate]>
  %y = task.update %x, %x dim 0 at 0 : !task.tensor<8x4xf32, [replicate]>, !task.tensor<8x4xf32, [replicate]> -> !task.tensor<8x4xf32, [replicate]>
  task.output "y", %y : !task.tensor<8x4xf32, [replicate]>
}

// -----
// CHECK: task.update: update has no rule for state [replicate] and value [shard(1)]; to mend it use all_gather(value, dim=1)
task.program @p mesh #task.mesh<tp = 4> {
  %k = task.state "k" : !task.tensor<8x4xf32, [replicate]>
  %v = task.input "v" : !task.tensor<2x4xf32, [shard(1)]>
  %y = task.update %k, %v dim 0 at 0 : !task.tensor<8x4xf32, [replicate]>, !task.tensor<2x4xf32, [shard(1)]> -> !task.tensor<8x4xf32, [replicate]>
  task.output "y", %y : !task.tensor<8x4xf32, [replicate]>
}

// -----
// CHECK: task.program: task.relu reads a state as it was before it was updated
task.program @p mesh #task.mesh<tp = 4> {
  %k = task.state "k" : !task.tensor<8x4xf32, [replicate]>
  %v = task.input "v" : !task.tensor<2x4xf32, [replicate]>
  %u = task.update %k, %v dim 0 at 0 : !task.tensor<8x4xf32, [replicate]>, !task.tensor<2x4xf32, [replicate]> -> !task.tensor<8x4xf32, [replicate]>
  %y = task.relu %k : !task.tensor<8x4xf32, [replicate]> -> !task.tensor<8x4xf32, [replicate]>
  task.output "y", %y : !task.tensor<8x4xf32, [replicate]>
}

// -----
// CHECK: task.reshape: reshape of x 8x4 to 33: 32 elements do not make 33
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8x4xf32, [replicate]>
  %y = task.reshape %x : !task.tensor<8x4xf32, [replicate]> -> !task.tensor<33xf32, [replicate]>
  task.output "y", %y : !task.tensor<33xf32, [replicate]>
}

// -----
// CHECK: task.reshape: reshape of x 8x4 to 32 would move data, as it is [shard(1)]: dim 1 is cut, and is not the outermost of those that it is merged with; use all_gather(x, dim=1) first
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8x4xf32, [shard(1)]>
  %y = task.reshape %x : !task.tensor<8x4xf32, [shard(1)]> -> !task.tensor<32xf32, [replicate]>
  task.output "y", %y : !task.tensor<32xf32, [replicate]>
}

// -----
// CHECK: task.transpose: transpose of x 8x4: there is no dim 2
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8x4xf32, [replicate]>
  %y = task.transpose %x dims 0, 2 : !task.tensor<8x4xf32, [replicate]> -> !task.tensor<8x4xf32, [replicate]>
  task.output "y", %y : !task.tensor<8x4xf32, [replicate]>
}

// -----
// CHECK: task.concat: concat of value 0 8x4 and value 1 8x5: all sizes but that of dim 0 must agree
task.program @p mesh #task.mesh<tp = 4> {
  %a = task.input "a" : !task.tensor<8x4xf32, [replicate]>
  %b = task.input "b" : !task.tensor<8x5xf32, [replicate]>
  %y = task.concat %a, %b dim 0 : !task.tensor<8x4xf32, [replicate]>, !task.tensor<8x5xf32, [replicate]> -> !task.tensor<16x4xf32, [replicate]>
  task.output "y", %y : !task.tensor<16x4xf32, [replicate]>
}

// -----
// CHECK: task.scalar: a scalar has shape (1,) and is replicated, got !task.tensor<2xi32, [replicate]>
task.program @p mesh #task.mesh<tp = 4> {
  %p = task.scalar "p" : !task.tensor<2xi32, [replicate]>
  task.output "y", %p : !task.tensor<2xi32, [replicate]>
}

// -----
// CHECK: task.scalar: a scalar with max is an integer of 0 or more, got !task.tensor<1xf32, [replicate]>
task.program @p mesh #task.mesh<tp = 4> {
  %p = task.scalar "p" max 3 : !task.tensor<1xf32, [replicate]>
  task.output "y", %p : !task.tensor<1xf32, [replicate]>
}

// -----
// CHECK: task.program: input "k" needs placements
task.program @p mesh #task.mesh<tp = 4> {
  %k = task.state "k" : !task.tensor<8xf32>
  task.output "y", %k : !task.tensor<8xf32>
}
