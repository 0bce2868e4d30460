// RUN: not ditron-opt %s -p verify-deadlock-free 2>&1 | filecheck %s

// The push waits for this launch's credit instead of the last one's.
// CHECK: 2 tasks wait for each other; let one of them go on without its wait, or notify before it waits:
// CHECK-NEXT: @push[0] on rank 0 (copy lane 0, task 0) waits for %free[0] at rank 0 >= 1 (it is 0)
// CHECK-SAME: needs @tiles[0, 3] on rank 0 (sm lane 0, task 3), behind @tiles[0, 0] on rank 0
// CHECK-NEXT: @tiles[0, 0] on rank 0 (sm lane 0, task 0) waits for %ready[0] at rank 0 >= 1 (it is 0)

core.func @copy(%a: !core.view<64xf32>, %y: !core.view<64xf32>) {
  %0 = core.load %a : !core.view<64xf32> -> !core.tile<64xf32>
  core.store %0, %y : !core.tile<64xf32>, !core.view<64xf32>
}
task.program @p mesh #task.mesh<tp = 2> {
  %x = task.input "x" : !task.tensor<128xf32, [shard(0)]>
  %g = task.all_gather %x dim 0 axis "tp" : !task.tensor<128xf32, [shard(0)]> -> !task.tensor<128xf32, [replicate]>
  task.output "y", %g : !task.tensor<128xf32, [replicate]>
}
device.program @p ranks 2 heap 2048 {
  %me = device.rank
  %x = device.buffer "x" input [64] offset 0 : !device.buffer<64xf32, local>
  %g = device.buffer "g" scratch [128] offset 256 : !device.buffer<128xf32, symmetric>
  %y = device.buffer "y" output [128] offset 768 : !device.buffer<128xf32, local>
  %ready = device.signals "ready" : !device.signals<2>
  %free = device.signals "free" : !device.signals<2>
  device.grid @push engine copy in (%p = 2) {
    %a = device.view %x[0] [64] : !device.buffer<64xf32, local> -> !core.view<64xf32>
    %b = device.view %g[%me * 64] [64] at %p : !device.buffer<128xf32, symmetric> -> !core.view<64xf32>
    device.schedule lane [0]
    device.wait %free[%p, 1] ge 1 : !device.signals<2>
    device.put %a -> %b : !core.view<64xf32> -> !core.view<64xf32>
    device.notify %ready[%me] at %p add 1 after put : !device.signals<2>
  }
  device.grid @tiles engine sm in (%p = 2, %n = 4) {
    %a = device.view %g[%p * 64 + %n * 16] [16] : !device.buffer<128xf32, symmetric> -> !core.view<64xf32>
    %b = device.view %y[%p * 64 + %n * 16] [16] : !device.buffer<128xf32, local> -> !core.view<64xf32>
    device.schedule lane [0]
    device.wait %ready[%p, 1] ge 1 : !device.signals<2>
    device.call @copy(%a, %b) : !core.view<64xf32>, !core.view<64xf32>
    device.notify %free[%me] at %p add 1 after end when %n eq 3 : !device.signals<2>
  }
}
