// RUN: ditron-opt %s -p order-tiles | filecheck %s
// RUN: ditron-opt %s -p 'order-tiles{order=natural}' | filecheck %s --check-prefix=NATURAL
// RUN: not ditron-opt %s -p 'order-tiles{order=random}' 2>&1 | filecheck %s --check-prefix=BAD

// Own tiles first, then the next rank's, so that no two ranks read one peer at a time.
// CHECK: %[[ME:.*]] = device.rank
// CHECK: device.grid @tiles engine sm in (%[[P:.*]] = 4, %{{.*}} = 2) {
// CHECK: device.schedule order[(%[[P]] - %[[ME]]) mod 4]

// NATURAL-LABEL: device.grid @tiles
// NATURAL-NOT: order[

// BAD: ditron-opt: error: pass 'order-tiles': {{.*}}Literal['arrival', 'natural']

core.func @copy(%a: !core.view<32x64xf32>, %y: !core.view<32x64xf32>) {
  %0 = core.load %a : !core.view<32x64xf32> -> !core.tile<32x64xf32>
  core.store %0, %y : !core.tile<32x64xf32>, !core.view<32x64xf32>
}
device.program @p ranks 4 {
  %me = device.rank
  %x = device.buffer "x" input [64, 64] : !device.buffer<64x64xf32, symmetric>
  %y = device.buffer "y" output [256, 64] : !device.buffer<256x64xf32, local>
  device.grid @acquire engine host in () {
    device.acquire %x : !device.buffer<64x64xf32, symmetric>
  }
  device.grid @tiles engine sm in (%p = 4, %m = 2) {
    %a = device.view %x[%m * 32, 0] [32, 64] at %p : !device.buffer<64x64xf32, symmetric> -> !core.view<32x64xf32>
    %b = device.view %y[%p * 64 + %m * 32, 0] [32, 64] : !device.buffer<256x64xf32, local> -> !core.view<32x64xf32>
    device.call @copy(%a, %b) : !core.view<32x64xf32>, !core.view<32x64xf32>
  }
  device.grid @release engine host in () {
    device.release %x : !device.buffer<64x64xf32, symmetric>
  }
}
