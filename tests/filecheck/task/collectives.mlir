// RUN: ditron-opt %s | filecheck %s
// RUN: ditron-opt %s | ditron-opt | filecheck %s
// RUN: ditron-opt %s --print-op-generic | ditron-opt | filecheck %s

// CHECK-LABEL: task.program @one_axis mesh #task.mesh<tp = 4> {
task.program @one_axis mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<10x8xbf16, [shard(0)]>
  // CHECK: %[[A:.*]] = task.all_to_all %{{.*}} split 1 concat 0 axis "tp" name "to_heads" choice #task.choice<mesh push> : !task.tensor<10x8xbf16, [shard(0)]> -> !task.tensor<10x8xbf16, [shard(1)]>
  %a = task.all_to_all %x split 1 concat 0 axis "tp" name "to_heads" choice #task.choice<mesh push> : !task.tensor<10x8xbf16, [shard(0)]> -> !task.tensor<10x8xbf16, [shard(1)]>
  // CHECK-NEXT: %[[S:.*]] = task.shift %[[A]] dim 1 by -1 axis "tp" : !task.tensor<10x8xbf16, [shard(1)]> -> !task.tensor<10x8xbf16, [shard(1)]>
  %s = task.shift %a dim 1 by -1 axis "tp" : !task.tensor<10x8xbf16, [shard(1)]> -> !task.tensor<10x8xbf16, [shard(1)]>
  // CHECK-NEXT: %[[B:.*]] = task.broadcast %{{.*}} dim 0 root 3 axis "tp" : !task.tensor<10x8xbf16, [shard(0)]> -> !task.tensor<1x8xbf16, [replicate]>
  %b = task.broadcast %x dim 0 root 3 axis "tp" : !task.tensor<10x8xbf16, [shard(0)]> -> !task.tensor<1x8xbf16, [replicate]>
  // CHECK-NEXT: %[[C:.*]] = task.shard %[[B]] dim 1 axis "tp" name "mine" : !task.tensor<1x8xbf16, [replicate]> -> !task.tensor<1x8xbf16, [shard(1)]>
  %c = task.shard %b dim 1 axis "tp" name "mine" : !task.tensor<1x8xbf16, [replicate]> -> !task.tensor<1x8xbf16, [shard(1)]>
  task.output "s", %s : !task.tensor<10x8xbf16, [shard(1)]>
  task.output "c", %c : !task.tensor<1x8xbf16, [shard(1)]>
}

// A collective runs in each group along its axis; a dimension on two axes is cut by dp first.
// CHECK-LABEL: task.program @two_axes mesh #task.mesh<dp = 2, tp = 4> {
task.program @two_axes mesh #task.mesh<dp = 2, tp = 4> {
  %x = task.input "x" : !task.tensor<16x8xf32, [shard(0), shard(0)]>
  %w = task.weight "w" : !task.tensor<8x16xf32, [shard(1), shard(0)]>
  // CHECK: %[[G:.*]] = task.all_gather %{{.*}} dim 0 axis "tp" : !task.tensor<16x8xf32, [shard(0), shard(0)]> -> !task.tensor<16x8xf32, [shard(0), replicate]>
  %g = task.all_gather %x dim 0 axis "tp" : !task.tensor<16x8xf32, [shard(0), shard(0)]> -> !task.tensor<16x8xf32, [shard(0), replicate]>
  // CHECK-NEXT: %[[H:.*]] = task.all_gather %[[G]] dim 0 axis "dp" :
  %h = task.all_gather %g dim 0 axis "dp" : !task.tensor<16x8xf32, [shard(0), replicate]> -> !task.tensor<16x8xf32, [replicate, replicate]>
  // CHECK-NEXT: %[[K:.*]] = task.shard %[[H]] dim 1 axis "tp" :
  %k = task.shard %h dim 1 axis "tp" : !task.tensor<16x8xf32, [replicate, replicate]> -> !task.tensor<16x8xf32, [replicate, shard(1)]>
  // CHECK-NEXT: %[[P:.*]] = task.matmul %[[K]], %{{.*}} -> !task.tensor<16x16xf32, [shard(1), partial(sum)]>
  %p = task.matmul %k, %w : !task.tensor<16x8xf32, [replicate, shard(1)]>, !task.tensor<8x16xf32, [shard(1), shard(0)]> -> !task.tensor<16x16xf32, [shard(1), partial(sum)]>
  // CHECK-NEXT: task.reduce_scatter %[[P]] dim 1 axis "tp" : !task.tensor<16x16xf32, [shard(1), partial(sum)]> -> !task.tensor<16x16xf32, [shard(1), shard(1)]>
  %y = task.reduce_scatter %p dim 1 axis "tp" : !task.tensor<16x16xf32, [shard(1), partial(sum)]> -> !task.tensor<16x16xf32, [shard(1), shard(1)]>
  task.output "y", %y : !task.tensor<16x16xf32, [shard(1), shard(1)]>
}
