// RUN: ditron-opt %s -p 'split-waves{machine=h200 workers=132}' | filecheck %s
// RUN: ditron-opt %s -p 'split-waves{machine=h200 workers=112}' | filecheck %s --check-prefix=FULL
// RUN: ditron-opt %s -p 'split-waves{machine=cpu workers=132}' | filecheck %s --check-prefix=FULL

// Three waves of 132 workers hold 56 rows of 7 tiles; the rest is 112 tiles of half the width.
// CHECK: device.grid @product engine sm in (%[[M:.*]] = 56, %[[N:.*]] = 7) {
// CHECK: device.view %y[%[[M]] * 128, %[[N]] * 256] [128, 256]
// CHECK: device.grid @product_rest engine sm in (%[[M2:.*]] = 8, %[[N2:.*]] = 14) {
// CHECK-NEXT: device.view %x[%[[M2]] * 128 + 7168, 0] [128, 4096]
// CHECK-NEXT: device.view %w[0, %[[N2]] * 128] [4096, 128]
// CHECK-NEXT: device.view %y[%[[M2]] * 128 + 7168, %[[N2]] * 128] [128, 128]
// CHECK-NEXT: device.call @product_rest
// Others read it.
// CHECK: device.grid @gathered engine sm in (%{{.*}} = 64, %{{.*}} = 7) {
// CHECK-NOT: @gathered_rest

// Four full waves of 112, or one core: nothing to gain.
// FULL-NOT: @product_rest

core.func @product(%a: !core.view<128x4096xbf16>, %b: !core.view<4096x256xbf16>, %y: !core.view<128x256xbf16>) {
  %0 = core.load %a : !core.view<128x4096xbf16> -> !core.tile<128x4096xbf16>
  %1 = core.load %b : !core.view<4096x256xbf16> -> !core.tile<4096x256xbf16>
  %2 = core.dot %0, %1 : !core.tile<128x4096xbf16>, !core.tile<4096x256xbf16> -> !core.tile<128x256xf32>
  %3 = core.cast %2 : !core.tile<128x256xf32> -> !core.tile<128x256xbf16>
  core.store %3, %y : !core.tile<128x256xbf16>, !core.view<128x256xbf16>
}
device.program @p ranks 1 {
  %me = device.rank
  %x = device.buffer "x" input [8192, 4096] : !device.buffer<8192x4096xbf16, local>
  %w = device.buffer "w" input [4096, 1792] : !device.buffer<4096x1792xbf16, local>
  %y = device.buffer "y" output [8192, 1792] : !device.buffer<8192x1792xbf16, local>
  %z = device.buffer "z" output [8192, 1792] : !device.buffer<8192x1792xbf16, symmetric>
  device.grid @product engine sm in (%m = 64, %n = 7) {
    %a = device.view %x[%m * 128, 0] [128, 4096] : !device.buffer<8192x4096xbf16, local> -> !core.view<128x4096xbf16>
    %b = device.view %w[0, %n * 256] [4096, 256] : !device.buffer<4096x1792xbf16, local> -> !core.view<4096x256xbf16>
    %c = device.view %y[%m * 128, %n * 256] [128, 256] : !device.buffer<8192x1792xbf16, local> -> !core.view<128x256xbf16>
    device.call @product(%a, %b, %c) : !core.view<128x4096xbf16>, !core.view<4096x256xbf16>, !core.view<128x256xbf16>
  }
  device.grid @gathered engine sm in (%m = 64, %n = 7) {
    %a = device.view %x[%m * 128, 0] [128, 4096] : !device.buffer<8192x4096xbf16, local> -> !core.view<128x4096xbf16>
    %b = device.view %w[0, %n * 256] [4096, 256] : !device.buffer<4096x1792xbf16, local> -> !core.view<4096x256xbf16>
    %c = device.view %z[%m * 128, %n * 256] [128, 256] : !device.buffer<8192x1792xbf16, symmetric> -> !core.view<128x256xbf16>
    device.call @product(%a, %b, %c) : !core.view<128x4096xbf16>, !core.view<4096x256xbf16>, !core.view<128x256xbf16>
  }
}
