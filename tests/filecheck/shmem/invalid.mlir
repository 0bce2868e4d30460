// RUN: ditron-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

// CHECK: the source of shmem.putmem is this rank's own memory
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    shmem.putmem %u -> %u : !core.view<64xf32> -> !core.view<64xf32>
  }
}
// -----
// CHECK: the target of shmem.getmem is this rank's own memory
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    shmem.getmem %v -> %u : !core.view<64xf32> -> !core.view<64xf32>
  }
}
// -----
// CHECK: shmem.putmem copies between views of one type
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %z = device.view %x[0] [32] : !device.buffer<64xf32, symmetric> -> !core.view<32xf32>
    shmem.putmem %z -> %u : !core.view<32xf32> -> !core.view<64xf32>
  }
}
// -----
// CHECK: shmem.signal_wait_until: `at` takes 2 index expressions, got 1
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    shmem.signal_wait_until %s[0] ge 1 : !device.signals<4>
    shmem.putmem %v -> %u : !core.view<64xf32> -> !core.view<64xf32>
  }
}
// -----
// CHECK: shmem.signal_wait_until: lag counts launches back, got -1
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    shmem.signal_wait_until %s[0, 1] ge 1 lag -1 : !device.signals<4>
    shmem.putmem %v -> %u : !core.view<64xf32> -> !core.view<64xf32>
  }
}
// -----
// CHECK: shmem.signal: op is one of add, set, got sub
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    shmem.putmem %v -> %u : !core.view<64xf32> -> !core.view<64xf32>
    shmem.signal %s[0] at 1 sub 1 after end : !device.signals<4>
  }
}
// -----
// CHECK: shmem.signal: after is one of end, put, fence, quiet, got start
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    shmem.putmem %v -> %u : !core.view<64xf32> -> !core.view<64xf32>
    shmem.signal %s[0] at 1 add 1 after start : !device.signals<4>
  }
}
// -----
// CHECK: shmem.signal raises a slot, got 0
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %w = device.buffer "w" weight [64] : !device.buffer<64xf32, local>
  %s = device.signals "s" : !device.signals<4>
  device.grid @g engine sm in (%i = 4) {
    %v = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %u = device.view %x[0] [64] at 1 : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    shmem.putmem %v -> %u : !core.view<64xf32> -> !core.view<64xf32>
    shmem.signal %s[0] at 1 add 0 after end : !device.signals<4>
  }
}
