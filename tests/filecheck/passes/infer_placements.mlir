// RUN: ditron-opt %s -p 'infer-placements{insert=true}' | filecheck %s
// RUN: not ditron-opt %s -p infer-placements 2>&1 | filecheck %s --check-prefix=ERROR

// CHECK-LABEL: task.program @mlp
task.program @mlp mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8x6xbf16, [shard(1)]>
  %w = task.weight "w" : !task.tensor<6x4xbf16, [shard(0)]>
  // CHECK: %[[P:.*]] = task.matmul %{{.*}} -> !task.tensor<8x4xbf16, [partial(sum)]>
  %p = task.matmul %x, %w : !task.tensor<8x6xbf16, [shard(1)]>, !task.tensor<6x4xbf16, [shard(0)]> -> !task.tensor<8x4xbf16>
  // CHECK-NEXT: %[[Q:.*]] = task.all_reduce %[[P]] axis "tp" : !task.tensor<8x4xbf16, [partial(sum)]> -> !task.tensor<8x4xbf16, [replicate]>
  // CHECK-NEXT: %[[A:.*]] = task.silu %[[Q]] : !task.tensor<8x4xbf16, [replicate]> -> !task.tensor<8x4xbf16, [replicate]>
  // ERROR: infer_placements.mlir:[[# @LINE + 1]]: error: silu has no rule for x [partial(sum)]; to mend it use all_reduce(x)
  %a = task.silu %p : !task.tensor<8x4xbf16> -> !task.tensor<8x4xbf16>
  // The same need is met once.
  // CHECK-NEXT: %[[B:.*]] = task.mul %[[A]], %[[P]] : {{.*}} -> !task.tensor<8x4xbf16, [partial(sum)]>
  %b = task.mul %a, %p : !task.tensor<8x4xbf16>, !task.tensor<8x4xbf16> -> !task.tensor<8x4xbf16>
  // CHECK-NEXT: %[[C:.*]] = task.exp %[[Q]] :
  %c = task.exp %p : !task.tensor<8x4xbf16> -> !task.tensor<8x4xbf16>
  // CHECK-NEXT: task.output "b", %[[B]] : !task.tensor<8x4xbf16, [partial(sum)]>
  task.output "b", %b : !task.tensor<8x4xbf16>
  // CHECK-NEXT: task.output "c", %[[C]] : !task.tensor<8x4xbf16, [replicate]>
  task.output "c", %c : !task.tensor<8x4xbf16>
}
