// RUN: ditron-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// CHECK: device.put moves boxes as they are, without dims
device.program @p ranks 4 {
  %x = device.buffer "x" input [8, 8] : !device.buffer<8x8xf32, symmetric>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0, 0] [8, 8] dims [1, 0] : !device.buffer<8x8xf32, symmetric> -> !core.view<8x8xf32>
    %u = device.view %x[0, 0] [8, 8] at 1 : !device.buffer<8x8xf32, symmetric> -> !core.view<8x8xf32>
    device.put %v -> %u : !core.view<8x8xf32> -> !core.view<8x8xf32>
  }
}
// -----
// CHECK: in dims (0, 2) of
device.program @p ranks 4 {
  %x = device.buffer "x" input [8, 8] : !device.buffer<8x8xf32, symmetric>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0, 0] [8, 8] dims [0, 2] : !device.buffer<8x8xf32, symmetric> -> !core.view<8x8xf32>
    device.copy %v -> %v : !core.view<8x8xf32> -> !core.view<8x8xf32>
  }
}
// -----
// CHECK: in dims (0,) of
device.program @p ranks 4 {
  %x = device.buffer "x" input [8, 8] : !device.buffer<8x8xf32, symmetric>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0, 0] [8, 8] dims [0] : !device.buffer<8x8xf32, symmetric> -> !core.view<8x8xf32>
    device.copy %v -> %v : !core.view<8x8xf32> -> !core.view<8x8xf32>
  }
}
