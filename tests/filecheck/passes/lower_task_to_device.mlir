// RUN: ditron-opt %s -p lower-task-to-device | filecheck %s

// The task program stays, for the proof of delivery.
// CHECK: task.program @p

// CHECK: core.func @matmul(%[[A:.*]]: !core.view<32x64xbf16>, %[[B:.*]]: !core.view<64x24xbf16>, %[[Y:.*]]: !core.view<32x24xbf16>) {
// CHECK-NEXT: %[[TA:.*]] = core.load %[[A]]
// CHECK-NEXT: %[[TB:.*]] = core.load %[[B]]
// CHECK-NEXT: %[[TC:.*]] = core.dot %[[TA]], %[[TB]] : {{.*}} -> !core.tile<32x24xf32>
// CHECK-NEXT: %[[TY:.*]] = core.cast %[[TC]] : !core.tile<32x24xf32> -> !core.tile<32x24xbf16>
// CHECK-NEXT: core.store %[[TY]], %[[Y]]

// CHECK: device.program @p ranks 4 {
// CHECK-NEXT: %[[ME:.*]] = device.rank
// 250 rows on four ranks: 63, 63, 63, 61.
// CHECK-NEXT: %[[X:.*]] = device.buffer "x" input[min(max(250 - %[[ME]] * 63, 0), 63), 64] : !device.buffer<63x64xbf16
// CHECK-NEXT: %[[W:.*]] = device.buffer "w" weight[64, 24] : !device.buffer<64x24xbf16
// CHECK-NEXT: %[[G:.*]] = device.buffer "all_gather" scratch[250, 64]
// CHECK-NEXT: device.collective all_gather %[[X]] -> %[[G]] dim 0 size 250 {{.*}} choice <mesh push chunk 32>
// CHECK-NEXT: %[[OUT:.*]] = device.buffer "y" output[250, 24]
// Tiles follow the shards, so that none straddles two ranks' rows.
// CHECK-NEXT: device.grid @matmul engine sm in (%[[P:.*]] = 4, %[[M:.*]] = 2, %[[N:.*]] = 1) {
// CHECK-NEXT: %[[VA:.*]] = device.view %[[G]][%[[P]] * 63 + %[[M]] * 32, 0] [min(32, 63 - %[[M]] * 32), 64]
// CHECK-NEXT: %[[VB:.*]] = device.view %[[W]][0, %[[N]] * 24] [64, 24]
// CHECK-NEXT: %[[VY:.*]] = device.view %[[OUT]][%[[P]] * 63 + %[[M]] * 32, %[[N]] * 24]
// CHECK-NEXT: device.call @matmul(%[[VA]], %[[VB]], %[[VY]])
// CHECK-NEXT: }

task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<250x64xbf16, [shard(0)]>
  %w = task.weight "w" : !task.tensor<64x96xbf16, [shard(1)]>
  %g = task.all_gather %x dim 0 axis "tp" choice #task.choice<mesh push chunk 32> : !task.tensor<250x64xbf16, [shard(0)]> -> !task.tensor<250x64xbf16, [replicate]>
  %y = task.matmul %g, %w choice #task.choice<tile 32x24> : !task.tensor<250x64xbf16, [replicate]>, !task.tensor<64x96xbf16, [shard(1)]> -> !task.tensor<250x96xbf16, [shard(1)]>
  task.output "y", %y : !task.tensor<250x96xbf16, [shard(1)]>
}
