// RUN: ditron-opt %s -p schedule-tasks | filecheck %s --check-prefix=ONE
// RUN: ditron-opt %s -p 'schedule-tasks{workers=2}' | filecheck %s --check-prefix=TWO
// RUN: ditron-opt %s -p 'schedule-tasks{policy=zigzag workers=3}' | filecheck %s --check-prefix=ZIGZAG
// RUN: ditron-opt %s -p 'schedule-tasks{policy=queue workers=3}' | filecheck %s --check-prefix=QUEUE
// RUN: not ditron-opt %s -p 'schedule-tasks{workers=0}' 2>&1 | filecheck %s --check-prefix=NONE
// RUN: not ditron-opt %s -p 'schedule-tasks{policy=best}' 2>&1 | filecheck %s --check-prefix=POLICY

// ONE-LABEL: device.grid @acquire
// ONE: device.schedule lane[0]
// ONE-LABEL: device.grid @tiles
// ONE: device.schedule lane[0]

// Tasks are dealt to workers in turn.
// TWO: device.grid @tiles engine sm in (%[[P:.*]] = 4, %[[M:.*]] = 2) {
// TWO: device.schedule lane[{{.*}}%[[M]]{{.*}} mod 2]

// Up, then down.
// ZIGZAG: device.grid @tiles engine sm in (%[[P:.*]] = 4, %[[M:.*]] = 2) {
// ZIGZAG: device.schedule lane[(%[[P]] * 2 + %[[M]]) mod 3 + (%[[P]] * 2 + %[[M]]) floordiv 3 mod 2 * (2 - (%[[P]] * 2 + %[[M]]) mod 3 * 2)]

// QUEUE: device.grid @tiles engine sm queue in (
// QUEUE: device.schedule lane[0]

// NONE: ditron-opt: error: {{.*}}at least one
// POLICY: ditron-opt: error: pass 'schedule-tasks': {{.*}}Literal['round-robin', 'program-order', 'zigzag', 'critical-path', 'queue']

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
