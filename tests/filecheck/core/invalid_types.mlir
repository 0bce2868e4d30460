// RUN: ditron-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// CHECK: core.load: !core.view<8x8xf32> and !core.tile<8x4xf32> do not hold the same tile
core.func @f(%a: !core.view<8x8xf32>) {
  %0 = core.load %a : !core.view<8x8xf32> -> !core.tile<8x4xf32>
}
// -----
// CHECK: core.store: !core.tile<8xf32> and !core.view<8xbf16> do not hold the same tile
core.func @f(%a: !core.view<8xf32>, %y: !core.view<8xbf16>) {
  %0 = core.load %a : !core.view<8xf32> -> !core.tile<8xf32>
  core.store %0, %y : !core.tile<8xf32>, !core.view<8xbf16>
}
// -----
// CHECK: f8E5M2 is no element type; expected one of f32
core.func @f(%a: !core.view<8xf8E5M2>) {
}
// -----
// CHECK: core.dot takes one float type, got bf16 and f32
core.func @f(%a: !core.view<8x8xbf16>, %b: !core.view<8x8xf32>) {
  %0 = core.load %a : !core.view<8x8xbf16> -> !core.tile<8x8xbf16>
  %1 = core.load %b : !core.view<8x8xf32> -> !core.tile<8x8xf32>
  %2 = core.dot %0, %1 : !core.tile<8x8xbf16>, !core.tile<8x8xf32> -> !core.tile<8x8xf32>
}
// -----
// CHECK: core.sub shapes do not agree: (8, 4), (8, 2)
core.func @f(%a: !core.view<8x4xf32>, %b: !core.view<8x2xf32>) {
  %0 = core.load %a : !core.view<8x4xf32> -> !core.tile<8x4xf32>
  %1 = core.load %b : !core.view<8x2xf32> -> !core.tile<8x2xf32>
  %2 = core.sub %0, %1 : !core.tile<8x4xf32>, !core.tile<8x2xf32> -> !core.tile<8x4xf32>
}
// -----
// CHECK: core.mul shapes do not agree: (8, 4), (4,)
core.func @f(%a: !core.view<8x4xf32>, %b: !core.view<4xf32>) {
  %0 = core.load %a : !core.view<8x4xf32> -> !core.tile<8x4xf32>
  %1 = core.load %b : !core.view<4xf32> -> !core.tile<4xf32>
  %2 = core.mul %0, %1 : !core.tile<8x4xf32>, !core.tile<4xf32> -> !core.tile<8x4xf32>
}
