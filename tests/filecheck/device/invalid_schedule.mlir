// RUN: ditron-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// CHECK: device.schedule: `lane` takes 1 index expression, got 2
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    device.schedule lane [0, 1]
    device.put %v -> %u : !core.view<64xf32> -> !core.view<64xf32>
  }
}
// -----
// CHECK: device.rank cannot stand in a device.grid
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %r = device.rank
    device.put %v -> %u : !core.view<64xf32> -> !core.view<64xf32>
  }
}
// -----
// CHECK: expected an index expression
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %j = device.index (%i +) mod 4
    device.put %v -> %u : !core.view<64xf32> -> !core.view<64xf32>
  }
}
// -----
// CHECK: device.index: `expr` takes 1 index expression, got 2
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %j = device.index %i, 3
    device.put %v -> %u : !core.view<64xf32> -> !core.view<64xf32>
  }
}
// -----
// CHECK: device.table: `at` takes 1 index expression, got 2
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %j = device.table dense<[0, 1]> : tensor<2xi64>[%i, 0]
    device.put %v -> %u : !core.view<64xf32> -> !core.view<64xf32>
  }
}
// -----
// CHECK: device.call takes at least one view
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    "device.call"() <{kernel = @k, operandSegmentSizes = array<i32: 0, 0>}> : () -> ()
  }
}
// -----
// CHECK: device.acquire: operand 'buffer' at position 0 does not verify
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    "device.acquire"(%i) : (index) -> ()
  }
}
// -----
// CHECK: device.release: operand 'buffer' at position 0 does not verify
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    "device.release"(%i) : (index) -> ()
  }
}
