// RUN: ditron-opt %s | ditron-opt | filecheck %s
// RUN: ditron-opt %s --print-op-generic | ditron-opt | filecheck %s

// CHECK-LABEL: core.func @half_of_sum
core.func @half_of_sum(%a: !core.view<8x4xf32>, %b: !core.view<4xf32>, %y: !core.view<8x4xf32>) {
  %0 = core.load %a : !core.view<8x4xf32> -> !core.tile<8x4xf32>
  // CHECK: %[[B:.*]] = core.load %{{.*}} : !core.view<4xf32> -> !core.tile<4xf32>
  %1 = core.load %b : !core.view<4xf32> -> !core.tile<4xf32>
  // CHECK-NEXT: %[[ROW:.*]] = core.expand_dims %[[B]] : !core.tile<4xf32> -> !core.tile<1x4xf32>
  %2 = core.expand_dims %1 : !core.tile<4xf32> -> !core.tile<1x4xf32>
  // CHECK-NEXT: %[[SUM:.*]] = core.add %{{.*}}, %[[ROW]] : !core.tile<8x4xf32>, !core.tile<1x4xf32> -> !core.tile<8x4xf32>
  %3 = core.add %0, %2 : !core.tile<8x4xf32>, !core.tile<1x4xf32> -> !core.tile<8x4xf32>
  // CHECK-NEXT: %[[HALF:.*]] = core.constant 5.000000e-01 : f32 -> !core.tile<1x1xf32>
  %4 = core.constant 0.5 : f32 -> !core.tile<1x1xf32>
  // CHECK-NEXT: core.mul %[[SUM]], %[[HALF]]
  %5 = core.mul %3, %4 : !core.tile<8x4xf32>, !core.tile<1x1xf32> -> !core.tile<8x4xf32>
  core.store %5, %y : !core.tile<8x4xf32>, !core.view<8x4xf32>
}

// CHECK-LABEL: core.func @integers
core.func @integers(%a: !core.view<4xi32>, %y: !core.view<1x4xi32>) {
  %0 = core.load %a : !core.view<4xi32> -> !core.tile<4xi32>
  // CHECK: core.constant 3 : i32 -> !core.tile<1xi32>
  %1 = core.constant 3 : i32 -> !core.tile<1xi32>
  %2 = core.add %0, %1 : !core.tile<4xi32>, !core.tile<1xi32> -> !core.tile<4xi32>
  %3 = core.expand_dims %2 : !core.tile<4xi32> -> !core.tile<1x4xi32>
  core.store %3, %y : !core.tile<1x4xi32>, !core.view<1x4xi32>
}
