// RUN: ditron-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// CHECK: error: core.dot shapes do not agree: (8, 4) @ (6, 4) -> (8, 6)
core.func @f(%a: !core.view<8x4xf32>, %b: !core.view<6x4xf32>) {
  %0 = core.load %a : !core.view<8x4xf32> -> !core.tile<8x4xf32>
  %1 = core.load %b : !core.view<6x4xf32> -> !core.tile<6x4xf32>
  %2 = core.dot %0, %1 : !core.tile<8x4xf32>, !core.tile<6x4xf32> -> !core.tile<8x6xf32>
}
// -----
// CHECK: error: core.dot accumulates in f32
core.func @f(%a: !core.view<8x8xbf16>) {
  %0 = core.load %a : !core.view<8x8xbf16> -> !core.tile<8x8xbf16>
  %1 = core.dot %0, %0 : !core.tile<8x8xbf16>, !core.tile<8x8xbf16> -> !core.tile<8x8xbf16>
}
// -----
// CHECK: error: core.dot takes one float type, got i32 and i32
core.func @f(%a: !core.view<8x8xi32>) {
  %0 = core.load %a : !core.view<8x8xi32> -> !core.tile<8x8xi32>
  %1 = core.dot %0, %0 : !core.tile<8x8xi32>, !core.tile<8x8xi32> -> !core.tile<8x8xf32>
}
// -----
// CHECK: error: core.load
core.func @f(%a: !core.view<8x8xf32>) {
  %0 = core.load %a : !core.view<8x8xf32> -> !core.tile<8x4xf32>
}
// -----
// CHECK: error: core.store
core.func @f(%a: !core.view<8x8xf32>, %y: !core.view<8x8xbf16>) {
  %0 = core.load %a : !core.view<8x8xf32> -> !core.tile<8x8xf32>
  core.store %0, %y : !core.tile<8x8xf32>, !core.view<8x8xbf16>
}
// -----
// CHECK: error: core.cast keeps the shape
core.func @f(%a: !core.view<8x8xf32>) {
  %0 = core.load %a : !core.view<8x8xf32> -> !core.tile<8x8xf32>
  %1 = core.cast %0 : !core.tile<8x8xf32> -> !core.tile<8x4xbf16>
}
// -----
// CHECK: error: core.add takes one element type, cast first
core.func @f(%a: !core.view<8xf32>, %b: !core.view<8xbf16>) {
  %0 = core.load %a : !core.view<8xf32> -> !core.tile<8xf32>
  %1 = core.load %b : !core.view<8xbf16> -> !core.tile<8xbf16>
  %2 = core.add %0, %1 : !core.tile<8xf32>, !core.tile<8xbf16> -> !core.tile<8xf32>
}
// -----
// CHECK: error: core.sub shapes do not agree: (8,), (4,)
core.func @f(%a: !core.view<8xf32>, %b: !core.view<4xf32>) {
  %0 = core.load %a : !core.view<8xf32> -> !core.tile<8xf32>
  %1 = core.load %b : !core.view<4xf32> -> !core.tile<4xf32>
  %2 = core.sub %0, %1 : !core.tile<8xf32>, !core.tile<4xf32> -> !core.tile<8xf32>
}
// -----
// CHECK: error: core.mul shapes do not agree: (8, 1), (8,)
core.func @f(%a: !core.view<8x1xf32>, %b: !core.view<8xf32>) {
  %0 = core.load %a : !core.view<8x1xf32> -> !core.tile<8x1xf32>
  %1 = core.load %b : !core.view<8xf32> -> !core.tile<8xf32>
  %2 = core.mul %0, %1 : !core.tile<8x1xf32>, !core.tile<8xf32> -> !core.tile<8x8xf32>
}
