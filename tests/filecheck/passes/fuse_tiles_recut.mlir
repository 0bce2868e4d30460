// RUN: ditron-opt %s -p 'choose-algorithms{tile=1,8},lower-task-to-device,fuse-tiles{machine=h200}' | filecheck %s
// RUN: ditron-opt %s -p 'choose-algorithms{tile=1,8},lower-task-to-device' | filecheck %s --check-prefix=BEFORE

// BEFORE-COUNT-4: device.grid
// BEFORE-NOT: device.grid

// Each tile normalises its row, and makes both of the column blocks that it multiplies.
// CHECK-LABEL: core.func @gated(
// CHECK: %[[SCALE:.*]] = core.rsqrt
// CHECK-NOT: core.rsqrt
// CHECK: core.dot %[[ROW:[0-9]+]], %{{.*}} transpose_b : !core.tile<1x64xbf16>, !core.tile<8x64xbf16>
// CHECK: core.dot %[[ROW]], %{{.*}} transpose_b : !core.tile<1x64xbf16>, !core.tile<8x64xbf16>
// CHECK: device.program
// CHECK-NOT: scratch
// CHECK: device.grid @gated engine sm in (%m = 1, %[[N:.*]] = 3) {
// CHECK-DAG: device.view %w[%[[N]] * 8, 0] [8, 64]
// CHECK-DAG: device.view %w[24 + %[[N]] * 8, 0] [8, 64]
// CHECK: device.call @gated
// CHECK-NOT: device.grid

task.program @p mesh #task.mesh<tp = 1> {
  %x = task.input "x" : !task.tensor<1x64xbf16, [replicate]>
  %w = task.weight "w" : !task.tensor<48x64xbf16, [replicate]>
  %n = task.rms_norm %x eps 1.0e-6 name "norm" : !task.tensor<1x64xbf16, [replicate]> -> !task.tensor<1x64xbf16, [replicate]>
  %b = task.matmul %n, %w transpose_b name "both" : !task.tensor<1x64xbf16, [replicate]>, !task.tensor<48x64xbf16, [replicate]> -> !task.tensor<1x48xbf16, [replicate]>
  %g = task.slice %b dim 1 at 0 size 24 : !task.tensor<1x48xbf16, [replicate]> -> !task.tensor<1x24xbf16, [replicate]>
  %u = task.slice %b dim 1 at 24 size 24 : !task.tensor<1x48xbf16, [replicate]> -> !task.tensor<1x24xbf16, [replicate]>
  %s = task.silu %g : !task.tensor<1x24xbf16, [replicate]> -> !task.tensor<1x24xbf16, [replicate]>
  %y = task.mul %s, %u name "gated" : !task.tensor<1x24xbf16, [replicate]>, !task.tensor<1x24xbf16, [replicate]> -> !task.tensor<1x24xbf16, [replicate]>
  task.output "y", %y : !task.tensor<1x24xbf16, [replicate]>
}
