// RUN: ditron-opt %s | ditron-opt | filecheck %s
// RUN: ditron-opt %s --print-op-generic | ditron-opt | filecheck %s

// CHECK-LABEL: core.func @matmul(%{{.*}}: !core.view<128x64xbf16>, %{{.*}}: !core.view<64x256xbf16>, %{{.*}}: !core.view<128x256xbf16>) {
core.func @matmul(%a: !core.view<128x64xbf16>, %b: !core.view<64x256xbf16>, %y: !core.view<128x256xbf16>) {
  // CHECK-NEXT: %[[A:.*]] = core.load %{{.*}} : !core.view<128x64xbf16> -> !core.tile<128x64xbf16>
  %0 = core.load %a : !core.view<128x64xbf16> -> !core.tile<128x64xbf16>
  // CHECK-NEXT: %[[B:.*]] = core.load
  %1 = core.load %b : !core.view<64x256xbf16> -> !core.tile<64x256xbf16>
  // CHECK-NEXT: %[[C:.*]] = core.dot %[[A]], %[[B]] : !core.tile<128x64xbf16>, !core.tile<64x256xbf16> -> !core.tile<128x256xf32>
  %2 = core.dot %0, %1 : !core.tile<128x64xbf16>, !core.tile<64x256xbf16> -> !core.tile<128x256xf32>
  // CHECK-NEXT: %[[D:.*]] = core.cast %[[C]] : !core.tile<128x256xf32> -> !core.tile<128x256xbf16>
  %3 = core.cast %2 : !core.tile<128x256xf32> -> !core.tile<128x256xbf16>
  // CHECK-NEXT: core.store %[[D]], %{{.*}} : !core.tile<128x256xbf16>, !core.view<128x256xbf16>
  core.store %3, %y : !core.tile<128x256xbf16>, !core.view<128x256xbf16>
}

// CHECK-LABEL: core.func @transposed
core.func @transposed(%a: !core.view<8x4xf32>, %b: !core.view<6x4xf32>, %y: !core.view<8x6xf32>) {
  %0 = core.load %a : !core.view<8x4xf32> -> !core.tile<8x4xf32>
  %1 = core.load %b : !core.view<6x4xf32> -> !core.tile<6x4xf32>
  // CHECK: core.dot %{{.*}}, %{{.*}} transpose_b : !core.tile<8x4xf32>, !core.tile<6x4xf32> -> !core.tile<8x6xf32>
  %2 = core.dot %0, %1 transpose_b : !core.tile<8x4xf32>, !core.tile<6x4xf32> -> !core.tile<8x6xf32>
  core.store %2, %y : !core.tile<8x6xf32>, !core.view<8x6xf32>
}

// CHECK-LABEL: core.func @pointwise
core.func @pointwise(%a: !core.view<8x4xf32>, %b: !core.view<8x1xf32>, %y: !core.view<8x4xf32>) {
  %0 = core.load %a : !core.view<8x4xf32> -> !core.tile<8x4xf32>
  %1 = core.load %b : !core.view<8x1xf32> -> !core.tile<8x1xf32>
  // CHECK: core.add %{{.*}}, %{{.*}} : !core.tile<8x4xf32>, !core.tile<8x1xf32> -> !core.tile<8x4xf32>
  %2 = core.add %0, %1 : !core.tile<8x4xf32>, !core.tile<8x1xf32> -> !core.tile<8x4xf32>
  // CHECK-NEXT: core.sub
  %3 = core.sub %2, %0 : !core.tile<8x4xf32>, !core.tile<8x4xf32> -> !core.tile<8x4xf32>
  // CHECK-NEXT: core.mul
  %4 = core.mul %1, %3 : !core.tile<8x1xf32>, !core.tile<8x4xf32> -> !core.tile<8x4xf32>
  // CHECK-NEXT: core.silu %{{.*}} : !core.tile<8x4xf32> -> !core.tile<8x4xf32>
  %5 = core.silu %4 : !core.tile<8x4xf32> -> !core.tile<8x4xf32>
  // CHECK-NEXT: core.gelu
  %6 = core.gelu %5 : !core.tile<8x4xf32> -> !core.tile<8x4xf32>
  // CHECK-NEXT: core.relu
  %7 = core.relu %6 : !core.tile<8x4xf32> -> !core.tile<8x4xf32>
  // CHECK-NEXT: core.exp
  %8 = core.exp %7 : !core.tile<8x4xf32> -> !core.tile<8x4xf32>
  core.store %8, %y : !core.tile<8x4xf32>, !core.view<8x4xf32>
}

// An integer tile may be clamped; the rest of arithmetic works on it too.
// CHECK-LABEL: core.func @integers
core.func @integers(%a: !core.view<4xi32>, %y: !core.view<4xi32>) {
  %0 = core.load %a : !core.view<4xi32> -> !core.tile<4xi32>
  // CHECK: core.relu %{{.*}} : !core.tile<4xi32> -> !core.tile<4xi32>
  %1 = core.relu %0 : !core.tile<4xi32> -> !core.tile<4xi32>
  core.store %1, %y : !core.tile<4xi32>, !core.view<4xi32>
}

// CHECK-LABEL: core.func @nothing(%{{.*}}: !core.view<4xf32>) {
// CHECK-NEXT: }
core.func @nothing(%a: !core.view<4xf32>) {
}
