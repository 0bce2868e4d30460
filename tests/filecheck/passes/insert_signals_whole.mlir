// RUN: ditron-opt %s -p 'plan-memory,schedule-tasks{workers=4 apart=true},insert-signals{whole-grids=true}' | filecheck %s

// Small grids side by side; what the same grid waits for shares a word, raised once a lane.
// CHECK: %[[ENDS:.*]] = device.signals "left_done" : !device.signals<1>
// CHECK: device.grid @left engine sm in (%[[L:.*]] = 1) {
// CHECK: device.schedule lane[%[[L]] mod 4]
// CHECK: device.notify %[[ENDS]][0] at 0 add 1 after end
// CHECK: device.grid @right engine sm in (%[[R:.*]] = 1) {
// CHECK: device.schedule lane[%[[R]] mod 4 + 1]
// CHECK: device.notify %[[ENDS]][0] at 0 add 1 after end
// Six tasks on four lanes: the first of each waits, the last of each tells.
// CHECK: %[[SPREAD:.*]] = device.signals "spread_done" : !device.signals<1>
// CHECK: device.grid @spread engine sm in (%[[S:.*]] = 6) {
// CHECK: device.wait %[[ENDS]][0, 1] ge 2 when %[[S]] le 3
// CHECK: device.notify %[[SPREAD]][0] at 0 add 1 after end when 2 le %[[S]]
// It also reads what @left made, which @spread has waited for.
// CHECK: device.grid @joined engine sm in (%{{.*}} = 2) {
// CHECK: device.wait %[[SPREAD]][0, 1] ge 4 :
// CHECK-NEXT: device.call

core.func @copy(%a: !core.view<48xf32>, %y: !core.view<48xf32>) {
  %0 = core.load %a : !core.view<48xf32> -> !core.tile<48xf32>
  core.store %0, %y : !core.tile<48xf32>, !core.view<48xf32>
}
core.func @part(%a: !core.view<48xf32>, %b: !core.view<48xf32>, %y: !core.view<1xf32>) {
  %0 = core.load %a : !core.view<48xf32> -> !core.tile<48xf32>
  %1 = core.load %b : !core.view<48xf32> -> !core.tile<48xf32>
  %2 = core.add %0, %1 : !core.tile<48xf32>, !core.tile<48xf32> -> !core.tile<48xf32>
  %3 = core.sum %2 dim 0 : !core.tile<48xf32> -> !core.tile<1xf32>
  core.store %3, %y : !core.tile<1xf32>, !core.view<1xf32>
}
device.program @p ranks 1 {
  %x = device.buffer "x" input [48] : !device.buffer<48xf32, local>
  %a = device.buffer "a" scratch [48] : !device.buffer<48xf32, local>
  %b = device.buffer "b" scratch [48] : !device.buffer<48xf32, local>
  %c = device.buffer "c" scratch [48] : !device.buffer<48xf32, local>
  %y = device.buffer "y" output [16] : !device.buffer<16xf32, local>
  device.grid @left engine sm in (%n = 1) {
    %0 = device.view %x[0] [48] : !device.buffer<48xf32, local> -> !core.view<48xf32>
    %1 = device.view %a[0] [48] : !device.buffer<48xf32, local> -> !core.view<48xf32>
    device.call @copy(%0, %1) : !core.view<48xf32>, !core.view<48xf32>
  }
  device.grid @right engine sm in (%n = 1) {
    %0 = device.view %x[0] [48] : !device.buffer<48xf32, local> -> !core.view<48xf32>
    %1 = device.view %b[0] [48] : !device.buffer<48xf32, local> -> !core.view<48xf32>
    device.call @copy(%0, %1) : !core.view<48xf32>, !core.view<48xf32>
  }
  device.grid @spread engine sm in (%n = 6) {
    %0 = device.view %a[0] [48] : !device.buffer<48xf32, local> -> !core.view<48xf32>
    %1 = device.view %b[0] [48] : !device.buffer<48xf32, local> -> !core.view<48xf32>
    %2 = device.view %c[%n * 8] [1] : !device.buffer<48xf32, local> -> !core.view<1xf32>
    device.call @part(%0, %1, %2) : !core.view<48xf32>, !core.view<48xf32>, !core.view<1xf32>
  }
  device.grid @joined engine sm in (%n = 2) {
    %0 = device.view %a[0] [48] : !device.buffer<48xf32, local> -> !core.view<48xf32>
    %1 = device.view %c[0] [48] : !device.buffer<48xf32, local> -> !core.view<48xf32>
    %2 = device.view %y[%n * 8] [1] : !device.buffer<16xf32, local> -> !core.view<1xf32>
    device.call @part(%0, %1, %2) : !core.view<48xf32>, !core.view<48xf32>, !core.view<1xf32>
  }
}
