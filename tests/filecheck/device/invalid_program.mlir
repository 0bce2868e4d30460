// RUN: ditron-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// CHECK: a program runs on at least one rank, got 0
device.program @p ranks 0 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
}
// -----
// CHECK: arith.constant cannot stand in a device.program
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  %0 = arith.constant 1 : index
}
// -----
// CHECK: two device.buffer are called x
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  %y = device.buffer "x" output [64] : !device.buffer<64xf32, local>
}
// -----
// CHECK: device.buffer: role is one of input, weight, state, output, scratch, got temporary
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  %y = device.buffer "y" temporary [64] : !device.buffer<64xf32, local>
}
// -----
// CHECK: device.buffer gives one size a dimension
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  %y = device.buffer "y" output [64, 2] : !device.buffer<64xf32, local>
}
// -----
// CHECK: a buffer's capacity is positive, got (0,)
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  %y = device.buffer "y" output [0] : !device.buffer<0xf32, local>
}
// -----
// CHECK: memory is symmetric or local, got global
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  %y = device.buffer "y" output [64] : !device.buffer<64xf32, global>
}
// -----
// CHECK: Expected integer literal
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  %t = device.signals "t" : !device.signals<-1>
}
// -----
// CHECK: two device.signals are called s
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  %t = device.signals "s" : !device.signals<4>
}
// -----
// CHECK: device.rank: result 'result' at position 0 does not verify: i32 should be of base attribute index
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  "device.rank"() : () -> i32
}
// -----
// CHECK: device.collective: kind is one of
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.collective gather %x -> %x dim 0 size 250 axis "tp" ranks 4 stride 1 choice <mesh push> : !device.buffer<64xf32, symmetric> -> !device.buffer<64xf32, symmetric>
}
// -----
// CHECK: has no dim 1
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.collective all_gather %x -> %x dim 1 size 250 axis "tp" ranks 4 stride 1 choice <mesh push> : !device.buffer<64xf32, symmetric> -> !device.buffer<64xf32, symmetric>
}
