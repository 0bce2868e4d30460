// RUN: ditron-opt %s -p 'order-tiles{group_rows=2},schedule-tasks{workers=3},insert-signals{machine=h200},elide-waits' | filecheck %s
// RUN: ditron-opt %s -p 'order-tiles,schedule-tasks{workers=3},insert-signals{machine=h200}' | filecheck %s --check-prefix=ALONE

// Tiles of two rows run side by side, column by column, and start together: with the second one's
// chunk, which alone is signalled. Tiles are dealt to lanes in the order in which they run.
// CHECK: device.grid @bring engine copy in (%[[C:.*]] = 4) {
// CHECK: device.notify %tiles_ready[%[[C]] floordiv 2] at 0 set 1 after end when %[[C]] ne 0 and %[[C]] ne 2
// CHECK: device.grid @tiles engine sm in (%[[M:.*]] = 4, %[[N:.*]] = 3) {
// CHECK: device.schedule lane[{{.*}} mod 3] order[%[[M]] floordiv 2, %[[N]], %[[M]] mod 2]
// CHECK: device.wait %tiles_ready[%[[M]] floordiv 2, 1] ge 1

// ALONE: device.grid @tiles engine sm in (%[[M:.*]] = 4, %{{.*}} = 3) {
// ALONE: device.wait %{{.*}}[%[[M]], 1] ge 1

core.func @tile(%a: !core.view<8x16xf32>, %b: !core.view<16x8xf32>, %y: !core.view<8x8xf32>) {
  %0 = core.load %a : !core.view<8x16xf32> -> !core.tile<8x16xf32>
  %1 = core.load %b : !core.view<16x8xf32> -> !core.tile<16x8xf32>
  %2 = core.dot %0, %1 : !core.tile<8x16xf32>, !core.tile<16x8xf32> -> !core.tile<8x8xf32>
  core.store %2, %y : !core.tile<8x8xf32>, !core.view<8x8xf32>
}
device.program @p ranks 1 {
  %me = device.rank
  %x = device.buffer "x" input [32, 16] : !device.buffer<32x16xf32, local>
  %w = device.buffer "w" input [16, 24] : !device.buffer<16x24xf32, local>
  %g = device.buffer "g" scratch [32, 16] : !device.buffer<32x16xf32, local>
  %y = device.buffer "y" output [32, 24] : !device.buffer<32x24xf32, local>
  device.grid @bring engine copy in (%c = 4) {
    %a = device.view %x[%c * 8, 0] [8, 16] : !device.buffer<32x16xf32, local> -> !core.view<8x16xf32>
    %b = device.view %g[%c * 8, 0] [8, 16] : !device.buffer<32x16xf32, local> -> !core.view<8x16xf32>
    device.copy %a -> %b : !core.view<8x16xf32> -> !core.view<8x16xf32>
  }
  device.grid @tiles engine sm in (%m = 4, %n = 3) {
    %a = device.view %g[%m * 8, 0] [8, 16] : !device.buffer<32x16xf32, local> -> !core.view<8x16xf32>
    %b = device.view %w[0, %n * 8] [16, 8] : !device.buffer<16x24xf32, local> -> !core.view<16x8xf32>
    %c = device.view %y[%m * 8, %n * 8] [8, 8] : !device.buffer<32x24xf32, local> -> !core.view<8x8xf32>
    device.call @tile(%a, %b, %c) : !core.view<8x16xf32>, !core.view<16x8xf32>, !core.view<8x8xf32>
  }
}
