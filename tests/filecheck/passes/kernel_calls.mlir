// RUN: ditron-opt %s -p 'lower-task-to-device' | filecheck %s
// RUN: ditron-opt %s -p 'lower-task-to-device,fuse-tiles' | filecheck %s --check-prefix FUSED

// The kernel keeps its name and is copied at the sizes that were chosen; a replica beside shards is
// read at this rank's part.

core.func @bias_relu(%x: !core.view<64x128xf32>, %b: !core.view<128xf32>, %y: !core.view<64x128xf32>) {
  %0 = core.load %x : !core.view<64x128xf32> -> !core.tile<64x128xf32>
  %1 = core.load %b : !core.view<128xf32> -> !core.tile<128xf32>
  %2 = core.expand_dims %1 : !core.tile<128xf32> -> !core.tile<1x128xf32>
  %3 = core.add %0, %2 : !core.tile<64x128xf32>, !core.tile<1x128xf32> -> !core.tile<64x128xf32>
  %4 = core.relu %3 : !core.tile<64x128xf32> -> !core.tile<64x128xf32>
  core.store %4, %y : !core.tile<64x128xf32>, !core.view<64x128xf32>
}

task.program @p mesh #task.mesh<tp = 2> {
  %x = task.input "x" : !task.tensor<64x16xf32, [replicate]>
  %w = task.input "w" : !task.tensor<16x256xf32, [shard(1)]>
  %b = task.input "b" : !task.tensor<256xf32, [replicate]>
  %h = task.matmul %x, %w choice #task.choice<tile 32x64> : !task.tensor<64x16xf32, [replicate]>, !task.tensor<16x256xf32, [shard(1)]> -> !task.tensor<64x256xf32, [shard(1)]>
  %y = task.call @bias_relu(%h, %b) cuts <[0, 1], [1]> choice #task.choice<tile 32x64> : !task.tensor<64x256xf32, [shard(1)]>, !task.tensor<256xf32, [replicate]> -> !task.tensor<64x256xf32, [shard(1)]>
  task.output "y", %y : !task.tensor<64x256xf32, [shard(1)]>
}

// CHECK: core.func @bias_relu(
// CHECK: core.func @bias_relu_1(%{{.*}}: !core.view<32x64xf32>, %{{.*}}: !core.view<64xf32>, %{{.*}}: !core.view<32x64xf32>) {
// CHECK: core.expand_dims %{{.*}} : !core.tile<64xf32> -> !core.tile<1x64xf32>
// CHECK: device.grid @bias_relu_1 engine sm in (%[[MM:.*]] = 2, %[[NN:.*]] = 2) {
// CHECK-NEXT: device.view %{{.*}}[%[[MM]] * 32, %[[NN]] * 64] [32, 64]
// CHECK-NEXT: device.view %b[%me * 128 + %[[NN]] * 64] [64]
// CHECK-NEXT: device.view %y[%[[MM]] * 32, %[[NN]] * 64] [32, 64]
// CHECK-NEXT: device.call @bias_relu_1(

// FUSED: core.func @bias_relu_1(%{{.*}}: !core.view<32x16xf32>, %{{.*}}: !core.view<16x64xf32>, %{{.*}}: !core.view<64xf32>, %{{.*}}: !core.view<32x64xf32>) {
// FUSED: core.dot
// FUSED: core.add
// FUSED-NEXT: core.relu
// FUSED-NEXT: core.store
// FUSED: device.grid @bias_relu_1 engine sm
// FUSED-NOT: device.grid
