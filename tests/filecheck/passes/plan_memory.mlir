// RUN: ditron-opt %s -p plan-memory | filecheck %s
// RUN: ditron-opt %s -p 'plan-memory{reuse=false align=1024}' | filecheck %s --check-prefix=APART

// %a is dead when %c is born: they share bytes. %b is alive beside both. Four buffers of 2048 bytes.
// CHECK: device.program @p ranks 2 heap 8192 {
// CHECK: "a"{{.*}} offset [[A:[0-9]+]] :
// CHECK: "c"{{.*}} offset [[A]] :

// APART: device.program @p ranks 2 heap 10240 {
// APART: "a"{{.*}} offset [[A:[0-9]+]] :
// APART-NOT: offset [[A]] :

core.func @copy(%a: !core.view<16x32xf32>, %y: !core.view<16x32xf32>) {
  %0 = core.load %a : !core.view<16x32xf32> -> !core.tile<16x32xf32>
  core.store %0, %y : !core.tile<16x32xf32>, !core.view<16x32xf32>
}
device.program @p ranks 2 {
  %x = device.buffer "x" input [16, 32] : !device.buffer<16x32xf32, local>
  %a = device.buffer "a" scratch [16, 32] : !device.buffer<16x32xf32, local>
  %b = device.buffer "b" scratch [16, 32] : !device.buffer<16x32xf32, local>
  %c = device.buffer "c" scratch [16, 32] : !device.buffer<16x32xf32, local>
  %y = device.buffer "y" output [16, 32] : !device.buffer<16x32xf32, local>
  device.grid @xa engine sm in () {
    %0 = device.view %x[0, 0] [16, 32] : !device.buffer<16x32xf32, local> -> !core.view<16x32xf32>
    %1 = device.view %a[0, 0] [16, 32] : !device.buffer<16x32xf32, local> -> !core.view<16x32xf32>
    device.call @copy(%0, %1) : !core.view<16x32xf32>, !core.view<16x32xf32>
  }
  device.grid @ab engine sm in () {
    %0 = device.view %a[0, 0] [16, 32] : !device.buffer<16x32xf32, local> -> !core.view<16x32xf32>
    %1 = device.view %b[0, 0] [16, 32] : !device.buffer<16x32xf32, local> -> !core.view<16x32xf32>
    device.call @copy(%0, %1) : !core.view<16x32xf32>, !core.view<16x32xf32>
  }
  device.grid @bc engine sm in () {
    %0 = device.view %b[0, 0] [16, 32] : !device.buffer<16x32xf32, local> -> !core.view<16x32xf32>
    %1 = device.view %c[0, 0] [16, 32] : !device.buffer<16x32xf32, local> -> !core.view<16x32xf32>
    device.call @copy(%0, %1) : !core.view<16x32xf32>, !core.view<16x32xf32>
  }
  device.grid @cy engine sm in () {
    %0 = device.view %c[0, 0] [16, 32] : !device.buffer<16x32xf32, local> -> !core.view<16x32xf32>
    %1 = device.view %y[0, 0] [16, 32] : !device.buffer<16x32xf32, local> -> !core.view<16x32xf32>
    device.call @copy(%0, %1) : !core.view<16x32xf32>, !core.view<16x32xf32>
  }
}
