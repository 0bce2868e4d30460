// RUN: ditron-opt %s -p 'split-sums{splits=3}' | filecheck %s
// RUN: ditron-opt %s -p 'split-sums{machine=h200}' | filecheck %s --check-prefix=COST
// RUN: ditron-opt %s -p 'split-sums' | filecheck %s --check-prefix=WHOLE

// Three ranges of 171 places; a prompt stays whole.
// CHECK-LABEL: task.program @p
// CHECK: %[[P:.*]] = task.attention_parts %{{.*}}, %{{.*}}, %{{.*}} at 0 plus %{{.*}} scale 8.838800e-02 places 171 name "attend.parts" choice #task.choice<tile 4x128> : {{.*}} -> !task.tensor<1x3x32x130xf32, [replicate]>
// CHECK-NEXT: %[[O:.*]] = task.slice %[[P]] dim 3 at 0 size 128 : {{.*}} -> !task.tensor<1x3x32x128xf32, [replicate]>
// CHECK-NEXT: %[[M:.*]] = task.slice %[[P]] dim 3 at 128 size 1 : {{.*}} -> !task.tensor<1x3x32x1xf32, [replicate]>
// CHECK-NEXT: %[[L:.*]] = task.slice %[[P]] dim 3 at 129 size 1 : {{.*}} -> !task.tensor<1x3x32x1xf32, [replicate]>
// CHECK-NEXT: %[[Y:.*]] = task.attention_join %[[O]], %[[M]], %[[L]] name "attend" : {{.*}} -> !task.tensor<1x1x32x128xbf16, [replicate]>
// CHECK-NEXT: task.attention %{{.*}}, %{{.*}}, %{{.*}} causal at 0 scale
// CHECK-NEXT: task.output "y", %[[Y]]

// COST: places 32 name "attend.parts" choice #task.choice<tile 4x128 cost_ns {{[0-9]+}} over "all in one" {{[0-9]+}}>
// WHOLE-NOT: task.attention_parts

task.program @p mesh #task.mesh<tp = 1> {
  %pos = task.scalar "pos" max 511 : !task.tensor<1xi32, [replicate]>
  %q = task.input "q" : !task.tensor<1x1x32x128xbf16, [replicate]>
  %r = task.input "r" : !task.tensor<1x16x32x128xbf16, [replicate]>
  %k = task.input "k" : !task.tensor<1x512x8x128xbf16, [replicate]>
  %y = task.attention %q, %k, %k causal at 0 plus %pos scale 0.088388 name "attend" : !task.tensor<1x1x32x128xbf16, [replicate]>, !task.tensor<1x512x8x128xbf16, [replicate]>, !task.tensor<1x512x8x128xbf16, [replicate]>, !task.tensor<1xi32, [replicate]> -> !task.tensor<1x1x32x128xbf16, [replicate]>
  %z = task.attention %r, %k, %k causal at 0 scale 0.088388 : !task.tensor<1x16x32x128xbf16, [replicate]>, !task.tensor<1x512x8x128xbf16, [replicate]>, !task.tensor<1x512x8x128xbf16, [replicate]> -> !task.tensor<1x16x32x128xbf16, [replicate]>
  task.output "y", %y : !task.tensor<1x1x32x128xbf16, [replicate]>
  task.output "z", %z : !task.tensor<1x16x32x128xbf16, [replicate]>
}
