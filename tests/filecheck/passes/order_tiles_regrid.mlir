// RUN: ditron-opt %s -p 'order-tiles{workers=4}' | filecheck %s
// RUN: ditron-opt %s -p order-tiles | filecheck %s --check-prefix=ALONE

// Four workers load least if they share two rows and two columns of tiles.
// CHECK: device.grid @product engine sm in (%[[G:.*]] = 2, %[[N:.*]] = 4, %[[M:.*]] = 2) {
// CHECK-NEXT: %[[ROW:.*]] = device.index %[[G]] * 2 + %[[M]]
// CHECK-NEXT: device.view %x[%[[ROW]] * 16, 0] [16, 32]
// CHECK-NEXT: device.view %w[0, %[[N]] * 16] [32, 16]
// CHECK-NEXT: device.view %y[%[[ROW]] * 16, %[[N]] * 16] [16, 16]

// ALONE: device.grid @product engine sm in (%{{.*}} = 4, %{{.*}} = 4) {

core.func @product(%a: !core.view<16x32xf32>, %b: !core.view<32x16xf32>, %y: !core.view<16x16xf32>) {
  %0 = core.load %a : !core.view<16x32xf32> -> !core.tile<16x32xf32>
  %1 = core.load %b : !core.view<32x16xf32> -> !core.tile<32x16xf32>
  %2 = core.dot %0, %1 : !core.tile<16x32xf32>, !core.tile<32x16xf32> -> !core.tile<16x16xf32>
  core.store %2, %y : !core.tile<16x16xf32>, !core.view<16x16xf32>
}
device.program @p ranks 1 {
  %me = device.rank
  %x = device.buffer "x" input [64, 32] : !device.buffer<64x32xf32, local>
  %w = device.buffer "w" input [32, 64] : !device.buffer<32x64xf32, local>
  %y = device.buffer "y" output [64, 64] : !device.buffer<64x64xf32, local>
  device.grid @product engine sm in (%m = 4, %n = 4) {
    %a = device.view %x[%m * 16, 0] [16, 32] : !device.buffer<64x32xf32, local> -> !core.view<16x32xf32>
    %b = device.view %w[0, %n * 16] [32, 16] : !device.buffer<32x64xf32, local> -> !core.view<32x16xf32>
    %c = device.view %y[%m * 16, %n * 16] [16, 16] : !device.buffer<64x64xf32, local> -> !core.view<16x16xf32>
    device.call @product(%a, %b, %c) : !core.view<16x32xf32>, !core.view<32x16xf32>, !core.view<16x16xf32>
  }
}
