// RUN: ditron-opt %s -p fuse-megakernel | filecheck %s

// CHECK: device.program @p ranks 1 heap 512 persistent {
// CHECK: device.schedule lane[0]

core.func @copy(%a: !core.view<64xf32>, %y: !core.view<64xf32>) {
  %0 = core.load %a : !core.view<64xf32> -> !core.tile<64xf32>
  core.store %0, %y : !core.tile<64xf32>, !core.view<64xf32>
}
device.program @p ranks 1 heap 512 {
  %x = device.buffer "x" input [64] offset 0 : !device.buffer<64xf32, local>
  %y = device.buffer "y" output [64] offset 256 : !device.buffer<64xf32, local>
  device.grid @tiles engine sm in (%n = 1) {
    %a = device.view %x[0] [64] : !device.buffer<64xf32, local> -> !core.view<64xf32>
    %b = device.view %y[0] [64] : !device.buffer<64xf32, local> -> !core.view<64xf32>
    device.schedule lane [0]
    device.call @copy(%a, %b) : !core.view<64xf32>, !core.view<64xf32>
  }
}
