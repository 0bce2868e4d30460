// RUN: ditron-opt %s | ditron-opt | filecheck %s
// RUN: ditron-opt %s --print-op-generic | ditron-opt | filecheck %s

device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64] : !device.buffer<64xf32, symmetric>
  %y = device.buffer "y" output [256] : !device.buffer<256xf32, symmetric>
  %s = device.signals "s" : !device.signals<4>
  // CHECK: device.grid @put engine copy in (%[[P:.*]] = 3) {
  device.grid @put engine copy in (%p = 3) {
    %a = device.view %x[0] [64] : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %b = device.view %y[%me * 64] [64] at (%me + %p + 1) mod 4 : !device.buffer<256xf32, symmetric> -> !core.view<64xf32>
    // CHECK: shmem.signal_wait_until %{{.*}}[%[[P]], 1] ge 1 lag 1 when %[[P]] ne 0 : !device.signals<4>
    shmem.signal_wait_until %s[%p, 1] ge 1 lag 1 when %p ne 0 : !device.signals<4>
    // CHECK-NEXT: shmem.putmem %{{.*}} -> %{{.*}} : !core.view<64xf32> -> !core.view<64xf32>
    shmem.putmem %a -> %b : !core.view<64xf32> -> !core.view<64xf32>
    // CHECK-NEXT: shmem.signal %{{.*}}[%{{.*}}] at (%{{.*}} + %[[P]] + 1) mod 4 add 1 after fence : !device.signals<4>
    shmem.signal %s[%me] at (%me + %p + 1) mod 4 add 1 after fence : !device.signals<4>
  }
  device.grid @get engine copy in (%p = 3) {
    %a = device.view %x[0] [64] at %p : !device.buffer<64xf32, symmetric> -> !core.view<64xf32>
    %b = device.view %y[%p * 64] [64] : !device.buffer<256xf32, symmetric> -> !core.view<64xf32>
    // CHECK: shmem.getmem %{{.*}} -> %{{.*}} : !core.view<64xf32> -> !core.view<64xf32>
    shmem.getmem %a -> %b : !core.view<64xf32> -> !core.view<64xf32>
  }
}
