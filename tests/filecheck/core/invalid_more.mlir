// RUN: ditron-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// CHECK: error: core.silu takes floats, got i32
core.func @f(%a: !core.view<8xi32>) {
  %0 = core.load %a : !core.view<8xi32> -> !core.tile<8xi32>
  %1 = core.silu %0 : !core.tile<8xi32> -> !core.tile<8xi32>
}
// -----
// CHECK: error: core.gelu keeps the type
core.func @f(%a: !core.view<8xf32>) {
  %0 = core.load %a : !core.view<8xf32> -> !core.tile<8xf32>
  %1 = core.gelu %0 : !core.tile<8xf32> -> !core.tile<8xbf16>
}
// -----
// CHECK: error: core.relu keeps the type
core.func @f(%a: !core.view<8xf32>) {
  %0 = core.load %a : !core.view<8xf32> -> !core.tile<8xf32>
  %1 = core.relu %0 : !core.tile<8xf32> -> !core.tile<4xf32>
}
// -----
// CHECK: error: core.exp takes floats, got i64
core.func @f(%a: !core.view<8xi64>) {
  %0 = core.load %a : !core.view<8xi64> -> !core.tile<8xi64>
  %1 = core.exp %0 : !core.tile<8xi64> -> !core.tile<8xi64>
}
// -----
// CHECK: error: core.func: a kernel's arguments are views, got i32
core.func @f(%a: i32) {
}
// -----
// CHECK: error: core.func: arith.constant cannot stand in a core.func
core.func @f(%a: !core.view<8xf32>) {
  %0 = arith.constant 1 : i32
}
// -----
// CHECK: tile dimensions must be static and positive, got (0, 8)
core.func @f(%a: !core.view<8xf32>) {
  %0 = core.load %a : !core.view<8xf32> -> !core.tile<0x8xf32>
}
// -----
// A kernel can touch nothing but its views.
// CHECK: error
%x = "test.op"() : () -> !core.tile<8xf32>
core.func @f(%a: !core.view<8xf32>) {
  core.store %x, %a : !core.tile<8xf32>, !core.view<8xf32>
}
