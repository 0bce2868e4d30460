// RUN: ditron-opt %s | filecheck %s
// RUN: ditron-opt %s --print-op-generic | ditron-opt | filecheck %s

// Leading dimensions are those of both operands, or of the first alone.
// CHECK-LABEL: task.program @batched mesh #task.mesh<dp = 2, tp = 2> {
task.program @batched mesh #task.mesh<dp = 2, tp = 2> {
  %a = task.input "a" : !task.tensor<4x6x8xf32, [shard(0), shard(2)]>
  %b = task.input "b" : !task.tensor<4x5x8xf32, [shard(0), shard(2)]>
  %w = task.weight "w" : !task.tensor<8x3xf32, [replicate, shard(0)]>
  // CHECK: %[[Y:.*]] = task.matmul %{{.*}}, %{{.*}} transpose_b : !task.tensor<4x6x8xf32, [shard(0), shard(2)]>, !task.tensor<4x5x8xf32, [shard(0), shard(2)]> -> !task.tensor<4x6x5xf32, [shard(0), partial(sum)]>
  %y = task.matmul %a, %b transpose_b : !task.tensor<4x6x8xf32, [shard(0), shard(2)]>, !task.tensor<4x5x8xf32, [shard(0), shard(2)]> -> !task.tensor<4x6x5xf32, [shard(0), partial(sum)]>
  // CHECK-NEXT: task.matmul %{{.*}}, %{{.*}} : !task.tensor<4x6x8xf32, [shard(0), shard(2)]>, !task.tensor<8x3xf32, [replicate, shard(0)]> -> !task.tensor<4x6x3xf32, [shard(0), partial(sum)]>
  %z = task.matmul %a, %w : !task.tensor<4x6x8xf32, [shard(0), shard(2)]>, !task.tensor<8x3xf32, [replicate, shard(0)]> -> !task.tensor<4x6x3xf32, [shard(0), partial(sum)]>
  task.output "y", %y : !task.tensor<4x6x5xf32, [shard(0), partial(sum)]>
  task.output "z", %z : !task.tensor<4x6x3xf32, [shard(0), partial(sum)]>
}
