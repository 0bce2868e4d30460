// RUN: ditron-opt %s | ditron-opt | filecheck %s
// RUN: ditron-opt %s --print-op-generic | ditron-opt | filecheck %s

// CHECK-LABEL: core.func @softmax
core.func @softmax(%x: !core.view<8x4xf32>, %y: !core.view<8x4xf32>) {
  %0 = core.load %x : !core.view<8x4xf32> -> !core.tile<8x4xf32>
  // CHECK: %[[MAX:.*]] = core.max %[[X:.*]] dim 1 : !core.tile<8x4xf32> -> !core.tile<8x1xf32>
  %1 = core.max %0 dim 1 : !core.tile<8x4xf32> -> !core.tile<8x1xf32>
  %2 = core.sub %0, %1 : !core.tile<8x4xf32>, !core.tile<8x1xf32> -> !core.tile<8x4xf32>
  %3 = core.exp %2 : !core.tile<8x4xf32> -> !core.tile<8x4xf32>
  // CHECK: %[[SUM:.*]] = core.sum %[[P:.*]] dim 1 : !core.tile<8x4xf32> -> !core.tile<8x1xf32>
  %4 = core.sum %3 dim 1 : !core.tile<8x4xf32> -> !core.tile<8x1xf32>
  // CHECK-NEXT: core.div %[[P]], %[[SUM]] : !core.tile<8x4xf32>, !core.tile<8x1xf32> -> !core.tile<8x4xf32>
  %5 = core.div %3, %4 : !core.tile<8x4xf32>, !core.tile<8x1xf32> -> !core.tile<8x4xf32>
  // CHECK-NEXT: core.rsqrt
  %6 = core.rsqrt %5 : !core.tile<8x4xf32> -> !core.tile<8x4xf32>
  core.store %6, %y : !core.tile<8x4xf32>, !core.view<8x4xf32>
}

// CHECK-LABEL: core.func @rows
// CHECK-SAME: (%ids: !core.view<5xi32>, %table: !core.view<16x4xf32>, %y: !core.view<5x4xf32>, %first: index)
core.func @rows(%ids: !core.view<5xi32>, %table: !core.view<16x4xf32>, %y: !core.view<5x4xf32>, %first: index) {
  %0 = core.load %ids : !core.view<5xi32> -> !core.tile<5xi32>
  // CHECK: %[[FIRST:.*]] = core.index %first -> !core.tile<1xi32>
  %1 = core.index %first -> !core.tile<1xi32>
  // CHECK-NEXT: %[[OWN:.*]] = core.sub
  %2 = core.sub %0, %1 : !core.tile<5xi32>, !core.tile<1xi32> -> !core.tile<5xi32>
  // CHECK-NEXT: core.gather %table[%[[OWN]]] : !core.view<16x4xf32>, !core.tile<5xi32> -> !core.tile<5x4xf32>
  %3 = core.gather %table[%2] : !core.view<16x4xf32>, !core.tile<5xi32> -> !core.tile<5x4xf32>
  core.store %3, %y : !core.tile<5x4xf32>, !core.view<5x4xf32>
}

// CHECK-LABEL: core.func @parts
core.func @parts(%at: !core.view<1xi32>, %x: !core.view<8x4xf32>, %y: !core.view<8x4xf32>) {
  %0 = core.load %at : !core.view<1xi32> -> !core.tile<1xi32>
  // CHECK: core.load_at %x[%{{.*}}] dim 0 : !core.view<8x4xf32>, !core.tile<1xi32> -> !core.tile<2x4xf32>
  %1 = core.load_at %x[%0] dim 0 : !core.view<8x4xf32>, !core.tile<1xi32> -> !core.tile<2x4xf32>
  // CHECK-NEXT: core.store_at %{{.*}}, %y[%{{.*}}] dim 0 : !core.tile<2x4xf32>, !core.view<8x4xf32>, !core.tile<1xi32>
  core.store_at %1, %y[%0] dim 0 : !core.tile<2x4xf32>, !core.view<8x4xf32>, !core.tile<1xi32>
}

// CHECK-LABEL: core.func @masked_argmax
core.func @masked_argmax(%x: !core.view<8x4xf32>, %y: !core.view<4x1xi64>) {
  %0 = core.load %x : !core.view<8x4xf32> -> !core.tile<8x4xf32>
  // CHECK: core.iota %{{.*}} dim 0 : !core.tile<8x4xf32> -> !core.tile<8x1xi32>
  %1 = core.iota %0 dim 0 : !core.tile<8x4xf32> -> !core.tile<8x1xi32>
  %2 = core.constant 3 : i32 -> !core.tile<1x1xi32>
  // CHECK: %[[SEES:.*]] = core.le %{{.*}}, %{{.*}} : !core.tile<8x1xi32>, !core.tile<1x1xi32> -> !core.tile<8x1xi1>
  %3 = core.le %1, %2 : !core.tile<8x1xi32>, !core.tile<1x1xi32> -> !core.tile<8x1xi1>
  %4 = core.constant 0.0 : f32 -> !core.tile<1x1xf32>
  // CHECK: core.where %[[SEES]], %{{.*}}, %{{.*}} : !core.tile<8x1xi1>, !core.tile<8x4xf32>, !core.tile<1x1xf32> -> !core.tile<8x4xf32>
  %5 = core.where %3, %0, %4 : !core.tile<8x1xi1>, !core.tile<8x4xf32>, !core.tile<1x1xf32> -> !core.tile<8x4xf32>
  %6 = core.iota %5 dim 0 : !core.tile<8x4xf32> -> !core.tile<8x1xi64>
  // CHECK: core.argmax %{{.*}} labels %{{.*}} dim 0 : !core.tile<8x4xf32>, !core.tile<8x1xi64> -> !core.tile<1x4xi64>
  %7 = core.argmax %5 labels %6 dim 0 : !core.tile<8x4xf32>, !core.tile<8x1xi64> -> !core.tile<1x4xi64>
  // CHECK-NEXT: core.transpose %{{.*}} dims 0, 1 : !core.tile<1x4xi64> -> !core.tile<4x1xi64>
  %8 = core.transpose %7 dims 0, 1 : !core.tile<1x4xi64> -> !core.tile<4x1xi64>
  core.store %8, %y : !core.tile<4x1xi64>, !core.view<4x1xi64>
}

// CHECK-LABEL: core.func @turned
core.func @turned(%x: !core.view<8x4xf32>, %y: !core.view<8x4xf32>) {
  %0 = core.load %x : !core.view<8x4xf32> -> !core.tile<8x4xf32>
  // CHECK: core.swap_halves %{{.*}} dim 1 : !core.tile<8x4xf32> -> !core.tile<8x4xf32>
  %1 = core.swap_halves %0 dim 1 : !core.tile<8x4xf32> -> !core.tile<8x4xf32>
  core.store %1, %y : !core.tile<8x4xf32>, !core.view<8x4xf32>
}
