// RUN: ditron-opt %s | filecheck %s
// RUN: ditron-opt %s | ditron-opt | filecheck %s
// RUN: ditron-opt %s --print-op-generic | ditron-opt | filecheck %s

// CHECK-LABEL: task.program @attention mesh #task.mesh<tp = 2> {
task.program @attention mesh #task.mesh<tp = 2> {
  %q = task.input "q" : !task.tensor<1x1x8x16xbf16, [shard(2)]>
  %k = task.state "k" : !task.tensor<1x64x2x16xbf16, [shard(2)]>
  %v = task.state "v" : !task.tensor<1x64x2x16xbf16, [shard(2)]>
  %pos = task.scalar "pos" max 63 : !task.tensor<1xi32, [replicate]>
  %x = task.input "x" : !task.tensor<1x4x8xf32, [shard(1)]>
  %l = task.input "l" : !task.tensor<1x4x8xi32, [replicate]>
  // CHECK: %[[A:.*]] = task.attention %{{.*}}, %{{.*}}, %{{.*}} causal at 0 plus %{{.*}} scale 2.500000e-01 name "attend" choice #task.choice<tile 8x64> : !task.tensor<1x1x8x16xbf16, [shard(2)]>, !task.tensor<1x64x2x16xbf16, [shard(2)]>, !task.tensor<1x64x2x16xbf16, [shard(2)]>, !task.tensor<1xi32, [replicate]> -> !task.tensor<1x1x8x16xbf16, [shard(2)]>
  %a = task.attention %q, %k, %v causal at 0 plus %pos scale 0.25 name "attend" choice #task.choice<tile 8x64> : !task.tensor<1x1x8x16xbf16, [shard(2)]>, !task.tensor<1x64x2x16xbf16, [shard(2)]>, !task.tensor<1x64x2x16xbf16, [shard(2)]>, !task.tensor<1xi32, [replicate]> -> !task.tensor<1x1x8x16xbf16, [shard(2)]>
  // CHECK-NEXT: %[[B:.*]] = task.attention %[[A]], %{{.*}}, %{{.*}} at 63 scale 1.000000e+00 : !task.tensor<1x1x8x16xbf16, [shard(2)]>, !task.tensor<1x64x2x16xbf16, [shard(2)]>, !task.tensor<1x64x2x16xbf16, [shard(2)]> -> !task.tensor<1x1x8x16xbf16, [shard(2)]>
  %b = task.attention %a, %k, %v at 63 scale 1.0 : !task.tensor<1x1x8x16xbf16, [shard(2)]>, !task.tensor<1x64x2x16xbf16, [shard(2)]>, !task.tensor<1x64x2x16xbf16, [shard(2)]> -> !task.tensor<1x1x8x16xbf16, [shard(2)]>
  // CHECK-NEXT: %[[M:.*]] = task.amax %{{.*}} dim 2 name "best" : !task.tensor<1x4x8xf32, [shard(1)]> -> !task.tensor<1x4x1xf32, [shard(1)]>
  %m = task.amax %x dim 2 name "best" : !task.tensor<1x4x8xf32, [shard(1)]> -> !task.tensor<1x4x1xf32, [shard(1)]>
  // CHECK-NEXT: %[[I:.*]] = task.argmax %{{.*}} labels %{{.*}} dim 2 name "which" : !task.tensor<1x4x8xf32, [shard(1)]>, !task.tensor<1x4x8xi32, [replicate]> -> !task.tensor<1x4x1xi32, [shard(1)]>
  %i = task.argmax %x labels %l dim 2 name "which" : !task.tensor<1x4x8xf32, [shard(1)]>, !task.tensor<1x4x8xi32, [replicate]> -> !task.tensor<1x4x1xi32, [shard(1)]>
  // CHECK-NEXT: %[[J:.*]] = task.argmax %[[M]] dim 2 : !task.tensor<1x4x1xf32, [shard(1)]> -> !task.tensor<1x4x1xi64, [shard(1)]>
  %j = task.argmax %m dim 2 : !task.tensor<1x4x1xf32, [shard(1)]> -> !task.tensor<1x4x1xi64, [shard(1)]>
  // CHECK-NEXT: %[[P:.*]] = task.attention_parts %[[A]], %{{.*}}, %{{.*}} at 0 plus %{{.*}} scale 2.500000e-01 places 24 name "parts" : !task.tensor<1x1x8x16xbf16, [shard(2)]>, !task.tensor<1x64x2x16xbf16, [shard(2)]>, !task.tensor<1x64x2x16xbf16, [shard(2)]>, !task.tensor<1xi32, [replicate]> -> !task.tensor<1x3x8x18xf32, [shard(2)]>
  %p = task.attention_parts %a, %k, %v at 0 plus %pos scale 0.25 places 24 name "parts" : !task.tensor<1x1x8x16xbf16, [shard(2)]>, !task.tensor<1x64x2x16xbf16, [shard(2)]>, !task.tensor<1x64x2x16xbf16, [shard(2)]>, !task.tensor<1xi32, [replicate]> -> !task.tensor<1x3x8x18xf32, [shard(2)]>
  // CHECK-NEXT: %[[S:.*]] = task.slice %[[P]] dim 3 at 0 size 16
  %s = task.slice %p dim 3 at 0 size 16 : !task.tensor<1x3x8x18xf32, [shard(2)]> -> !task.tensor<1x3x8x16xf32, [shard(2)]>
  // CHECK-NEXT: %[[T:.*]] = task.slice %[[P]] dim 3 at 16 size 1
  %t = task.slice %p dim 3 at 16 size 1 : !task.tensor<1x3x8x18xf32, [shard(2)]> -> !task.tensor<1x3x8x1xf32, [shard(2)]>
  // CHECK-NEXT: task.attention_join %[[S]], %[[T]], %[[T]] name "join" : !task.tensor<1x3x8x16xf32, [shard(2)]>, !task.tensor<1x3x8x1xf32, [shard(2)]>, !task.tensor<1x3x8x1xf32, [shard(2)]> -> !task.tensor<1x1x8x16xbf16, [shard(2)]>
  %c = task.attention_join %s, %t, %t name "join" : !task.tensor<1x3x8x16xf32, [shard(2)]>, !task.tensor<1x3x8x1xf32, [shard(2)]>, !task.tensor<1x3x8x1xf32, [shard(2)]> -> !task.tensor<1x1x8x16xbf16, [shard(2)]>
  task.output "c", %c : !task.tensor<1x1x8x16xbf16, [shard(2)]>
  task.output "b", %b : !task.tensor<1x1x8x16xbf16, [shard(2)]>
  task.output "i", %i : !task.tensor<1x4x1xi32, [shard(1)]>
  task.output "j", %j : !task.tensor<1x4x1xi64, [shard(1)]>
}
