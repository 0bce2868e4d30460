// RUN: ditron-opt %s | filecheck %s
// RUN: ditron-opt %s | ditron-opt | filecheck %s
// RUN: ditron-opt %s --print-op-generic | ditron-opt | filecheck %s

// CHECK-LABEL: task.program @views mesh #task.mesh<tp = 4> {
task.program @views mesh #task.mesh<tp = 4> {
  // CHECK-NEXT: %[[X:.*]] = task.input "x"
  %x = task.input "x" : !task.tensor<6x32xbf16, [shard(1)]>
  // CHECK-NEXT: %[[K:.*]] = task.state "k" : !task.tensor<64x8x4xbf16, [shard(1)]>
  %k = task.state "k" : !task.tensor<64x8x4xbf16, [shard(1)]>
  // CHECK-NEXT: %[[P:.*]] = task.scalar "pos" max 58 : !task.tensor<1xi32, [replicate]>
  %pos = task.scalar "pos" max 58 : !task.tensor<1xi32, [replicate]>
  // CHECK-NEXT: %[[T:.*]] = task.scalar "temperature" : !task.tensor<1xf32, [replicate]>
  %temp = task.scalar "temperature" : !task.tensor<1xf32, [replicate]>
  // CHECK-NEXT: %[[H:.*]] = task.reshape %[[X]] name "heads" : !task.tensor<6x32xbf16, [shard(1)]> -> !task.tensor<6x8x4xbf16, [shard(1)]>
  %h = task.reshape %x name "heads" : !task.tensor<6x32xbf16, [shard(1)]> -> !task.tensor<6x8x4xbf16, [shard(1)]>
  // CHECK-NEXT: %[[U:.*]] = task.update %[[K]], %[[H]] dim 0 at 0 plus %[[P]] name "cache" choice #task.choice<tile 8x8> : !task.tensor<64x8x4xbf16, [shard(1)]>, !task.tensor<6x8x4xbf16, [shard(1)]>, !task.tensor<1xi32, [replicate]> -> !task.tensor<64x8x4xbf16, [shard(1)]>
  %u = task.update %k, %h dim 0 at 0 plus %pos name "cache" choice #task.choice<tile 8x8> : !task.tensor<64x8x4xbf16, [shard(1)]>, !task.tensor<6x8x4xbf16, [shard(1)]>, !task.tensor<1xi32, [replicate]> -> !task.tensor<64x8x4xbf16, [shard(1)]>
  // CHECK-NEXT: %[[V:.*]] = task.update %[[U]], %[[H]] dim 0 at 58 : !task.tensor<64x8x4xbf16, [shard(1)]>, !task.tensor<6x8x4xbf16, [shard(1)]> -> !task.tensor<64x8x4xbf16, [shard(1)]>
  %v = task.update %u, %h dim 0 at 58 : !task.tensor<64x8x4xbf16, [shard(1)]>, !task.tensor<6x8x4xbf16, [shard(1)]> -> !task.tensor<64x8x4xbf16, [shard(1)]>
  // CHECK-NEXT: %[[S:.*]] = task.slice %[[V]] dim 0 at 0 size 6 name "first" : !task.tensor<64x8x4xbf16, [shard(1)]> -> !task.tensor<6x8x4xbf16, [shard(1)]>
  %s = task.slice %v dim 0 at 0 size 6 name "first" : !task.tensor<64x8x4xbf16, [shard(1)]> -> !task.tensor<6x8x4xbf16, [shard(1)]>
  // CHECK-NEXT: %[[W:.*]] = task.slice %[[V]] dim 0 at 2 plus %[[P]] size 4 : !task.tensor<64x8x4xbf16, [shard(1)]>, !task.tensor<1xi32, [replicate]> -> !task.tensor<4x8x4xbf16, [shard(1)]>
  %w = task.slice %v dim 0 at 2 plus %pos size 4 : !task.tensor<64x8x4xbf16, [shard(1)]>, !task.tensor<1xi32, [replicate]> -> !task.tensor<4x8x4xbf16, [shard(1)]>
  // CHECK-NEXT: %[[C:.*]] = task.concat %[[S]], %[[W]] dim 0 name "both" : !task.tensor<6x8x4xbf16, [shard(1)]>, !task.tensor<4x8x4xbf16, [shard(1)]> -> !task.tensor<10x8x4xbf16, [shard(1)]>
  %c = task.concat %s, %w dim 0 name "both" : !task.tensor<6x8x4xbf16, [shard(1)]>, !task.tensor<4x8x4xbf16, [shard(1)]> -> !task.tensor<10x8x4xbf16, [shard(1)]>
  // CHECK-NEXT: %[[Y:.*]] = task.transpose %[[C]] dims 0, 1 name "turned" : !task.tensor<10x8x4xbf16, [shard(1)]> -> !task.tensor<8x10x4xbf16, [shard(0)]>
  %y = task.transpose %c dims 0, 1 name "turned" : !task.tensor<10x8x4xbf16, [shard(1)]> -> !task.tensor<8x10x4xbf16, [shard(0)]>
  task.output "y", %y : !task.tensor<8x10x4xbf16, [shard(0)]>
  task.output "t", %temp : !task.tensor<1xf32, [replicate]>
}
