// RUN: ditron-opt %s -p order-tiles,plan-memory,schedule-tasks,insert-signals | filecheck %s
// RUN: ditron-opt %s -p order-tiles,plan-memory,schedule-tasks,insert-signals,elide-waits | filecheck %s --check-prefix=ELIDED

// A slot for each peer that has handed over its shard, and one for the readers of this rank's.
// CHECK: %[[ME:.*]] = device.rank
// CHECK: %[[READY:.*]] = device.signals "{{.*}}ready" : !device.signals<{{[34]}}>
// CHECK: %[[DONE:.*]] = device.signals "{{.*}}" : !device.signals<1>
// CHECK: device.acquire
// CHECK-COUNT-3: device.notify %[[READY]][{{.*}}] at (%[[ME]] + {{[1-3]}}) mod 4 add 1 after end
// CHECK: device.grid @tiles engine sm in (%[[P:.*]] = 4, %[[M:.*]] = 2) {
// A rank's own shard needs no signal: the launch's start orders it.
// CHECK: device.wait %[[READY]][{{.*}}, 1] ge 1 when (%[[P]] - %[[ME]]) mod 4 ne 0
// CHECK-NEXT: device.call
// One notify a lane and peer, by the last tile that reads the peer's shard.
// CHECK-NEXT: device.notify %[[DONE]][0] at %[[P]] add 1 after end when %[[M]] eq 1 and (%[[P]] - %[[ME]]) mod 4 ne 0
// CHECK-NEXT: }
// CHECK: device.wait %[[DONE]][0, 1] ge 3
// CHECK-NEXT: device.release

// The second tile of a peer need not wait again.
// ELIDED: device.grid @tiles engine sm in (%[[P:.*]] = 4, %[[M:.*]] = 2) {
// ELIDED: device.wait {{.*}} when %[[M]] eq 0 and
// ELIDED-NEXT: device.call

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
