// RUN: ditron-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// CHECK: error: core.dot multiplies matrices, got (8,) and (8,)
core.func @f(%a: !core.view<8xf32>) {
  %0 = core.load %a : !core.view<8xf32> -> !core.tile<8xf32>
  %1 = core.dot %0, %0 : !core.tile<8xf32>, !core.tile<8xf32> -> !core.tile<8xf32>
}
// -----
// CHECK: error: core.dot shapes do not agree: (2, 8, 4) @ (3, 4, 8) -> (3, 8, 8)
core.func @f(%a: !core.view<2x8x4xf32>, %b: !core.view<3x4x8xf32>) {
  %0 = core.load %a : !core.view<2x8x4xf32> -> !core.tile<2x8x4xf32>
  %1 = core.load %b : !core.view<3x4x8xf32> -> !core.tile<3x4x8xf32>
  %2 = core.dot %0, %1 : !core.tile<2x8x4xf32>, !core.tile<3x4x8xf32> -> !core.tile<3x8x8xf32>
}
// -----
// CHECK: error: core.sum along dim 2 of !core.tile<8x4xf32> is not !core.tile<8x1xf32>
core.func @f(%a: !core.view<8x4xf32>) {
  %0 = core.load %a : !core.view<8x4xf32> -> !core.tile<8x4xf32>
  %1 = core.sum %0 dim 2 : !core.tile<8x4xf32> -> !core.tile<8x1xf32>
}
// -----
// CHECK: error: core.max is of f32 or integers, cast first: !core.tile<8x4xbf16>
core.func @f(%a: !core.view<8x4xbf16>) {
  %0 = core.load %a : !core.view<8x4xbf16> -> !core.tile<8x4xbf16>
  %1 = core.max %0 dim 1 : !core.tile<8x4xbf16> -> !core.tile<8x1xbf16>
}
// -----
// CHECK: error: core.div takes one element type, cast first
core.func @f(%a: !core.view<8xf32>, %b: !core.view<8xbf16>) {
  %0 = core.load %a : !core.view<8xf32> -> !core.tile<8xf32>
  %1 = core.load %b : !core.view<8xbf16> -> !core.tile<8xbf16>
  %2 = core.div %0, %1 : !core.tile<8xf32>, !core.tile<8xbf16> -> !core.tile<8xf32>
}
// -----
// CHECK: error: core.rsqrt takes floats, got i32
core.func @f(%a: !core.view<8xi32>) {
  %0 = core.load %a : !core.view<8xi32> -> !core.tile<8xi32>
  %1 = core.rsqrt %0 : !core.tile<8xi32> -> !core.tile<8xi32>
}
// -----
// CHECK: error: core.gather takes integer ids and keeps the rows' type: !core.tile<8xf32>
core.func @f(%a: !core.view<8xf32>, %t: !core.view<9x4xf32>) {
  %0 = core.load %a : !core.view<8xf32> -> !core.tile<8xf32>
  %1 = core.gather %t[%0] : !core.view<9x4xf32>, !core.tile<8xf32> -> !core.tile<8x4xf32>
}
// -----
// CHECK: error: core.gather: !core.view<9x4xf32> by !core.tile<8xi32> does not make !core.tile<8x9xf32>
core.func @f(%a: !core.view<8xi32>, %t: !core.view<9x4xf32>) {
  %0 = core.load %a : !core.view<8xi32> -> !core.tile<8xi32>
  %1 = core.gather %t[%0] : !core.view<9x4xf32>, !core.tile<8xi32> -> !core.tile<8x9xf32>
}
// -----
// CHECK: error: core.index makes one integer, got !core.tile<2xi32>
core.func @f(%a: !core.view<8xi32>, %i: index) {
  %0 = core.index %i -> !core.tile<2xi32>
}
// -----
// CHECK: error: core.load_at: !core.tile<9x4xf32> is no part of !core.view<8x4xf32> along its dim
core.func @f(%a: !core.view<1xi32>, %x: !core.view<8x4xf32>) {
  %0 = core.load %a : !core.view<1xi32> -> !core.tile<1xi32>
  %1 = core.load_at %x[%0] dim 0 : !core.view<8x4xf32>, !core.tile<1xi32> -> !core.tile<9x4xf32>
}
// -----
// CHECK: error: core.store_at begins at one integer, got !core.tile<2xi32>
core.func @f(%a: !core.view<2xi32>, %x: !core.view<8x4xf32>, %y: !core.view<8x4xf32>) {
  %0 = core.load %a : !core.view<2xi32> -> !core.tile<2xi32>
  %1 = core.load %x : !core.view<8x4xf32> -> !core.tile<8x4xf32>
  core.store_at %1, %y[%0] dim 0 : !core.tile<8x4xf32>, !core.view<8x4xf32>, !core.tile<2xi32>
}
// -----
// CHECK: error: core.iota along dim 1 of (8, 4) is not !core.tile<8x1xi32>
core.func @f(%a: !core.view<8x4xf32>) {
  %0 = core.load %a : !core.view<8x4xf32> -> !core.tile<8x4xf32>
  %1 = core.iota %0 dim 1 : !core.tile<8x4xf32> -> !core.tile<8x1xi32>
}
// -----
// CHECK: error: core.le compares one element type and makes bools
core.func @f(%a: !core.view<8xf32>) {
  %0 = core.load %a : !core.view<8xf32> -> !core.tile<8xf32>
  %1 = core.le %0, %0 : !core.tile<8xf32>, !core.tile<8xf32> -> !core.tile<8xf32>
}
// -----
// CHECK: error: core.where takes bools and two tiles of one element type
core.func @f(%a: !core.view<8xf32>) {
  %0 = core.load %a : !core.view<8xf32> -> !core.tile<8xf32>
  %1 = core.where %0, %0, %0 : !core.tile<8xf32>, !core.tile<8xf32>, !core.tile<8xf32> -> !core.tile<8xf32>
}
// -----
// CHECK: error: core.argmax: !core.tile<4xi64> do not label !core.tile<8xf32>
core.func @f(%a: !core.view<8xf32>, %l: !core.view<4xi64>) {
  %0 = core.load %a : !core.view<8xf32> -> !core.tile<8xf32>
  %1 = core.load %l : !core.view<4xi64> -> !core.tile<4xi64>
  %2 = core.argmax %0 labels %1 dim 0 : !core.tile<8xf32>, !core.tile<4xi64> -> !core.tile<1xi64>
}
// -----
// CHECK: error: core.transpose of dims (0, 1) of !core.tile<8x4xf32> is not !core.tile<8x4xf32>
core.func @f(%a: !core.view<8x4xf32>) {
  %0 = core.load %a : !core.view<8x4xf32> -> !core.tile<8x4xf32>
  %1 = core.transpose %0 dims 0, 1 : !core.tile<8x4xf32> -> !core.tile<8x4xf32>
}
// -----
// CHECK: error: core.swap_halves: dim 1 of !core.tile<8x3xf32> has no halves
core.func @f(%a: !core.view<8x3xf32>) {
  %0 = core.load %a : !core.view<8x3xf32> -> !core.tile<8x3xf32>
  %1 = core.swap_halves %0 dim 1 : !core.tile<8x3xf32> -> !core.tile<8x3xf32>
}
// -----
// CHECK: error: core.swap_halves keeps the type
core.func @f(%a: !core.view<8x4xf32>) {
  %0 = core.load %a : !core.view<8x4xf32> -> !core.tile<8x4xf32>
  %1 = core.swap_halves %0 dim 1 : !core.tile<8x4xf32> -> !core.tile<4x8xf32>
}
