// RUN: ditron-opt %s | filecheck %s
// RUN: ditron-opt %s | ditron-opt | filecheck %s
// RUN: ditron-opt %s --print-op-generic | ditron-opt | filecheck %s

// CHECK-LABEL: task.program @ops mesh #task.mesh<tp = 4> {
task.program @ops mesh #task.mesh<tp = 4> {
  // CHECK-NEXT: %[[X:.*]] = task.input "x" : !task.tensor<0x256xbf16, [shard(0)]>
  %x = task.input "x" : !task.tensor<0x256xbf16, [shard(0)]>
  // CHECK-NEXT: %[[W:.*]] = task.weight "layers.0.w" : !task.tensor<256x384xbf16, [shard(1)]>
  %w = task.weight "layers.0.w" : !task.tensor<256x384xbf16, [shard(1)]>
  // CHECK-NEXT: %[[V:.*]] = task.weight "v" : !task.tensor<64x384xbf16, [shard(1)]>
  %v = task.weight "v" : !task.tensor<64x384xbf16, [shard(1)]>
  // CHECK-NEXT: %[[B:.*]] = task.weight "b" : !task.tensor<1x384xbf16, [replicate]>
  %b = task.weight "b" : !task.tensor<1x384xbf16, [replicate]>
  // CHECK-NEXT: %[[G:.*]] = task.all_gather %[[X]] dim 0 axis "tp" name "layers.0.gather" choice #task.choice<mesh in-place chunk 64> : !task.tensor<0x256xbf16, [shard(0)]> -> !task.tensor<0x256xbf16, [replicate]>
  %g = task.all_gather %x dim 0 axis "tp" name "layers.0.gather" choice #task.choice<mesh in-place chunk 64> : !task.tensor<0x256xbf16, [shard(0)]> -> !task.tensor<0x256xbf16, [replicate]>
  // CHECK-NEXT: %[[M:.*]] = task.matmul %[[G]], %[[W]] name "layers.0.up" choice #task.choice<tile 128x256> : !task.tensor<0x256xbf16, [replicate]>, !task.tensor<256x384xbf16, [shard(1)]> -> !task.tensor<0x384xbf16, [shard(1)]>
  %m = task.matmul %g, %w name "layers.0.up" choice #task.choice<tile 128x256> : !task.tensor<0x256xbf16, [replicate]>, !task.tensor<256x384xbf16, [shard(1)]> -> !task.tensor<0x384xbf16, [shard(1)]>
  // CHECK-NEXT: %[[A:.*]] = task.add %[[M]], %[[B]] : !task.tensor<0x384xbf16, [shard(1)]>, !task.tensor<1x384xbf16, [replicate]> -> !task.tensor<0x384xbf16, [shard(1)]>
  %a = task.add %m, %b : !task.tensor<0x384xbf16, [shard(1)]>, !task.tensor<1x384xbf16, [replicate]> -> !task.tensor<0x384xbf16, [shard(1)]>
  // CHECK-NEXT: %[[S:.*]] = task.sub %[[A]], %[[M]] :
  %s = task.sub %a, %m : !task.tensor<0x384xbf16, [shard(1)]>, !task.tensor<0x384xbf16, [shard(1)]> -> !task.tensor<0x384xbf16, [shard(1)]>
  // CHECK-NEXT: %[[P:.*]] = task.mul %[[S]], %[[A]] name "gate" :
  %p = task.mul %s, %a name "gate" : !task.tensor<0x384xbf16, [shard(1)]>, !task.tensor<0x384xbf16, [shard(1)]> -> !task.tensor<0x384xbf16, [shard(1)]>
  // CHECK-NEXT: %[[U0:.*]] = task.silu %[[P]] : !task.tensor<0x384xbf16, [shard(1)]> -> !task.tensor<0x384xbf16, [shard(1)]>
  %u0 = task.silu %p : !task.tensor<0x384xbf16, [shard(1)]> -> !task.tensor<0x384xbf16, [shard(1)]>
  // CHECK-NEXT: %[[U1:.*]] = task.gelu %[[U0]] :
  %u1 = task.gelu %u0 : !task.tensor<0x384xbf16, [shard(1)]> -> !task.tensor<0x384xbf16, [shard(1)]>
  // CHECK-NEXT: %[[U2:.*]] = task.relu %[[U1]] :
  %u2 = task.relu %u1 : !task.tensor<0x384xbf16, [shard(1)]> -> !task.tensor<0x384xbf16, [shard(1)]>
  // CHECK-NEXT: %[[U3:.*]] = task.exp %[[U2]] choice #task.choice<> :
  %u3 = task.exp %u2 choice #task.choice<> : !task.tensor<0x384xbf16, [shard(1)]> -> !task.tensor<0x384xbf16, [shard(1)]>
  // CHECK-NEXT: %[[T:.*]] = task.matmul %[[U3]], %[[V]] transpose_b : !task.tensor<0x384xbf16, [shard(1)]>, !task.tensor<64x384xbf16, [shard(1)]> -> !task.tensor<0x64xbf16, [partial(sum)]>
  %t = task.matmul %u3, %v transpose_b : !task.tensor<0x384xbf16, [shard(1)]>, !task.tensor<64x384xbf16, [shard(1)]> -> !task.tensor<0x64xbf16, [partial(sum)]>
  // CHECK-NEXT: %[[R:.*]] = task.reduce_scatter %[[T]] dim 1 axis "tp" choice #task.choice<mesh push chunk 8> : !task.tensor<0x64xbf16, [partial(sum)]> -> !task.tensor<0x64xbf16, [shard(1)]>
  %r = task.reduce_scatter %t dim 1 axis "tp" choice #task.choice<mesh push chunk 8> : !task.tensor<0x64xbf16, [partial(sum)]> -> !task.tensor<0x64xbf16, [shard(1)]>
  // CHECK-NEXT: %[[C:.*]] = task.cast %[[T]] : !task.tensor<0x64xbf16, [partial(sum)]> -> !task.tensor<0x64xf32, [partial(sum)]>
  %c = task.cast %t : !task.tensor<0x64xbf16, [partial(sum)]> -> !task.tensor<0x64xf32, [partial(sum)]>
  // CHECK-NEXT: %[[D:.*]] = task.all_reduce %[[C]] axis "tp" choice #task.choice<one-shot push> : !task.tensor<0x64xf32, [partial(sum)]> -> !task.tensor<0x64xf32, [replicate]>
  %d = task.all_reduce %c axis "tp" choice #task.choice<one-shot push> : !task.tensor<0x64xf32, [partial(sum)]> -> !task.tensor<0x64xf32, [replicate]>
  // CHECK-NEXT: task.output "y", %[[R]] : !task.tensor<0x64xbf16, [shard(1)]>
  task.output "y", %r : !task.tensor<0x64xbf16, [shard(1)]>
  // CHECK-NEXT: task.output "z", %[[D]] : !task.tensor<0x64xf32, [replicate]>
  task.output "z", %d : !task.tensor<0x64xf32, [replicate]>
}

// Placements may be left to infer-placements, and every element type is known.
// CHECK-LABEL: task.program @unplaced mesh #task.mesh<dp = 1> {
task.program @unplaced mesh #task.mesh<dp = 1> {
  // CHECK-NEXT: !task.tensor<8xi64, [replicate]>
  %x = task.input "x" : !task.tensor<8xi64, [replicate]>
  // CHECK-NEXT: task.cast %{{.*}} : !task.tensor<8xi64, [replicate]> -> !task.tensor<8xi32>
  %a = task.cast %x : !task.tensor<8xi64, [replicate]> -> !task.tensor<8xi32>
  // CHECK-NEXT: -> !task.tensor<8xi1>
  %b = task.cast %a : !task.tensor<8xi32> -> !task.tensor<8xi1>
  // CHECK-NEXT: -> !task.tensor<8xf16>
  %c = task.cast %b : !task.tensor<8xi1> -> !task.tensor<8xf16>
  task.output "y", %c : !task.tensor<8xf16>
}
