// RUN: ditron-opt %s -p 'choose-algorithms{tile=32,24},lower-task-to-device,fuse-tiles' | filecheck %s

// A norm of rows, their turn and the write to where they are kept: one kernel, whose grid has one
// task along what no tile cuts.
// CHECK: core.func @keep(
// CHECK: core.rsqrt
// CHECK-NOT: core.store
// CHECK: core.swap_halves %{{.*}} dim 2 : !core.tile<1x6x8xf32>
// CHECK: core.store_at %{{.*}} dim 0 : !core.tile<1x6x8xbf16>
// CHECK: device.program
// CHECK-NOT: scratch
// CHECK: device.grid @keep
// CHECK: device.grid @copy_y
// CHECK-NOT: device.grid

task.program @p mesh #task.mesh<tp = 1> {
  %x = task.input "x" : !task.tensor<1x6x8xbf16, [replicate]>
  %cos = task.input "cos" : !task.tensor<1x1x8xf32, [replicate]>
  %sin = task.input "sin" : !task.tensor<1x1x8xf32, [replicate]>
  %pos = task.scalar "pos" max 15 : !task.tensor<1xi32, [replicate]>
  %kept = task.state "kept" : !task.tensor<16x6x8xbf16, [replicate]>
  %n = task.rms_norm %x eps 1.0e-6 name "norm" : !task.tensor<1x6x8xbf16, [replicate]> -> !task.tensor<1x6x8xbf16, [replicate]>
  %t = task.rope %n, %cos, %sin name "rope" : !task.tensor<1x6x8xbf16, [replicate]>, !task.tensor<1x1x8xf32, [replicate]>, !task.tensor<1x1x8xf32, [replicate]> -> !task.tensor<1x6x8xbf16, [replicate]>
  %u = task.update %kept, %t dim 0 at 0 plus %pos name "keep" : !task.tensor<16x6x8xbf16, [replicate]>, !task.tensor<1x6x8xbf16, [replicate]>, !task.tensor<1xi32, [replicate]> -> !task.tensor<16x6x8xbf16, [replicate]>
  task.output "y", %u : !task.tensor<16x6x8xbf16, [replicate]>
}
