// RUN: ditron-opt %s -p 'lower-task-to-device' | filecheck %s

// Columns of a product as heads, turned and joined: places in two buffers, and no copy.

task.program @views mesh #task.mesh<tp = 2> {
  %x = task.input "x" : !task.tensor<4x8xf32, [replicate]>
  %w = task.input "w" : !task.tensor<8x24xf32, [shard(1)]>
  %y = task.matmul %x, %w choice #task.choice<tile 4x4> : !task.tensor<4x8xf32, [replicate]>, !task.tensor<8x24xf32, [shard(1)]> -> !task.tensor<4x24xf32, [shard(1)]>
  %h = task.reshape %y : !task.tensor<4x24xf32, [shard(1)]> -> !task.tensor<4x2x3x4xf32, [shard(1)]>
  %a = task.slice %h dim 2 at 1 size 2 : !task.tensor<4x2x3x4xf32, [shard(1)]> -> !task.tensor<4x2x2x4xf32, [shard(1)]>
  %b = task.relu %a : !task.tensor<4x2x2x4xf32, [shard(1)]> -> !task.tensor<4x2x2x4xf32, [shard(1)]>
  task.output "b", %b : !task.tensor<4x2x2x4xf32, [shard(1)]>
}

// CHECK-LABEL: device.program @views
// CHECK:       %[[Y:.*]] = device.buffer "matmul" scratch[4, 12]
// CHECK:       device.grid @matmul engine sm in (%{{.*}} = 1, %{{.*}} = 3)
// CHECK:       device.buffer "b" output[4, 1, 2, 4]
// CHECK-NEXT:  device.grid @relu engine sm
// CHECK-NEXT:    device.view %[[Y]][%{{.*}}, 4 + {{.*}}] [{{.*}}8] dims[0, 1, 1, 1]
// CHECK-NOT:   device.copy
