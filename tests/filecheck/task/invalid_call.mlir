// RUN: ditron-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// CHECK: error: task.call: no core.func @g to call
core.func @f(%x: !core.view<4x8xf32>, %y: !core.view<4x8xf32>) {
  %0 = core.load %x : !core.view<4x8xf32> -> !core.tile<4x8xf32>
  core.store %0, %y : !core.tile<4x8xf32>, !core.view<4x8xf32>
}
task.program @p mesh #task.mesh<tp = 2> {
  %x = task.input "x" : !task.tensor<8x8xf32, [shard(0)]>
  %y = task.call @g(%x) cuts <[0, 1]> : !task.tensor<8x8xf32, [shard(0)]> -> !task.tensor<8x8xf32, [shard(0)]>
  task.output "y", %y : !task.tensor<8x8xf32, [shard(0)]>
}
// -----
// CHECK: error: task.call cuts 1 operands, got #task.cuts<[0, 1], [0]>
core.func @f(%x: !core.view<4x8xf32>, %y: !core.view<4x8xf32>) {
  %0 = core.load %x : !core.view<4x8xf32> -> !core.tile<4x8xf32>
  core.store %0, %y : !core.tile<4x8xf32>, !core.view<4x8xf32>
}
task.program @p mesh #task.mesh<tp = 2> {
  %x = task.input "x" : !task.tensor<8x8xf32, [shard(0)]>
  %y = task.call @f(%x) cuts <[0, 1], [0]> : !task.tensor<8x8xf32, [shard(0)]> -> !task.tensor<8x8xf32, [shard(0)]>
  task.output "y", %y : !task.tensor<8x8xf32, [shard(0)]>
}
// -----
// CHECK: error: task.call: call of f: operand 0 8x8 cannot be cut as (0,)
core.func @f(%x: !core.view<4x8xf32>, %y: !core.view<4x8xf32>) {
  %0 = core.load %x : !core.view<4x8xf32> -> !core.tile<4x8xf32>
  core.store %0, %y : !core.tile<4x8xf32>, !core.view<4x8xf32>
}
task.program @p mesh #task.mesh<tp = 2> {
  %x = task.input "x" : !task.tensor<8x8xf32, [shard(0)]>
  %y = task.call @f(%x) cuts <[0]> : !task.tensor<8x8xf32, [shard(0)]> -> !task.tensor<8x8xf32, [shard(0)]>
  task.output "y", %y : !task.tensor<8x8xf32, [shard(0)]>
}
// -----
// CHECK: error: task.call: call of f: operand 0's dim 1 is cut along with the result's dim 1, but they are 8 and 4 long
core.func @f(%x: !core.view<4x8xf32>, %y: !core.view<4x8xf32>) {
  %0 = core.load %x : !core.view<4x8xf32> -> !core.tile<4x8xf32>
  core.store %0, %y : !core.tile<4x8xf32>, !core.view<4x8xf32>
}
task.program @p mesh #task.mesh<tp = 2> {
  %x = task.input "x" : !task.tensor<8x8xf32, [shard(0)]>
  %y = task.call @f(%x) cuts <[0, 1]> : !task.tensor<8x8xf32, [shard(0)]> -> !task.tensor<8x4xf32, [shard(0)]>
  task.output "y", %y : !task.tensor<8x4xf32, [shard(0)]>
}
// -----
// CHECK: error: task.call: call of f makes [shard(0)], but out is [shard(1)]: give an out that lies as the operands do
core.func @f(%x: !core.view<4x8xf32>, %y: !core.view<4x8xf32>) {
  %0 = core.load %x : !core.view<4x8xf32> -> !core.tile<4x8xf32>
  core.store %0, %y : !core.tile<4x8xf32>, !core.view<4x8xf32>
}
task.program @p mesh #task.mesh<tp = 2> {
  %x = task.input "x" : !task.tensor<8x8xf32, [shard(0)]>
  %y = task.call @f(%x) cuts <[0, 1]> : !task.tensor<8x8xf32, [shard(0)]> -> !task.tensor<8x8xf32, [shard(1)]>
  task.output "y", %y : !task.tensor<8x8xf32, [shard(1)]>
}
// -----
// CHECK: error: task.call: call of f has no rule for operand 0 [shard(0)]; to mend it use all_gather(operand 0, dim=0)
core.func @f(%x: !core.view<4x8xf32>, %y: !core.view<4x8xf32>) {
  %0 = core.load %x : !core.view<4x8xf32> -> !core.tile<4x8xf32>
  core.store %0, %y : !core.tile<4x8xf32>, !core.view<4x8xf32>
}
task.program @p mesh #task.mesh<tp = 2> {
  %x = task.input "x" : !task.tensor<8x8xf32, [shard(0)]>
  %y = task.call @f(%x) cuts <[*, 1]> : !task.tensor<8x8xf32, [shard(0)]> -> !task.tensor<8x8xf32, [replicate]>
  task.output "y", %y : !task.tensor<8x8xf32, [replicate]>
}
// -----
// CHECK: error: task.call: view 0 of @f is !core.view<4x8xf32>, which is no tile of !task.tensor<8x8xbf16, [shard(0)]>
core.func @f(%x: !core.view<4x8xf32>, %y: !core.view<4x8xf32>) {
  %0 = core.load %x : !core.view<4x8xf32> -> !core.tile<4x8xf32>
  core.store %0, %y : !core.tile<4x8xf32>, !core.view<4x8xf32>
}
task.program @p mesh #task.mesh<tp = 2> {
  %x = task.input "x" : !task.tensor<8x8xbf16, [shard(0)]>
  %y = task.call @f(%x) cuts <[0, 1]> : !task.tensor<8x8xbf16, [shard(0)]> -> !task.tensor<8x8xbf16, [shard(0)]>
  task.output "y", %y : !task.tensor<8x8xbf16, [shard(0)]>
}
// -----
// CHECK: error: task.call: @f takes 2 views, the last of 2 dimensions, got 3 tensors
core.func @f(%x: !core.view<4x8xf32>, %y: !core.view<4x8xf32>) {
  %0 = core.load %x : !core.view<4x8xf32> -> !core.tile<4x8xf32>
  core.store %0, %y : !core.tile<4x8xf32>, !core.view<4x8xf32>
}
task.program @p mesh #task.mesh<tp = 2> {
  %x = task.input "x" : !task.tensor<8x8xf32, [shard(0)]>
  %y = task.call @f(%x, %x) cuts <[0, 1], [0, 1]> : !task.tensor<8x8xf32, [shard(0)]>, !task.tensor<8x8xf32, [shard(0)]> -> !task.tensor<8x8xf32, [shard(0)]>
  task.output "y", %y : !task.tensor<8x8xf32, [shard(0)]>
}
// -----
// CHECK: error: task.call: @f loads all views but the last, and stores that
core.func @f(%x: !core.view<4x8xf32>, %y: !core.view<4x8xf32>) {
  %0 = core.load %x : !core.view<4x8xf32> -> !core.tile<4x8xf32>
  core.store %0, %x : !core.tile<4x8xf32>, !core.view<4x8xf32>
}
task.program @p mesh #task.mesh<tp = 2> {
  %x = task.input "x" : !task.tensor<8x8xf32, [shard(0)]>
  %y = task.call @f(%x) cuts <[0, 1]> : !task.tensor<8x8xf32, [shard(0)]> -> !task.tensor<8x8xf32, [shard(0)]>
  task.output "y", %y : !task.tensor<8x8xf32, [shard(0)]>
}
// -----
// CHECK: Expected integer literal
core.func @f(%x: !core.view<4x8xf32>, %y: !core.view<4x8xf32>) {
  %0 = core.load %x : !core.view<4x8xf32> -> !core.tile<4x8xf32>
  core.store %0, %y : !core.tile<4x8xf32>, !core.view<4x8xf32>
}
task.program @p mesh #task.mesh<tp = 2> {
  %x = task.input "x" : !task.tensor<8x8xf32, [shard(0)]>
  %y = task.call @f(%x) cuts <[0, d]> : !task.tensor<8x8xf32, [shard(0)]> -> !task.tensor<8x8xf32, [shard(0)]>
  task.output "y", %y : !task.tensor<8x8xf32, [shard(0)]>
}
