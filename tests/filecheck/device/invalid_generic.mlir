// RUN: ditron-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// What the custom syntax cannot say, the generic syntax can.
// CHECK: device.index: `expr` needs more arguments than the 1 given
device.program @p ranks 4 {
  %me = device.rank
  %q = "device.index"(%me) <{expr = #device.exprs<d0 + d1>}> : (index) -> index
}
// -----
// CHECK: device.index: `expr` takes 1 index expression, got 0
device.program @p ranks 4 {
  %q = "device.index"() <{expr = #device.exprs<none>}> : () -> index
}
// -----
// CHECK: expected an argument such as d0, got me
device.program @p ranks 4 {
  %q = "device.index"() <{expr = #device.exprs<me>}> : () -> index
}
// -----
// CHECK: expected an index expression
device.program @p ranks 4 {
  %q = "device.index"() <{expr = #device.exprs<1 +>}> : () -> index
}
// -----
// CHECK: device.table holds a tensor, got vector<2xi32>
device.program @p ranks 4 {
  %q = "device.table"() <{values = dense<[1, 2]> : vector<2xi32>, at = #device.exprs<0>}> : () -> index
}
// -----
// CHECK: device.buffer: `extent` needs more arguments than the 0 given
device.program @p ranks 4 {
  %x = "device.buffer"() <{buffer_name = "x", role = "input", extent = #device.exprs<d0>}> : () -> !device.buffer<64xf32, local>
}
// -----
// CHECK: a grid binds one index a dimension
device.program @p ranks 4 {
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  "device.grid"() <{sym_name = "g", engine = "host", bounds = [#builtin.int<4>]}> ({
    device.acquire %x : !device.buffer<64xf32, symmetric>
  }) : () -> ()
}
// -----
// CHECK: f8E5M2 is no element type; expected one of f32
device.program @p ranks 4 {
  %x = device.buffer "x" input [64] : !device.buffer<64xf8E5M2, local>
}
