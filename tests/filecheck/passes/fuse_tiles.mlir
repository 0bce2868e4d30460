// RUN: ditron-opt %s -p 'choose-algorithms{tile=32,24},lower-task-to-device' | filecheck %s --check-prefix=BEFORE
// RUN: ditron-opt %s -p 'choose-algorithms{tile=32,24},lower-task-to-device,fuse-tiles' | filecheck %s

// BEFORE: device.buffer {{.*}} scratch
// BEFORE-COUNT-4: device.grid

// Two matmuls, silu and product become one kernel; the tiles between stay in float32.
// CHECK: core.func @{{.*}} {
// CHECK: %[[G:.*]] = core.dot {{.*}} -> !core.tile<32x24xf32>
// CHECK-NOT: core.store
// CHECK: core.silu {{.*}} : !core.tile<32x24xf32>
// CHECK: core.mul {{.*}} -> !core.tile<32x24xf32>
// CHECK: core.store
// CHECK: device.program
// CHECK-NOT: scratch
// CHECK: device.grid
// CHECK-NOT: device.grid

task.program @p mesh #task.mesh<tp = 2> {
  %x = task.input "x" : !task.tensor<64x64xbf16, [replicate]>
  %a = task.weight "a" : !task.tensor<64x48xbf16, [shard(1)]>
  %b = task.weight "b" : !task.tensor<64x48xbf16, [shard(1)]>
  %g = task.matmul %x, %a name "gate" : !task.tensor<64x64xbf16, [replicate]>, !task.tensor<64x48xbf16, [shard(1)]> -> !task.tensor<64x48xbf16, [shard(1)]>
  %s = task.silu %g : !task.tensor<64x48xbf16, [shard(1)]> -> !task.tensor<64x48xbf16, [shard(1)]>
  %u = task.matmul %x, %b name "up" : !task.tensor<64x64xbf16, [replicate]>, !task.tensor<64x48xbf16, [shard(1)]> -> !task.tensor<64x48xbf16, [shard(1)]>
  %y = task.mul %s, %u : !task.tensor<64x48xbf16, [shard(1)]>, !task.tensor<64x48xbf16, [shard(1)]> -> !task.tensor<64x48xbf16, [shard(1)]>
  task.output "y", %y : !task.tensor<64x48xbf16, [shard(1)]>
}
