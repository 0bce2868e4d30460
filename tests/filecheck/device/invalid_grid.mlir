// RUN: ditron-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// CHECK: device.grid: engine is one of sm, copy, host, library, got gpu
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine gpu in () {
    device.acquire %x : !device.buffer<64xf32, symmetric>
  }
}
// -----
// CHECK: a grid has at most 6 dimensions, none negative
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%a = 1, %b = 1, %c = 1, %d = 1, %e = 1, %f = 1, %h = 1) {
    device.acquire %x : !device.buffer<64xf32, symmetric>
  }
}
// -----
// CHECK: a grid has at most 6 dimensions, none negative: (-1,)
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%a = -1) {
    device.acquire %x : !device.buffer<64xf32, symmetric>
  }
}
// -----
// CHECK: a grid has exactly one body op
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
  }
}
// -----
// CHECK: a grid has exactly one body op
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    device.put %v -> %u : !core.view<64xf32> -> !core.view<64xf32>
    device.put %v -> %u : !core.view<64xf32> -> !core.view<64xf32>
  }
}
// -----
// CHECK: device.wait stands too late
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    device.put %v -> %u : !core.view<64xf32> -> !core.view<64xf32>
    device.wait %s[0, 1] ge 1 : !device.signals<4>
  }
}
// -----
// CHECK: a grid has at most one device.schedule
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    device.schedule lane [0]
    device.schedule lane [1]
    device.put %v -> %u : !core.view<64xf32> -> !core.view<64xf32>
  }
}
