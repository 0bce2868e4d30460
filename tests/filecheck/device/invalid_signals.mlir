// RUN: ditron-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// CHECK: device.wait: `at` takes 2 index expressions, got 1
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    device.wait %s[0] ge 1 : !device.signals<4>
    device.put %v -> %u : !core.view<64xf32> -> !core.view<64xf32>
  }
}
// -----
// CHECK: device.wait: lag counts launches back, got -1
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    device.wait %s[0, 1] ge 1 lag -1 : !device.signals<4>
    device.put %v -> %u : !core.view<64xf32> -> !core.view<64xf32>
  }
}
// -----
// CHECK: device.notify: op is one of add, set, got sub
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    device.put %v -> %u : !core.view<64xf32> -> !core.view<64xf32>
    device.notify %s[0] at 1 sub 1 after end : !device.signals<4>
  }
}
// -----
// CHECK: device.notify: after is one of end, put, fence, quiet, got start
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    device.put %v -> %u : !core.view<64xf32> -> !core.view<64xf32>
    device.notify %s[0] at 1 add 1 after start : !device.signals<4>
  }
}
// -----
// CHECK: device.notify raises a slot, got 0
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    device.put %v -> %u : !core.view<64xf32> -> !core.view<64xf32>
    device.notify %s[0] at 1 add 0 after end : !device.signals<4>
  }
}
