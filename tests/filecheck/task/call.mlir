// RUN: ditron-opt %s | ditron-opt | filecheck %s
// RUN: ditron-opt %s --print-op-generic | ditron-opt | filecheck %s

core.func @bias_relu(%x: !core.view<64x128xf32>, %b: !core.view<128xf32>, %y: !core.view<64x128xf32>) {
  %0 = core.load %x : !core.view<64x128xf32> -> !core.tile<64x128xf32>
  %1 = core.load %b : !core.view<128xf32> -> !core.tile<128xf32>
  %2 = core.expand_dims %1 : !core.tile<128xf32> -> !core.tile<1x128xf32>
  %3 = core.add %0, %2 : !core.tile<64x128xf32>, !core.tile<1x128xf32> -> !core.tile<64x128xf32>
  %4 = core.relu %3 : !core.tile<64x128xf32> -> !core.tile<64x128xf32>
  core.store %4, %y : !core.tile<64x128xf32>, !core.view<64x128xf32>
}

core.func @dot(%x: !core.view<64x32xf32>, %w: !core.view<32x128xf32>, %y: !core.view<64x128xf32>) {
  %0 = core.load %x : !core.view<64x32xf32> -> !core.tile<64x32xf32>
  %1 = core.load %w : !core.view<32x128xf32> -> !core.tile<32x128xf32>
  %2 = core.dot %0, %1 : !core.tile<64x32xf32>, !core.tile<32x128xf32> -> !core.tile<64x128xf32>
  core.store %2, %y : !core.tile<64x128xf32>, !core.view<64x128xf32>
}

// CHECK-LABEL: task.program @p
task.program @p mesh #task.mesh<tp = 2> {
  %x = task.input "x" : !task.tensor<100x32xf32, [shard(0)]>
  %w = task.input "w" : !task.tensor<32x200xf32, [replicate]>
  %b = task.input "b" : !task.tensor<200xf32, [replicate]>
  // CHECK: %[[H:.*]] = task.call @dot(%{{.*}}, %{{.*}}) cuts <[0, *], [*, 1]> : !task.tensor<100x32xf32, [shard(0)]>, !task.tensor<32x200xf32, [replicate]> -> !task.tensor<100x200xf32, [shard(0)]>
  %h = task.call @dot(%x, %w) cuts <[0, *], [*, 1]> : !task.tensor<100x32xf32, [shard(0)]>, !task.tensor<32x200xf32, [replicate]> -> !task.tensor<100x200xf32, [shard(0)]>
  // CHECK-NEXT: task.call @bias_relu(%[[H]], %{{.*}}) cuts <[0, 1], [1]> name "act" choice #task.choice<tile 32x64> :
  %y = task.call @bias_relu(%h, %b) cuts <[0, 1], [1]> name "act" choice #task.choice<tile 32x64> : !task.tensor<100x200xf32, [shard(0)]>, !task.tensor<200xf32, [replicate]> -> !task.tensor<100x200xf32, [shard(0)]>
  task.output "y", %y : !task.tensor<100x200xf32, [shard(0)]>
}

// Each rank makes its own shard of what is whole on all of them.
// CHECK-LABEL: task.program @own_shard
task.program @own_shard mesh #task.mesh<tp = 2> {
  %x = task.input "x" : !task.tensor<100x200xf32, [replicate]>
  %b = task.input "b" : !task.tensor<200xf32, [replicate]>
  // CHECK: task.call @bias_relu{{.*}} -> !task.tensor<100x200xf32, [shard(1)]>
  %y = task.call @bias_relu(%x, %b) cuts <[0, 1], [1]> : !task.tensor<100x200xf32, [replicate]>, !task.tensor<200xf32, [replicate]> -> !task.tensor<100x200xf32, [shard(1)]>
  task.output "y", %y : !task.tensor<100x200xf32, [shard(1)]>
}
