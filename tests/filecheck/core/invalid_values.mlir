// RUN: ditron-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// CHECK: error: core.constant is of size 1 in every dimension, got (8, 1)
core.func @f(%a: !core.view<8xf32>) {
  %0 = core.constant 0.5 : f32 -> !core.tile<8x1xf32>
}
// -----
// CHECK: error: core.constant: 5.000000e-01 : f32 is no element of !core.tile<1xbf16>
core.func @f(%a: !core.view<8xf32>) {
  %0 = core.constant 0.5 : f32 -> !core.tile<1xbf16>
}
// -----
// CHECK: error: core.expand_dims puts dimensions of size 1 first: (8,) -> (8, 1)
core.func @f(%a: !core.view<8xf32>) {
  %0 = core.load %a : !core.view<8xf32> -> !core.tile<8xf32>
  %1 = core.expand_dims %0 : !core.tile<8xf32> -> !core.tile<8x1xf32>
}
// -----
// CHECK: error: core.expand_dims puts dimensions of size 1 first: (8,) -> (8,)
core.func @f(%a: !core.view<8xf32>) {
  %0 = core.load %a : !core.view<8xf32> -> !core.tile<8xf32>
  %1 = core.expand_dims %0 : !core.tile<8xf32> -> !core.tile<8xf32>
}
// -----
// CHECK: error: core.expand_dims keeps the element type
core.func @f(%a: !core.view<8xf32>) {
  %0 = core.load %a : !core.view<8xf32> -> !core.tile<8xf32>
  %1 = core.expand_dims %0 : !core.tile<8xf32> -> !core.tile<1x8xbf16>
}
