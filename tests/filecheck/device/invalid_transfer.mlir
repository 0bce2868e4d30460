// RUN: ditron-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// CHECK: device.view gives 1 offsets and sizes
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %z = device.view %x[0, 0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    device.put %v -> %u : !core.view<64xf32> -> !core.view<64xf32>
  }
}
// -----
// CHECK: cannot be !core.view<64xbf16>
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %z = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xbf16>
    device.put %v -> %u : !core.view<64xf32> -> !core.view<64xf32>
  }
}
// -----
// CHECK: only symmetric buffers can be viewed at a peer
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %z = device.view %w[0] [64] at 1 : !device.buffer<64xf32, local> -> !core.view<64xf32>
    device.put %v -> %u : !core.view<64xf32> -> !core.view<64xf32>
  }
}
// -----
// CHECK: the source of device.put is this rank's own memory
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    device.put %u -> %u : !core.view<64xf32> -> !core.view<64xf32>
  }
}
// -----
// CHECK: the target of device.get is this rank's own memory
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    device.get %v -> %u : !core.view<64xf32> -> !core.view<64xf32>
  }
}
// -----
// CHECK: the target of device.copy is this rank's own memory
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    device.copy %v -> %u : !core.view<64xf32> -> !core.view<64xf32>
  }
}
// -----
// CHECK: device.put copies between views of one type
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %z = device.view %x[0] [32] : !device.buffer<64xf32, symmetric> -> !core.view<32xf32>
    device.put %z -> %u : !core.view<32xf32> -> !core.view<64xf32>
  }
}
